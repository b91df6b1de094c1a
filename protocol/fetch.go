package protocol

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// inlineRecords is the size up to which records given as bytes are copied in between the other
// fields instead of becoming a part of their own.
const inlineRecords = 4 << 10

// EncodeFetch encodes a Fetch answer of any version from 0 to 18, as EncodeResponse would, but
// with holes for the records: the i-th partition of the answer (counted over all its topics)
// has the records holes[i], and where that is nil or missing its RecordBatches. So records are
// not copied into the answer; the connection sends them from the file.
//
// Records are never null: Kafka answers an empty or failed partition with length 0, and Java
// clients end on a null. The answer releases the holes with itself.
func EncodeFetch(h Header, resp *kmsg.FetchResponse, holes []Range) *Answer {
	e := newEncoded()
	e.holes = append(e.holes[:0], holes...)
	e.Parts = e.Parts[:0]
	f := fetchEncoder{e: e, buf: append(e.buf[:0], 0, 0, 0, 0), version: h.Version, flex: h.Version >= 12}
	f.buf = appendResponseHeader(f.buf, h)
	f.response(resp, holes)
	e.buf = f.buf

	// The buffer does not move any more: cut it at the holes.
	rest, at, size := f.buf, 0, len(f.buf)
	for i := range e.Parts {
		p := &e.Parts[i]
		switch {
		case p.Range != nil:
			size += int(p.Range.Len())
		case p.Bytes != nil:
			size += len(p.Bytes)
		default: // the next run of fields
			n := f.cuts[at] - (len(f.buf) - len(rest))
			p.Bytes, rest = rest[:n:n], rest[n:]
			at++
		}
	}
	if len(rest) > 0 {
		e.Parts = append(e.Parts, Part{Bytes: rest})
	}
	binary.BigEndian.PutUint32(f.buf, uint32(size-4))
	return &e.Answer
}

// fetchEncoder appends fields to buf and notes in cuts where a hole begins; Parts meanwhile
// has an empty part for each run of fields before a hole.
type fetchEncoder struct {
	e       *encoded
	buf     []byte
	cuts    []int
	version int16
	flex    bool
}

func (f *fetchEncoder) response(r *kmsg.FetchResponse, holes []Range) {
	if f.version >= 1 {
		f.int32(r.ThrottleMillis)
	}
	if f.version >= 7 {
		f.int16(r.ErrorCode)
		f.int32(r.SessionID)
	}
	f.length32(len(r.Topics))
	n := 0
	for i := range r.Topics {
		t := &r.Topics[i]
		if f.version < 13 {
			f.string(t.Topic)
		} else {
			f.buf = append(f.buf, t.TopicID[:]...)
		}
		f.length32(len(t.Partitions))
		for j := range t.Partitions {
			var hole Range
			if n < len(holes) {
				hole = holes[n]
			}
			n++
			f.partition(&t.Partitions[j], hole)
		}
		f.tags(&t.UnknownTags)
	}
	if !f.flex {
		return
	}
	if len(r.Brokers) == 0 {
		f.tags(&r.UnknownTags)
		return
	}
	f.uvarint(uint32(1 + r.UnknownTags.Len()))
	f.brokers(r.Brokers)
	f.buf = r.UnknownTags.AppendEach(f.buf)
}

func (f *fetchEncoder) partition(p *kmsg.FetchResponseTopicPartition, hole Range) {
	f.int32(p.Partition)
	f.int16(p.ErrorCode)
	f.int64(p.HighWatermark)
	if f.version >= 4 {
		f.int64(p.LastStableOffset)
	}
	if f.version >= 5 {
		f.int64(p.LogStartOffset)
	}
	if f.version >= 4 {
		if p.AbortedTransactions == nil {
			f.length32(-1)
		} else {
			f.length32(len(p.AbortedTransactions))
		}
		for i := range p.AbortedTransactions {
			a := &p.AbortedTransactions[i]
			f.int64(a.ProducerID)
			f.int64(a.FirstOffset)
			f.tags(&a.UnknownTags)
		}
	}
	if f.version >= 11 {
		f.int32(p.PreferredReadReplica)
	}
	f.records(p.RecordBatches, hole)
	if f.flex {
		f.partitionTags(p)
	}
}

func (f *fetchEncoder) records(b []byte, hole Range) {
	if hole != nil {
		n := hole.Len()
		f.length32(int(n))
		if n > 0 {
			f.cut(Part{Range: hole})
		}
		return
	}
	f.length32(len(b))
	if len(b) > inlineRecords {
		f.cut(Part{Bytes: b})
		return
	}
	f.buf = append(f.buf, b...)
}

func (f *fetchEncoder) cut(p Part) {
	f.cuts = append(f.cuts, len(f.buf))
	f.e.Parts = append(f.e.Parts, Part{}, p)
}

// partitionTags appends the tagged fields of a partition: 0 DivergingEpoch, 1 CurrentLeader,
// 2 SnapshotId, each only where it differs from its default of -1.
func (f *fetchEncoder) partitionTags(p *kmsg.FetchResponseTopicPartition) {
	d, l, s := &p.DivergingEpoch, &p.CurrentLeader, &p.SnapshotID
	hasD := d.Epoch != -1 || d.EndOffset != -1 || d.UnknownTags.Len() > 0
	hasL := l.LeaderID != -1 || l.LeaderEpoch != -1 || l.UnknownTags.Len() > 0
	hasS := s.EndOffset != -1 || s.Epoch != -1 || s.UnknownTags.Len() > 0
	n := p.UnknownTags.Len()
	for _, has := range [...]bool{hasD, hasL, hasS} {
		if has {
			n++
		}
	}
	f.uvarint(uint32(n))
	if hasD {
		f.tag(0, 12, &d.UnknownTags)
		f.int32(d.Epoch)
		f.int64(d.EndOffset)
		f.tags(&d.UnknownTags)
	}
	if hasL {
		f.tag(1, 8, &l.UnknownTags)
		f.int32(l.LeaderID)
		f.int32(l.LeaderEpoch)
		f.tags(&l.UnknownTags)
	}
	if hasS {
		f.tag(2, 12, &s.UnknownTags)
		f.int64(s.EndOffset)
		f.int32(s.Epoch)
		f.tags(&s.UnknownTags)
	}
	f.buf = p.UnknownTags.AppendEach(f.buf)
}

// brokers appends tag 0 of the answer, NodeEndpoints: where the leaders named in the
// partitions' CurrentLeader are reached (KIP-951).
func (f *fetchEncoder) brokers(bs []kmsg.FetchResponseBroker) {
	inner := fetchEncoder{flex: true}
	inner.length32(len(bs))
	for i := range bs {
		b := &bs[i]
		inner.int32(b.NodeID)
		inner.string(b.Host)
		inner.int32(b.Port)
		if b.Rack == nil {
			inner.uvarint(0)
		} else {
			inner.string(*b.Rack)
		}
		inner.tags(&b.UnknownTags)
	}
	f.uvarint(0)
	f.uvarint(uint32(len(inner.buf)))
	f.buf = append(f.buf, inner.buf...)
}

// tag appends number and size of a tagged struct of fixed fields and the tags it has itself.
func (f *fetchEncoder) tag(number uint32, fixed int, own *kmsg.Tags) {
	size := uint32(fixed + 1)
	if own.Len() > 0 {
		inner := fetchEncoder{flex: true}
		inner.tags(own)
		size = uint32(fixed + len(inner.buf))
	}
	f.uvarint(number)
	f.uvarint(size)
}

// tags appends a count of tags and those that the struct does not name itself.
func (f *fetchEncoder) tags(t *kmsg.Tags) {
	if !f.flex {
		return
	}
	f.uvarint(uint32(t.Len()))
	f.buf = t.AppendEach(f.buf)
}

func (f *fetchEncoder) int16(v int16) { f.buf = binary.BigEndian.AppendUint16(f.buf, uint16(v)) }
func (f *fetchEncoder) int32(v int32) { f.buf = binary.BigEndian.AppendUint32(f.buf, uint32(v)) }
func (f *fetchEncoder) int64(v int64) { f.buf = binary.BigEndian.AppendUint64(f.buf, uint64(v)) }

func (f *fetchEncoder) uvarint(v uint32) { f.buf = binary.AppendUvarint(f.buf, uint64(v)) }

// length32 appends the length of an array or of records; -1 is null.
func (f *fetchEncoder) length32(n int) {
	if f.flex {
		f.uvarint(uint32(n + 1))
	} else {
		f.int32(int32(n))
	}
}

func (f *fetchEncoder) string(s string) {
	if f.flex {
		f.uvarint(uint32(len(s) + 1))
	} else {
		f.int16(int16(len(s)))
	}
	f.buf = append(f.buf, s...)
}
