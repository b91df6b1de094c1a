package replica

import (
	"fmt"

	"ottla/log"
)

// following is a partition as its fetcher changes it, in one leader epoch. A change of leadership
// takes Partition.lead for writing, so that nothing of an older leader comes into the log after it.
type following struct {
	p     *Partition
	log   *log.Log
	epoch int32
}

func (f *following) Start() int64                        { return f.log.Start() }
func (f *following) End() int64                          { return f.log.End() }
func (f *following) HighWatermark() int64                { return f.log.HighWatermark() }
func (f *following) LastEpoch() int32                    { return f.log.LastEpoch() }
func (f *following) EpochEnd(epoch int32) (int32, int64) { return f.log.EpochEnd(epoch) }

// do runs a change while the replica follows in the epoch.
func (f *following) do(change func() error) error {
	f.p.lead.RLock()
	defer f.p.lead.RUnlock()
	if s := f.p.standing.Load(); s.leads || s.epoch != f.epoch || s.log != f.log {
		return errNotFollowing
	}
	return change()
}

func (f *following) Append(records []byte) error {
	flush := int64(0)
	err := f.do(func() error {
		done, err := f.log.AppendAsFollower(records)
		if done.MustFlush {
			flush = done.Last + 1
		}
		return err
	})
	if err == nil && flush > 0 {
		err = f.log.Flush(flush)
	}
	return err
}

func (f *following) Truncate(to int64) error {
	return f.do(func() error {
		if to < f.log.End() {
			f.p.m.opts.Logger.Info("log is cut back to where it agrees with the leader's", "topic", f.p.topic, "partition", f.p.number,
				"to", to, "end", f.log.End(), "high_watermark", f.log.HighWatermark(), "leader_epoch", f.epoch)
		}
		return f.log.TruncateTo(to)
	})
}

func (f *following) StartAt(offset int64) error {
	return f.do(func() error {
		f.p.m.opts.Logger.Info("log begins anew where the leader's does", "topic", f.p.topic, "partition", f.p.number,
			"at", offset, "end", f.log.End(), "leader_epoch", f.epoch)
		return f.log.TruncateFully(offset)
	})
}

// Committed raises the high watermark and the log start to the leader's, as far as the log reaches.
func (f *following) Committed(hw, start int64) {
	err := f.do(func() error {
		moved := false
		if high := f.log.HighWatermark(); hw > high && f.log.End() > high {
			f.log.SetHighWatermark(hw)
			moved = true
		}
		if to := min(start, f.log.HighWatermark()); to > f.log.Start() {
			if _, err := f.log.DeleteRecords(to); err != nil {
				return fmt.Errorf("raise the log start to the leader's %d: %w", to, err)
			}
			moved = true
		}
		if moved {
			f.p.mu.Lock()
			f.p.signalLocked(nil)
			f.p.mu.Unlock()
		}
		return nil
	})
	if err != nil && err != errNotFollowing {
		f.p.m.opts.Logger.Error("log start not raised", "topic", f.p.topic, "partition", f.p.number, "err", err)
	}
}
