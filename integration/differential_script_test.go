package integration

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A script is a text file of requests and of what Kafka answered:
//
//	# a remark, kept as it stands
//	def join = JoinGroup Group=$g …         a request that steps begin with
//	== name v2-9                            a case; it runs once for each version, with names of its own
//	> join/v MemberID=x                     a request in the case's version; /6: in version 6
//	@b> join/v                              on another connection, named b
//	@b>> join/v                             sent; its answer is taken by
//	@b<<                                    this step
//	< v2-3 ErrorCode=…                      what Kafka answered, by versions if they differ
//	~ v2-3 ErrorCode=…                      what ottla answers instead, on purpose; a remark above says why
//
// A request may end in options, each behind a bar: "until TEXT" repeats it until its answer holds the text, "mine"
// leaves out of lists what does not concern the case's group or transactional id, "sorted" is for lists that Kafka
// answers in the order of a hash table, "unanswered" for what Kafka does not answer at all.
type script struct {
	head  []string // lines before the first case
	cases []*scriptCase
}

type scriptCase struct {
	name     string
	min, max int16
	lines    []string // remarks that follow the name
	steps    []*step
}

type step struct {
	line    string   // as it stands in the file
	remarks []string // lines before it
	conn    string
	send    bool // its answer is not waited for
	receive bool
	request string // name and version
	fields  []field
	options []string

	kafka, ottla map[int16]string // answers by version
	reasons      []string         // the remarks above ottla's
}

func readScript(path string) (*script, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &script{}
	defs := map[string]string{}
	var c *scriptCase
	var at *step
	var remarks []string
	for i, line := range strings.Split(strings.TrimRight(string(raw), "\n"), "\n") {
		fail := func(err error) error { return fmt.Errorf("%s:%d: %w", path, i+1, err) }
		switch {
		case strings.HasPrefix(line, "== "):
			if c, err = readCase(line); err != nil {
				return nil, fail(err)
			}
			c.lines, remarks, at = remarks, nil, nil
			s.cases = append(s.cases, c)
		case line == "" || strings.HasPrefix(line, "#"):
			remarks = append(remarks, line)
		case strings.HasPrefix(line, "def "):
			name, body, _ := strings.Cut(strings.TrimPrefix(line, "def "), " = ")
			first, rest, _ := strings.Cut(body, " ")
			if base, ok := defs[first]; ok {
				body = base + " " + rest
			}
			defs[name] = body
			s.head = append(s.head, append(remarks, line)...)
			remarks = nil
		case c == nil:
			return nil, fail(fmt.Errorf("%q stands before the first case", line))
		case strings.HasPrefix(line, "< "), line == "<", strings.HasPrefix(line, "~ "), line == "~":
			if at == nil {
				return nil, fail(fmt.Errorf("an answer to no request"))
			}
			to := at.kafka
			if line[0] == '~' {
				to, at.reasons = at.ottla, append(at.reasons, remarks...)
				if len(remarks) == 0 && len(at.ottla) == 0 {
					return nil, fail(fmt.Errorf("a difference without a reason"))
				}
				remarks = nil
			}
			if err := c.readAnswer(to, strings.TrimPrefix(line[1:], " ")); err != nil {
				return nil, fail(err)
			}
		default:
			if at, err = readStep(line, defs); err != nil {
				return nil, fail(err)
			}
			at.remarks, remarks = remarks, nil
			c.steps = append(c.steps, at)
		}
	}
	return s, nil
}

func readCase(line string) (*scriptCase, error) {
	i := strings.LastIndex(line, " v")
	if i < 3 {
		return nil, fmt.Errorf("a case without versions")
	}
	all, err := versions(line[i+2:])
	if err != nil {
		return nil, err
	}
	return &scriptCase{name: line[3:i], min: all[0], max: all[len(all)-1]}, nil
}

// versions reads "0-3,5".
func versions(s string) (all []int16, err error) {
	for part := range strings.SplitSeq(s, ",") {
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			to = from
		}
		low, err1 := strconv.Atoi(from)
		high, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || high < low {
			return nil, fmt.Errorf("%q are no versions", s)
		}
		for v := low; v <= high; v++ {
			all = append(all, int16(v))
		}
	}
	return all, nil
}

func (c *scriptCase) readAnswer(to map[int16]string, line string) error {
	var of []int16
	for v := c.min; v <= c.max; v++ {
		of = append(of, v)
	}
	if first, rest, _ := strings.Cut(line, " "); strings.HasPrefix(first, "v") && !strings.Contains(first, "=") {
		var err error
		if of, err = versions(first[1:]); err != nil {
			return err
		}
		line = rest
	}
	for _, v := range of {
		to[v] = line
	}
	return nil
}

func readStep(line string, defs map[string]string) (*step, error) {
	st := &step{line: line, kafka: map[int16]string{}, ottla: map[int16]string{}}
	rest := line
	if strings.HasPrefix(rest, "@") {
		i := strings.IndexAny(rest, "<>")
		if i < 0 {
			return nil, fmt.Errorf("%q is no step", line)
		}
		st.conn, rest = rest[1:i], rest[i:]
	}
	if rest == "<<" {
		st.receive = true
		return st, nil
	}
	rest, st.send = strings.CutPrefix(rest, ">> ")
	if !st.send {
		var ok bool
		if rest, ok = strings.CutPrefix(rest, "> "); !ok {
			return nil, fmt.Errorf("%q is no step", line)
		}
	}
	parts := strings.Split(rest, " | ")
	for _, o := range parts[1:] {
		st.options = append(st.options, strings.TrimSpace(o))
	}
	name, body, _ := strings.Cut(strings.TrimSpace(parts[0]), " ")
	api, version, ok := strings.Cut(name, "/")
	if !ok {
		return nil, fmt.Errorf("%s has no version", name)
	}
	if base, ok := defs[api]; ok {
		first, more, _ := strings.Cut(base, " ")
		api, body = first, more+" "+body
	}
	st.request = api + "/" + version
	n := notation{body}
	all, err := n.fields(0)
	for i, f := range all { // what a step says stands above what its definition says
		if !slices.ContainsFunc(all[i+1:], func(later field) bool { return later.name == f.name }) {
			st.fields = append(st.fields, f)
		}
	}
	return st, err
}

// write gives the file with the answers that the steps have by now.
func (s *script) write() string {
	var b strings.Builder
	line := func(all ...string) {
		for _, l := range all {
			b.WriteString(l + "\n")
		}
	}
	line(s.head...)
	for _, c := range s.cases {
		line(c.lines...)
		if c.min == c.max {
			line(fmt.Sprintf("== %s v%d", c.name, c.min))
		} else {
			line(fmt.Sprintf("== %s v%d-%d", c.name, c.min, c.max))
		}
		for _, st := range c.steps {
			line(st.remarks...)
			line(st.line)
			line(c.answerLines("<", st.kafka)...)
			line(st.reasons...)
			line(c.answerLines("~", st.ottla)...)
		}
	}
	return b.String()
}

// answerLines prints answers, those that are the same together.
func (c *scriptCase) answerLines(mark string, of map[int16]string) (all []string) {
	var done []string
	for v := c.min; v <= c.max; v++ {
		text, ok := of[v]
		if !ok || slices.Contains(done, text) {
			continue
		}
		done = append(done, text)
		var spans []string
		every := true
		for w := c.min; w <= c.max; w++ {
			if is, ok := of[w]; !ok || is != text {
				every = false
				continue
			}
			last := w
			for is, ok := of[last+1]; ok && is == text; is, ok = of[last+1] {
				last++
			}
			if last == w {
				spans = append(spans, strconv.Itoa(int(w)))
			} else {
				spans = append(spans, fmt.Sprintf("%d-%d", w, last))
			}
			w = last
		}
		if !every {
			text = "v" + strings.Join(spans, ",") + " " + text
		}
		all = append(all, strings.TrimRight(mark+" "+text, " "))
	}
	return all
}
