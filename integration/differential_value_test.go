package integration

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Requests and answers are written as kmsg's fields:
//
//	Group=$g MemberID="" Topics=[{Topic=t1 Partitions=[0 1]}] InstanceID=null Records=batch($p1,0,0,1,txn)
//
// What is not named has kmsg's default, and what has it is not printed. Strings may hold variables. Bytes are text,
// 0x and hex digits, or one of the functions of bytesOf; topic ids are id:NAME, id:zero and id:none (no such topic).

// node is a parsed value: a word, a list, or named fields.
type node struct {
	kind   byte // 'w', '[' or '{'
	word   string
	list   []node
	fields []field
}

type field struct {
	name  string
	value node
}

// notation reads values off a line.
type notation struct{ rest string }

func (n *notation) skip() { n.rest = strings.TrimLeft(n.rest, " ") }

// fields reads NAME=value … up to end: '}', or 0 for the line's end.
func (n *notation) fields(end byte) (all []field, err error) {
	for {
		n.skip()
		if n.rest == "" {
			if end != 0 {
				return nil, fmt.Errorf("no %c", end)
			}
			return all, nil
		}
		if n.rest[0] == end {
			n.rest = n.rest[1:]
			return all, nil
		}
		name, rest, ok := strings.Cut(n.rest, "=")
		if !ok {
			return nil, fmt.Errorf("no = in %q", n.rest)
		}
		n.rest = rest
		v, err := n.value()
		if err != nil {
			return nil, err
		}
		all = append(all, field{name, v})
	}
}

func (n *notation) value() (node, error) {
	n.skip()
	switch {
	case strings.HasPrefix(n.rest, "{"):
		n.rest = n.rest[1:]
		fs, err := n.fields('}')
		return node{kind: '{', fields: fs}, err
	case strings.HasPrefix(n.rest, "["):
		n.rest = n.rest[1:]
		out := node{kind: '['}
		for {
			if n.skip(); n.rest == "" {
				return out, fmt.Errorf("no ]")
			}
			if n.rest[0] == ']' {
				n.rest = n.rest[1:]
				return out, nil
			}
			v, err := n.value()
			if err != nil {
				return out, err
			}
			out.list = append(out.list, v)
		}
	case strings.HasPrefix(n.rest, `"`):
		q, err := strconv.QuotedPrefix(n.rest)
		if err != nil {
			return node{}, fmt.Errorf("%q: %w", n.rest, err)
		}
		n.rest = n.rest[len(q):]
		s, err := strconv.Unquote(q)
		return node{kind: 'w', word: s}, err
	}
	i := strings.IndexAny(n.rest, " ]}")
	if i < 0 {
		i = len(n.rest)
	}
	w := n.rest[:i]
	n.rest = n.rest[i:]
	return node{kind: 'w', word: w}, nil
}

// names are what stands for values that differ from run to run, both ways.
type names struct {
	vars   map[string]string   // of a name without $: its value
	text   []string            // pairs of a value in answers and what is printed, longest values first
	topics map[string][16]byte // ids
	seen   map[string]int      // how many were met of a kind of values: m for members, p for producers
}

var unknownTopicID = [16]byte{0xd1, 0xff, 15: 1}

// set makes a variable.
func (v *names) set(name, value string) {
	v.vars[name] = value
	v.text = append(v.text, value, "$"+name)
}

// of finds the name of a value that was met.
func (v *names) of(kind, value string) (name string, ok bool) {
	for name, is := range v.vars {
		if is == value && strings.HasPrefix(name, kind) {
			return name, true
		}
	}
	return "", false
}

func (v *names) has(kind, value string) bool {
	_, ok := v.of(kind, value)
	return ok
}

// met gives the name of a value that the broker chose, a new one the first time.
func (v *names) met(kind, value string) string {
	if name, ok := v.of(kind, value); ok {
		return "$" + name
	}
	v.seen[kind]++
	name := kind + strconv.Itoa(v.seen[kind])
	v.vars[name] = value
	if kind == "m" {
		v.text = append(v.text, value, "$"+name)
	}
	return "$" + name
}

var (
	variable = regexp.MustCompile(`\$[a-z]+[0-9]*`)
	repeated = regexp.MustCompile(`rep\((.),([0-9]+)\)`)
)

// expand puts in the values of variables, and of rep(x,N): N times x.
func (v *names) expand(s string) (string, error) {
	var err error
	s = repeated.ReplaceAllStringFunc(s, func(m string) string {
		parts := repeated.FindStringSubmatch(m)
		n, _ := strconv.Atoi(parts[2])
		return strings.Repeat(parts[1], n)
	})
	s = variable.ReplaceAllStringFunc(s, func(m string) string {
		is, ok := v.vars[m[1:]]
		if !ok {
			err = fmt.Errorf("no variable %s", m)
		}
		return is
	})
	return s, err
}

// shorten is the way back of expand.
func (v *names) shorten(s string) string {
	type pair struct{ value, name string }
	var all []pair
	for i := 0; i < len(v.text); i += 2 {
		all = append(all, pair{v.text[i], v.text[i+1]})
	}
	slices.SortStableFunc(all, func(a, b pair) int { return len(b.value) - len(a.value) })
	for _, p := range all {
		s = strings.ReplaceAll(s, p.value, p.name)
	}
	for i := 0; i < len(s); i++ {
		n := 1
		for i+n < len(s) && s[i+n] == s[i] {
			n++
		}
		if n >= 40 {
			s = s[:i] + fmt.Sprintf("rep(%c,%d)", s[i], n) + s[i+n:]
		}
	}
	return s
}

// fill sets the fields of a struct of kmsg's.
func (v *names) fill(to reflect.Value, fs []field) error {
	for _, f := range fs {
		at := to.FieldByName(f.name)
		if !at.IsValid() {
			return fmt.Errorf("%s has no field %s", to.Type(), f.name)
		}
		if err := v.put(at, f.value); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

func (v *names) put(at reflect.Value, n node) error {
	if n.kind == 'w' && n.word == "null" && (at.Kind() == reflect.Pointer || at.Kind() == reflect.Slice) {
		at.SetZero()
		return nil
	}
	switch at.Kind() {
	case reflect.Pointer:
		p := reflect.New(at.Type().Elem())
		withDefaults(p)
		if err := v.put(p.Elem(), n); err != nil {
			return err
		}
		at.Set(p)
		return nil
	case reflect.Struct:
		return v.fill(at, n.fields)
	case reflect.Slice:
		if at.Type().Elem().Kind() == reflect.Uint8 {
			b, err := v.bytesOf(n.word)
			at.SetBytes(b)
			return err
		}
		s := reflect.MakeSlice(at.Type(), len(n.list), len(n.list))
		for i := range n.list {
			withDefaults(s.Index(i).Addr())
			if err := v.put(s.Index(i), n.list[i]); err != nil {
				return err
			}
		}
		at.Set(s)
		return nil
	case reflect.Array:
		id, err := v.topicID(n.word)
		at.Set(reflect.ValueOf(id).Convert(at.Type()))
		return err
	}
	word, err := v.expand(n.word)
	if err != nil {
		return err
	}
	switch at.Kind() {
	case reflect.String:
		at.SetString(word)
	case reflect.Bool:
		at.SetBool(word == "true")
	default:
		i, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return err
		}
		if at.OverflowInt(i) {
			return fmt.Errorf("%d is too large", i)
		}
		at.SetInt(i)
	}
	return nil
}

// withDefaults gives what a pointer points to kmsg's defaults, if it is a struct.
func withDefaults(p reflect.Value) {
	if d, ok := p.Interface().(interface{ Default() }); ok {
		d.Default()
	}
}

func (v *names) topicID(word string) (id [16]byte, err error) {
	switch name, ok := strings.CutPrefix(word, "id:"); {
	case !ok:
		return id, fmt.Errorf("%q is no topic id", word)
	case name == "zero":
		return id, nil
	case name == "none":
		return unknownTopicID, nil
	default:
		if id, ok = v.topics[name]; !ok {
			return id, fmt.Errorf("no topic %s", name)
		}
		return id, nil
	}
}

// bytesOf makes bytes: 0x…; sub(TOPIC,…), a consumer's subscription; batch(PRODUCER,EPOCH,SEQUENCE,RECORDS) and, with
// ",txn", one of a transaction; else the text.
func (v *names) bytesOf(word string) ([]byte, error) {
	word, err := v.expand(word)
	if err != nil {
		return nil, err
	}
	if digits, ok := strings.CutPrefix(word, "0x"); ok {
		return hex.DecodeString(digits)
	}
	call, args, ok := strings.Cut(strings.TrimSuffix(word, ")"), "(")
	if !ok {
		return []byte(word), nil
	}
	list := strings.Split(args, ",")
	switch call {
	case "sub":
		m := kmsg.NewConsumerMemberMetadata()
		m.Topics = list
		return m.AppendTo(nil), nil
	case "batch":
		var n [4]int
		for i := range n {
			if n[i], err = strconv.Atoi(list[i]); err != nil {
				return nil, err
			}
		}
		return newBatch(func(b *kmsg.RecordBatch) {
			b.ProducerID, b.ProducerEpoch, b.FirstSequence = int64(n[0]), int16(n[1]), int32(n[2])
			if slices.Contains(list, "txn") {
				b.Attributes |= 1 << 4
			}
		}, values(slices.Repeat([]string{"v"}, n[3])...)...), nil
	}
	return nil, fmt.Errorf("no function %s", call)
}

// newMember recognises the ids that brokers make for members.
var newMember = regexp.MustCompile(`-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$|^[A-Za-z0-9_-]{22}$`)

// notCompared are fields of no interest here.
var notCompared = map[string]bool{"Version": true, "UnknownTags": true, "ThrottleMillis": true, "LogStartOffset": true}

// show prints the fields of an answer that have not their default. Times, offsets of records, the broker's address, the throttle time and where
// a log starts are not compared, nor is Produce's error message, which says more on purpose (compat/differences.md).
func (v *names) show(of reflect.Value) string {
	plain := reflect.New(of.Type())
	withDefaults(plain)
	_, produced := of.Interface().(kmsg.ProduceResponseTopicPartition)
	var out []string
	for i := range of.NumField() {
		name, at := of.Type().Field(i).Name, of.Field(i)
		if (name == "BaseOffset" || name == "CurrentTxnStartOffset") && at.Int() >= 0 {
			out = append(out, name+"=*")
			continue
		}
		if notCompared[name] || produced && name == "ErrorMessage" || reflect.DeepEqual(at.Interface(), plain.Elem().Field(i).Interface()) {
			continue
		}
		text := v.showValue(name, at)
		switch name {
		case "Host", "Port", "NodeID":
			text = "*"
		case "StartTimestamp", "LastTimestamp", "LogAppendTime":
			if at.Int() > 0 {
				text = "*"
			}
		}
		out = append(out, name+"="+text)
	}
	return strings.Join(out, " ")
}

func (v *names) showValue(name string, at reflect.Value) string {
	switch at.Kind() {
	case reflect.Pointer:
		if at.IsNil() {
			return "null"
		}
		return v.showValue(name, at.Elem())
	case reflect.Struct:
		return "{" + v.show(at) + "}"
	case reflect.Slice:
		if at.IsNil() {
			return "null"
		}
		if at.Type().Elem().Kind() == reflect.Uint8 {
			return v.showBytes(at.Bytes())
		}
		all := make([]string, at.Len())
		for i := range all {
			all[i] = v.showValue(name, at.Index(i))
		}
		return "[" + strings.Join(all, " ") + "]"
	case reflect.Array:
		id := at.Convert(reflect.TypeFor[[16]byte]()).Interface().([16]byte)
		for name, is := range v.topics {
			if is == id {
				return "id:" + name
			}
		}
		switch id {
		case [16]byte{}:
			return "id:zero"
		case unknownTopicID:
			return "id:none"
		}
		return fmt.Sprintf("id:%x", id)
	case reflect.Bool:
		return strconv.FormatBool(at.Bool())
	case reflect.String:
		s := at.String()
		if (name == "MemberID" || name == "LeaderID") && newMember.MatchString(s) {
			return v.met("m", s)
		}
		return word(v.shorten(s))
	}
	switch i := at.Int(); {
	case name == "ErrorCode":
		if k := kerr.TypedErrorForCode(int16(i)); k != nil {
			return k.Message
		}
		return strconv.FormatInt(i, 10)
	case name == "ProducerID" && i >= 0 && i < 1<<32:
		return v.met("p", strconv.FormatInt(i, 10))
	default:
		return strconv.FormatInt(i, 10)
	}
}

func (v *names) showBytes(b []byte) string {
	s := string(b)
	if slices.ContainsFunc(b, func(c byte) bool { return c < ' ' || c > '~' }) {
		return "0x" + hex.EncodeToString(b)
	}
	return word(v.shorten(s))
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_$.:*/(),-]+$`)

func word(s string) string {
	if plainWord.MatchString(s) && s != "null" {
		return s
	}
	return strconv.Quote(s)
}
