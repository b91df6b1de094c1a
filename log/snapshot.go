package log

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
)

// A producer snapshot is the state of all producers at the offset in its name (Kafka's
// ProducerSnapshot message, version 1, with the version before it):
//
//	int16 version, uint32 CRC-32C of what follows, int32 count, then for each producer
//	int64 id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta,
//	int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction
const (
	snapshotVersion  = 1
	snapshotHead     = 2 + 4 + 4
	snapshotProducer = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

func formatSnapshot(producers map[int64]*producer) []byte {
	b := make([]byte, 6, snapshotHead+snapshotProducer*len(producers))
	binary.BigEndian.PutUint16(b, snapshotVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(producers)))
	for _, id := range slices.Sorted(maps.Keys(producers)) {
		p := producers[id]
		last := batchMeta{lastSeq: -1, lastOffset: -1}
		if p.n > 0 {
			last = p.batches[p.n-1]
		}
		b = binary.BigEndian.AppendUint64(b, uint64(p.id))
		b = binary.BigEndian.AppendUint16(b, uint16(p.epoch))
		b = binary.BigEndian.AppendUint32(b, uint32(last.lastSeq))
		b = binary.BigEndian.AppendUint64(b, uint64(last.lastOffset))
		b = binary.BigEndian.AppendUint32(b, uint32(last.delta))
		b = binary.BigEndian.AppendUint64(b, uint64(p.lastTime))
		b = binary.BigEndian.AppendUint32(b, uint32(p.coordinatorEpoch))
		b = binary.BigEndian.AppendUint64(b, uint64(p.txnFirst))
	}
	binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// snapshotEntry reads a producer's entry.
func snapshotEntry(b []byte) SnapshotProducer {
	return SnapshotProducer{
		ProducerID:       int64(binary.BigEndian.Uint64(b)),
		Epoch:            int16(binary.BigEndian.Uint16(b[8:])),
		LastSequence:     int32(binary.BigEndian.Uint32(b[10:])),
		LastOffset:       int64(binary.BigEndian.Uint64(b[14:])),
		OffsetDelta:      int32(binary.BigEndian.Uint32(b[22:])),
		Timestamp:        int64(binary.BigEndian.Uint64(b[26:])),
		CoordinatorEpoch: int32(binary.BigEndian.Uint32(b[34:])),
		TxnFirstOffset:   int64(binary.BigEndian.Uint64(b[38:])),
	}
}

// parseSnapshot reads a snapshot. Only the last batch of each producer is in it.
func parseSnapshot(b []byte) ([]producer, error) {
	if len(b) < snapshotHead {
		return nil, fmt.Errorf("only %d bytes", len(b))
	}
	if v := binary.BigEndian.Uint16(b); v != snapshotVersion {
		return nil, fmt.Errorf("unknown version %d", v)
	}
	if crc := crc32.Checksum(b[6:], crc32.MakeTable(crc32.Castagnoli)); crc != binary.BigEndian.Uint32(b[2:]) {
		return nil, fmt.Errorf("checksum %#08x, stored %#08x", crc, binary.BigEndian.Uint32(b[2:]))
	}
	n := int64(int32(binary.BigEndian.Uint32(b[6:])))
	if b = b[snapshotHead:]; n < 0 || int64(len(b)) != n*snapshotProducer {
		return nil, fmt.Errorf("%d bytes for %d producers", len(b), n)
	}
	list := make([]producer, n)
	for i := range list {
		e := snapshotEntry(b)
		p := producer{id: e.ProducerID, epoch: e.Epoch, lastTime: e.Timestamp, coordinatorEpoch: e.CoordinatorEpoch, txnFirst: max(e.TxnFirstOffset, -1)}
		if e.LastOffset >= 0 {
			p.add(batchMeta{lastSeq: e.LastSequence, lastOffset: e.LastOffset, delta: e.OffsetDelta, time: e.Timestamp})
			p.partial = true
		}
		list[i] = p
		b = b[snapshotProducer:]
	}
	return list, nil
}

// load makes the state that of a snapshot, without producers that have expired since.
func (s *producerState) load(list []producer, now, expiry int64) {
	s.clear()
	for i := range list {
		p := list[i]
		if p.expired(now, expiry) {
			continue
		}
		*s.get(p.id) = p
		if p.txnFirst >= 0 {
			s.open = insertTxn(s.open, txn{p.id, p.txnFirst, noOffset})
		}
	}
}
