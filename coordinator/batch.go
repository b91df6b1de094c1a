package coordinator

import (
	"fmt"

	"ottla/protocol/record"
)

// What a batch adds to its records, at most: the header, and for each record its attributes
// and the lengths and deltas before its key and value.
const (
	batchOverhead  = record.HeaderSize
	recordOverhead = 32
)

// maxDecompressed bounds what one record of the internal topic may unpack to. Kafka writes
// batches of at most max.message.bytes before compression, 1 MiB unless somebody raised it.
const maxDecompressed = 1 << 30

// buildBatch makes one batch of records. Outside of transactions it has no producer id, like
// those of Kafka's coordinators; in one it has no sequence numbers.
func buildBatch(records []Record, now int64, codec record.Codec, p *Producer) record.Batch {
	o := record.BuilderOptions{Codec: codec}
	if p != nil {
		if p.End != nil {
			return p.End.Batch(p.ID, p.Epoch, now)
		}
		o.Producer = &record.ProducerInfo{ID: p.ID, Epoch: p.Epoch, Sequence: -1, Transactional: true}
	}
	size := batchOverhead
	if codec == record.None {
		for i := range records {
			size += len(records[i].Key) + len(records[i].Value) + recordOverhead
		}
	}
	b := record.NewBuilder(make([]byte, 0, size), o)
	for _, r := range records {
		b.Add(now, r.Key, r.Value)
	}
	return b.Finish()
}

// replayBatches feeds a machine with every record of the batches in data, and returns their
// number.
func replayBatches(m Machine, data []byte) (n int, err error) {
	for len(data) > 0 {
		b, rest, err := record.Split(data)
		if err != nil {
			return n, fmt.Errorf("batch in the log of the coordinator: %w", err)
		}
		data = rest
		producer := int64(-1)
		if b.Magic() >= 2 && b.IsTransactional() {
			producer = b.ProducerID()
		}
		for r, err := range record.Records(b, maxDecompressed) {
			if err != nil {
				return n, fmt.Errorf("batch at offset %d in the log of the coordinator: %w", b.BaseOffset(), err)
			}
			n++
			if b.IsControl() {
				end, ok, err := record.ParseEndMarker(r)
				if err != nil {
					return n, fmt.Errorf("batch at offset %d in the log of the coordinator: %w", b.BaseOffset(), err)
				}
				if ok {
					m.ReplayMarker(b.ProducerID(), end.Commit)
				}
				continue
			}
			m.Replay(Logged{Record: Record{r.Key, r.Value}, Offset: r.Offset, Time: r.Timestamp, Producer: producer, Epoch: b.ProducerEpoch()})
		}
	}
	return n, nil
}
