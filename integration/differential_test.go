package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// differentialSettings are those of both brokers that differ from the defaults.
var differentialSettings = []string{
	"offsets.topic.num.partitions=1",
	"transaction.state.log.num.partitions=1",
	"group.initial.rebalance.delay.ms=0",
	"auto.create.topics.enable=false",
	"group.max.size=3",
	"group.consumer.max.size=3",
}

// differentialTopics are there before a script begins, with so many partitions.
var differentialTopics = map[string]int32{"t1": 3, "t2": 1}

// TestDifferential sends the scripts' requests to ottla and compares the answers with those of Kafka 4.4.0 that the
// files have.
func TestDifferential(t *testing.T) {
	eachScript(t, func(t *testing.T, file string, s *script) {
		e := embed(t, "", nil, differentialSettings...)
		defer e.stop()
		p := &play{TB: t, addr: e.addr, area: filepath.Base(file)}
		p.prepare()
		if raw, err := os.ReadFile(file); err != nil || s.write() != string(raw) {
			t.Errorf("the file is not as it would be written (%v)", err)
		}
		for _, c := range s.cases {
			got := p.run(c)
			for i, st := range c.steps {
				compareStep(t, c, st, got[i])
			}
		}
	})
}

// eachScript runs a test with each of the scripts.
func eachScript(t *testing.T, run func(t *testing.T, file string, s *script)) {
	files, err := filepath.Glob("testdata/differential/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s, err := readScript(file)
			if err != nil {
				t.Fatal(err)
			}
			run(t, file, s)
		})
	}
}

// compareStep reports what ottla answers otherwise than the file says, once for all versions with the same answers.
func compareStep(t *testing.T, c *scriptCase, st *step, got map[int16]string) {
	t.Helper()
	type pair struct{ got, want string }
	var differ []pair
	of := map[pair][]int16{}
	for v := c.min; v <= c.max; v++ {
		want, there := st.ottla[v]
		if there && want == st.kafka[v] {
			t.Errorf("%s v%d: %s\nthe difference is none", c.name, v, st.line)
		}
		if !there {
			want, there = st.kafka[v]
		}
		if !there && !st.send {
			want = "nothing was recorded"
		}
		if p := (pair{got[v], want}); p.got != p.want {
			if len(of[p]) == 0 {
				differ = append(differ, p)
			}
			of[p] = append(of[p], v)
		}
	}
	for _, p := range differ {
		t.Errorf("%s %v: %s\nottla: %s\nwant:  %s", c.name, of[p], st.line, p.got, p.want)
	}
}

// unansweredAfter is how long Kafka gets for what it never answers.
const unansweredAfter = 2 * time.Second

// play runs the cases of a script against one broker.
type play struct {
	testing.TB
	addr   string
	area   string
	topics map[string][16]byte
	count  int
}

// prepare makes the topics and waits until both coordinators serve.
func (p *play) prepare() {
	p.Helper()
	w := dialWire(p, p.addr)
	defer w.nc.Close()
	var all []string
	for topic, n := range differentialTopics {
		w.createTopic(topic, n, 1, false, 6)
		all = append(all, topic)
	}
	eventually(p, "the topics are there", patience, func() bool {
		p.topics = map[string][16]byte{}
		m := w.metadata(all...)
		for _, t := range m.Topics {
			if t.ErrorCode != 0 || len(t.Partitions) != int(differentialTopics[*t.Topic]) {
				return false
			}
			p.topics[*t.Topic] = t.TopicID
		}
		return true
	})
	eventually(p, "the coordinators serve", 3*patience, func() bool {
		f := kmsg.NewPtrOffsetFetchRequest()
		f.Group, f.Topics = "warm", []kmsg.OffsetFetchRequestTopic{}
		i := kmsg.NewPtrInitProducerIDRequest()
		i.TransactionalID, i.TransactionTimeoutMillis = kmsg.StringPtr("warm"), 60000
		for kind := range int8(2) {
			r := kmsg.NewPtrFindCoordinatorRequest()
			r.CoordinatorKey, r.CoordinatorType = "warm", kind
			if ask[*kmsg.FindCoordinatorResponse](w, r, 3).ErrorCode != 0 {
				return false
			}
		}
		return ask[*kmsg.OffsetFetchResponse](w, f, 7).ErrorCode == 0 && ask[*kmsg.InitProducerIDResponse](w, i, 4).ErrorCode == 0
	})
}

// run gives the answers of a case: of each step, by version.
func (p *play) run(c *scriptCase) []map[int16]string {
	p.Helper()
	p.count++
	all := make([]map[int16]string, len(c.steps))
	for i := range all {
		all[i] = map[int16]string{}
	}
	for v := c.min; v <= c.max; v++ {
		r := &caseRun{play: p, version: v, conns: map[string]*wire{}}
		r.names = names{vars: map[string]string{}, topics: p.topics, seen: map[string]int{}}
		for _, n := range []string{"", "2", "3", "4", "5", "6"} {
			r.names.set("g"+n, fmt.Sprintf("group-%s-%d-%d%s", p.area, p.count, v, n))
			r.names.set("t"+n, fmt.Sprintf("txn-%s-%d-%d%s", p.area, p.count, v, n))
		}
		for i, st := range c.steps {
			text, err := r.step(st)
			if err != nil {
				p.Fatalf("%s v%d: %s\n%v", c.name, v, st.line, err)
			}
			if !st.send {
				all[i][v] = text
			}
		}
		for _, w := range r.conns {
			w.nc.Close()
		}
	}
	return all
}

// caseRun is a case in one version.
type caseRun struct {
	*play
	version int16
	names   names
	conns   map[string]*wire
}

func (r *caseRun) step(st *step) (string, error) {
	w := r.conns[st.conn]
	if w == nil {
		w = dialWire(r, r.addr)
		r.conns[st.conn] = w
	}
	if st.receive {
		return r.receive(st, w)
	}
	req, version, err := r.request(st)
	if err != nil {
		return "", err
	}
	deadline := time.Now().Add(patience)
	for tick := time.Tick(2 * time.Millisecond); ; <-tick {
		w.Helper()
		w.write(r.frame(w, req, version))
		w.sent = append(w.sent, sentRequest{req, version, w.correlation})
		if st.send {
			return "", nil
		}
		text, err := r.receive(st, w)
		i := slices.IndexFunc(st.options, func(o string) bool { return strings.HasPrefix(o, "until ") })
		if err != nil || i < 0 || strings.Contains(text, strings.TrimPrefix(st.options[i], "until ")) {
			return text, err
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("%s did not come; the last was %s", st.options[i], text)
		}
	}
}

// frame encodes a request. All of a script's come from one client.
func (r *caseRun) frame(w *wire, req kmsg.Request, version int16) []byte {
	w.correlation++
	req.SetVersion(version)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("client")).AppendRequest(nil, req, w.correlation)
}

func (r *caseRun) request(st *step) (kmsg.Request, int16, error) {
	name, at, _ := strings.Cut(st.request, "/")
	version := r.version
	if at != "v" {
		if _, err := fmt.Sscan(at, &version); err != nil {
			return nil, 0, err
		}
	}
	for key := range int16(100) {
		if !strings.EqualFold(kmsg.NameForKey(key), name) {
			continue
		}
		req := kmsg.RequestForKey(key)
		withDefaults(reflect.ValueOf(req))
		return req, version, r.names.fill(reflect.ValueOf(req).Elem(), st.fields)
	}
	return nil, 0, fmt.Errorf("no request %s", name)
}

// receive takes the answer to the oldest request of a connection and prints it. A broker may close the connection
// instead.
func (r *caseRun) receive(st *step, w *wire) (string, error) {
	s := w.sent[0]
	w.sent = w.sent[1:]
	limit := patience
	unanswered := slices.Contains(st.options, "unanswered")
	if unanswered {
		limit = unansweredAfter
	}
	b, err := w.read(limit)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		w.nc.Close()
		delete(r.conns, st.conn)
		return "closed", nil
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		if unanswered {
			w.nc.Close()
			delete(r.conns, st.conn)
			return "no answer", nil
		}
		return "", errors.New("no answer")
	}
	if err != nil {
		return "", err
	}
	resp, correlation, err := decodeAnswer(s.req, s.version, b)
	if err != nil || correlation != s.correlation {
		return "", fmt.Errorf("answer %x: %v", b, err)
	}
	to := reflect.ValueOf(resp).Elem()
	if slices.Contains(st.options, "mine") {
		r.mine(to)
	}
	r.sort(to, slices.Contains(st.options, "sorted"))
	return r.names.show(to), nil
}

// mine leaves in an answer's lists what names the case's groups, transactional ids and producers.
func (r *caseRun) mine(of reflect.Value) {
	if resp, ok := of.Addr().Interface().(*kmsg.DescribeProducersResponse); ok {
		for _, t := range resp.Topics {
			for j := range t.Partitions {
				all := &t.Partitions[j].ActiveProducers
				*all = slices.DeleteFunc(*all, func(p kmsg.DescribeProducersResponseTopicPartitionActiveProducer) bool {
					return !r.names.has("p", strconv.FormatInt(p.ProducerID, 10))
				})
			}
		}
		return
	}
	for i := range of.NumField() {
		if at := of.Field(i); at.Kind() == reflect.Slice && at.Type().Elem().Kind() == reflect.Struct {
			left := reflect.Zero(at.Type())
			for j := range at.Len() {
				if r.isMine(at.Index(j)) {
					left = reflect.Append(left, at.Index(j))
				}
			}
			at.Set(left)
		}
	}
	r.sort(of, true)
}

func (r *caseRun) isMine(item reflect.Value) bool {
	for _, name := range []string{"Group", "TransactionalID"} {
		if f := item.FieldByName(name); f.IsValid() && (r.names.has("g", f.String()) || r.names.has("t", f.String())) {
			return true
		}
	}
	return false
}

// sort brings the lists of an answer into the order of their text: those of members and of topics by their ids, which
// Kafka answers in the order of a hash table by ids that are random, or all.
func (r *caseRun) sort(of reflect.Value, all bool) {
	for i := range of.NumField() {
		at := of.Field(i)
		if !at.CanInterface() {
			continue
		}
		if at.Kind() == reflect.Pointer && !at.IsNil() {
			at = at.Elem()
		}
		if at.Kind() == reflect.Struct {
			r.sort(at, all)
		}
		if numbers, ok := at.Interface().([]int32); ok && all {
			slices.Sort(numbers)
		}
		if at.Kind() != reflect.Slice || at.Type().Elem().Kind() != reflect.Struct {
			continue
		}
		type keyed struct {
			text string
			is   reflect.Value
		}
		var items []keyed
		for j := range at.Len() {
			r.sort(at.Index(j), all)
			items = append(items, keyed{r.names.show(at.Index(j)), at.Index(j)})
		}
		switch at.Interface().(type) {
		case []kmsg.JoinGroupResponseMember, []kmsg.DescribeGroupsResponseGroupMember, []kmsg.ConsumerGroupDescribeResponseGroupMember,
			[]kmsg.AssignmentTopicPartition, []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic:
		default:
			if !all {
				continue
			}
		}
		slices.SortStableFunc(items, func(a, b keyed) int { return strings.Compare(a.text, b.text) })
		out := reflect.MakeSlice(at.Type(), 0, at.Len())
		for _, item := range items {
			out = reflect.Append(out, item.is)
		}
		at.Set(out)
	}
}
