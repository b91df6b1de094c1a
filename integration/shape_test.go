package integration

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ottla/compat"
	"ottla/protocol"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// recording is one request of a real client and the answer of real Kafka to it. They lie in
// protocol/testdata/frames: recorded by a proxy between kcat, Java, franz-go or a broker and
// Kafka 4.4.0 or 3.9.1, in hex with the length prefix, each under a comment that names both.
type recording struct {
	where         string
	client        string
	request       kmsg.Request
	answer        kmsg.Response
	header        protocol.Header
	requestFrame  []byte // both without their length prefix
	responseFrame []byte
}

func recordings(t *testing.T) (all []recording) {
	names, err := filepath.Glob("../protocol/testdata/frames/*.hex")
	if err != nil || len(names) == 0 {
		t.Fatal("no recordings", err)
	}
	for _, name := range names {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sc := bufio.NewScanner(bytes.NewReader(file))
		sc.Buffer(nil, 1<<20)
		var r recording
		var comment string
		for line := 1; sc.Scan(); line++ {
			if strings.HasPrefix(sc.Text(), "#") {
				comment = sc.Text()
				continue
			}
			b, err := hex.DecodeString(sc.Text())
			if err != nil || len(b) < 4 || int(binary.BigEndian.Uint32(b)) != len(b)-4 {
				t.Fatalf("%s:%d: no frame: %v", name, line, err)
			}
			if strings.Contains(comment, ", request ") {
				_, client, _ := strings.Cut(comment, ", client ")
				r = recording{where: fmt.Sprintf("%s:%d", filepath.Base(name), line), client: client, requestFrame: b[4:]}
				var body []byte
				if r.header, body, err = protocol.ParseHeader(r.requestFrame); err != nil {
					t.Fatalf("%s: %v", r.where, err)
				}
				r.request = kmsg.RequestForKey(r.header.Key)
				r.request.SetVersion(r.header.Version)
				if err := r.request.ReadFrom(body); err != nil {
					t.Fatalf("%s: %v", r.where, err)
				}
				continue
			}
			r.responseFrame = b[4:]
			var correlation int32
			if r.answer, correlation, err = decodeAnswer(r.request, r.header.Version, r.responseFrame); err != nil || correlation != r.header.CorrelationID {
				t.Fatalf("%s:%d: answer to %d does not follow its request, %d: %v", name, line, correlation, r.header.CorrelationID, err)
			}
			all = append(all, r)
		}
	}
	return all
}

// notReplayed are requests for which one fresh broker cannot be brought to the recorded state.
func (r *recording) notReplayed() string {
	switch req := r.request.(type) {
	case *kmsg.ProduceRequest:
		if req.TransactionID != nil {
			return "the batch belongs to a transaction of the recorded cluster"
		}
	case *kmsg.FetchRequest:
		if strings.Contains(r.client, "broker") {
			return "a follower fetches, and there is no cluster here"
		}
	case *kmsg.AddPartitionsToTxnRequest, *kmsg.EndTxnRequest, *kmsg.WriteTxnMarkersRequest, *kmsg.DescribeTransactionsRequest, *kmsg.ListTransactionsRequest:
		return "a transaction of the recorded cluster"
	case *kmsg.ListGroupsRequest:
		if len(req.TypesFilter) == 1 && req.TypesFilter[0] == "Share" && compat.ShareGroupHeartbeat.State != compat.Served {
			return "share groups are not served"
		}
	case *kmsg.ConsumerGroupDescribeRequest:
		if r.answer.(*kmsg.ConsumerGroupDescribeResponse).Groups[0].ErrorCode == kerr.UnsupportedVersion.Code {
			return "3.9.1 serves no groups of the consumer protocol"
		}
	case *kmsg.ListConfigResourcesRequest:
		return "a client metrics resource of the recorded cluster"
	}
	return ""
}

// shapeExceptions are differences of an answer's shape that are meant, by API and path.
var shapeExceptions = map[string]string{
	"ApiVersions SupportedFeatures": "Kafka 4.4 has features that are not served here, 3.9.1 with ZooKeeper has none",
	"ApiVersions FinalizedFeatures": "3.9.1 with ZooKeeper has none",
	"DeleteTopics Topics[].TopicID": "3.9.1 answers a deletion by name without the id, 4.4 with it",
}

// TestAnswerShapes replays the recorded requests to a fresh broker that has the topics, records and groups that they
// name, and compares the shape of the answers: what is null, what is absent, which errors, which
// numbers are unknown (-1), which tags.
func TestAnswerShapes(t *testing.T) {
	if os.Getenv(envBootstrap) != "" {
		t.Skip("runs brokers of its own")
	}
	t.Parallel()
	used := map[string]bool{}
	for _, r := range recordings(t) {
		if a, ok := compat.Find(r.header.Key); !ok || a.State != compat.Served {
			continue
		}
		t.Run(r.where, func(t *testing.T) {
			if why := r.notReplayed(); why != "" {
				t.Skip(why)
			}
			got := r.replay(t)
			if code := errorOf(got); loading(errorOf(r.answer)) && (code == 0 || loading(code)) {
				return // the recorded broker had no coordinator so far, this one may; the answer has decoded
			}
			c := comparison{root: got}
			c.compare("", reflect.ValueOf(got).Elem(), reflect.ValueOf(r.answer).Elem())
			for _, d := range c.found {
				key := kmsg.NameForKey(r.header.Key) + " " + d.path
				if shapeExceptions[key] != "" {
					used[key] = true
					continue
				}
				t.Errorf("%s v%d (%s): %s", key, r.header.Version, r.client, d.what)
			}
			if t.Failed() {
				t.Logf("answer %+v\nwant   %+v", got, r.answer)
			}
		})
	}
	for key := range shapeExceptions {
		if !used[key] {
			t.Errorf("%s is listed as an exception and is none", key)
		}
	}
}

// replay asks a fresh broker. What the recorded cluster gave out (topic ids, member ids, sessions) is replaced by
// what this one gives out; all else is sent as recorded, header included.
func (r *recording) replay(t *testing.T) kmsg.Response {
	t.Helper()
	b := embed(t, "", nil, quick...)
	defer func() {
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	}()
	s := stage{wire: dialWire(t, b.addr), r: r, ids: map[[16]byte][16]byte{}, partitions: map[string]int32{}, records: map[string][]int64{}}
	s.set()
	head := r.requestFrame[:len(r.requestFrame)-len(r.request.AppendTo(nil))]
	s.substitute()
	frame := r.request.AppendTo(bytes.Clone(head))
	s.write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	answer, err := s.read(patience)
	if err != nil {
		t.Fatal(err)
	}
	// The header is as recorded but for the tags' absence or presence, which decodeAnswer finds.
	resp, correlation, err := decodeAnswer(r.request, r.header.Version, answer)
	if err != nil {
		t.Fatalf("answer %x: %v", answer, err)
	}
	if correlation != r.header.CorrelationID {
		t.Errorf("correlation id %d, want %d", correlation, r.header.CorrelationID)
	}
	reader := kbin.Reader{Src: answer[4:]}
	if resp.IsFlexible() && resp.Key() != kmsg.ApiVersions.Int16() {
		kmsg.SkipTags(&reader)
	}
	// kmsg reads a null as an empty array where null is not allowed; encoded again it would be empty.
	if again := resp.AppendTo(nil); !bytes.Equal(again, reader.Src) {
		t.Errorf("answer\n%x, encoded again\n%x", reader.Src, again)
	}
	return resp
}

// comparison walks two answers of one type.
type comparison struct {
	root  kmsg.Response // ours
	found []difference
}

type difference struct{ path, what string }

func (c *comparison) differ(path, format string, args ...any) {
	c.found = append(c.found, difference{strings.TrimPrefix(path, "."), fmt.Sprintf(format, args...)})
}

func (c *comparison) compare(path string, got, want reflect.Value) {
	switch got.Kind() {
	case reflect.Struct:
		if tags, ok := got.Interface().(kmsg.Tags); ok {
			if wantTags := want.Interface().(kmsg.Tags); tags.Len() != wantTags.Len() {
				c.differ(path, "%d unknown tags, want %d", tags.Len(), wantTags.Len())
			}
			return
		}
		for i := range got.NumField() {
			if name := got.Type().Field(i).Name; name != "Version" {
				c.compare(path+"."+name, got.Field(i), want.Field(i))
			}
		}
	case reflect.Pointer:
		if got.IsNil() != want.IsNil() {
			c.differ(path, "null: %v, want %v", got.IsNil(), want.IsNil())
		} else if !got.IsNil() {
			c.compare(path, got.Elem(), want.Elem())
		}
	case reflect.Slice:
		c.compareSlices(path, got, want)
	case reflect.String:
		if (got.Len() == 0) != (want.Len() == 0) {
			c.differ(path, "%q, want one like %q", got.String(), want.String())
		}
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		g, w := got.Int(), want.Int()
		exact := strings.HasSuffix(path, "ErrorCode") || strings.HasSuffix(path, "AuthorizedOperations") || strings.HasSuffix(path, "ThrottleMillis")
		if exact && g != w || cmp.Compare(g, 0) < 0 != (cmp.Compare(w, 0) < 0) {
			c.differ(path, "%d, want %s%d", g, map[bool]string{false: "one like "}[exact], w)
		}
	case reflect.Bool:
		if got.Bool() != want.Bool() {
			c.differ(path, "%v, want %v", got.Bool(), want.Bool())
		}
	case reflect.Array, reflect.Float64:
		if got.IsZero() != want.IsZero() {
			c.differ(path, "%v, want one like %v", got.Interface(), want.Interface())
		}
	default:
		c.differ(path, "a %v is not compared", got.Kind())
	}
}

// compareSlices compares what is null or empty, and each of our elements with the recorded one in its place (the last
// one where the recorded answer has fewer), by name where elements have one.
func (c *comparison) compareSlices(path string, got, want reflect.Value) {
	if got.IsNil() != want.IsNil() && c.nullable(got) {
		c.differ(path, "null: %v, want %v", got.IsNil(), want.IsNil())
		return
	}
	if (got.Len() == 0) != (want.Len() == 0) {
		c.differ(path, "%d elements, want as in %d", got.Len(), want.Len())
		return
	}
	if got.Type().Elem().Kind() == reflect.Uint8 {
		return
	}
	for i := range got.Len() {
		w := want.Index(min(i, want.Len()-1))
		if name := elementName(got.Index(i)); name != "" {
			for j := range want.Len() {
				if elementName(want.Index(j)) == name {
					w = want.Index(j)
				}
			}
			if elementName(w) != name {
				continue // of which the recording says nothing
			}
		}
		c.compare(path+"[]", got.Index(i), w)
	}
}

// elementName is what an element of an answer is known by; empty: by its place.
func elementName(v reflect.Value) string {
	if v.Kind() != reflect.Struct {
		return ""
	}
	for _, name := range []string{"Name", "Topic", "Partition", "ApiKey", "Group"} {
		f := v.FieldByName(name)
		if f.IsValid() && f.Kind() == reflect.Pointer {
			f = f.Elem()
		}
		if f.IsValid() && !(f.Kind() == reflect.String && f.Len() == 0) {
			return fmt.Sprint(f.Interface())
		}
	}
	return ""
}

// nullable says whether the version of our answer tells a null in this place from an empty array.
func (c *comparison) nullable(v reflect.Value) bool {
	keep := reflect.New(v.Type()).Elem()
	keep.Set(v)
	defer v.Set(keep)
	v.SetZero()
	null := c.root.AppendTo(nil)
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	return !bytes.Equal(null, c.root.AppendTo(nil))
}
