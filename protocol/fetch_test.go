package protocol

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// memoryRange is a range of no file.
type memoryRange struct {
	b        []byte
	released *int
}

func (m memoryRange) Fd() (uintptr, int64, bool) { return 0, 0, false }
func (m memoryRange) Len() int64                 { return int64(len(m.b)) }
func (m memoryRange) Release()                   { *m.released++ }
func (m memoryRange) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, m.b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// TestEncodeFetchIsKmsg: in every version the answer with holes has the bytes that kmsg would
// write if it had the records.
func TestEncodeFetchIsKmsg(t *testing.T) {
	for version := int16(0); version <= 18; version++ {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, uint64(version)))
			for range 300 {
				resp := kmsg.NewPtrFetchResponse()
				fill(r, reflect.ValueOf(resp).Elem(), 0)
				var holes []Range
				released, count := 0, 0
				whole := *resp
				whole.Topics = append([]kmsg.FetchResponseTopic(nil), resp.Topics...)
				for i := range resp.Topics {
					ps := append([]kmsg.FetchResponseTopicPartition(nil), resp.Topics[i].Partitions...)
					whole.Topics[i].Partitions = ps
					for j := range ps {
						if r.IntN(4) == 0 {
							ps[j].RecordBatches = bytes.Repeat([]byte("r"), r.IntN(3*inlineRecords))
							resp.Topics[i].Partitions[j].RecordBatches = ps[j].RecordBatches
						}
						if ps[j].RecordBatches == nil {
							ps[j].RecordBatches = []byte{} // never null
						}
						var hole Range
						if r.IntN(2) == 0 {
							count++
							ps[j].RecordBatches = randomBytes(r, 9000)
							hole = memoryRange{ps[j].RecordBatches, &released}
						}
						holes = append(holes, hole)
					}
				}
				h := Header{Key: 1, Version: version, CorrelationID: int32(r.Uint32()), Flexible: version >= 12}
				want := EncodeResponse(h, &whole)
				got := EncodeFetch(h, resp, holes)
				if g, w := flatten(got), flatten(want); !bytes.Equal(g, w) {
					t.Fatalf("got %d bytes, want %d\n%.200x\n%.200x", len(g), len(w), g, w)
				}
				want.Release()
				if released != 0 {
					t.Fatal("a hole was released before the answer")
				}
				if got.Release(); released != count {
					t.Fatalf("%d holes released of %d", released, count)
				}
			}
		})
	}
}

func TestEncodeFetchHasNoNullRecords(t *testing.T) {
	resp := kmsg.NewPtrFetchResponse()
	topic := kmsg.NewFetchResponseTopic()
	topic.Partitions = append(topic.Partitions, kmsg.NewFetchResponseTopicPartition())
	resp.Topics = append(resp.Topics, topic)
	for version := int16(0); version <= 18; version++ {
		a := EncodeFetch(Header{Key: 1, Version: version, Flexible: version >= 12}, resp, nil)
		back := kmsg.NewPtrFetchResponse()
		back.Version = version
		skip := 8
		if version >= 12 {
			skip++
		}
		if err := back.ReadFrom(flatten(a)[skip:]); err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if b := back.Topics[0].Partitions[0].RecordBatches; b == nil || len(b) != 0 {
			t.Errorf("version %d: records are %v", version, b)
		}
		a.Release()
	}
}

func BenchmarkEncodeFetch(b *testing.B) {
	resp := kmsg.NewPtrFetchResponse()
	topic := kmsg.NewFetchResponseTopic()
	topic.Partitions = append(topic.Partitions, kmsg.NewFetchResponseTopicPartition())
	resp.Topics = append(resp.Topics, topic)
	n := 0
	holes := []Range{memoryRange{make([]byte, 1<<20), &n}}
	for b.Loop() {
		EncodeFetch(Header{Key: 1, Version: 17, Flexible: true}, resp, holes).Release()
	}
}
