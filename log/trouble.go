package log

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ottla/log/vfs"
)

// tellAgain is how long a trouble that goes on is kept quiet.
const tellAgain = time.Minute

// trouble is what is wrong with a log that goes on all the same. Each change of it is told once,
// however many requests meet it.
type trouble struct {
	full atomic.Bool // the last write found no room

	mu     sync.Mutex
	needed int64     // guarded by mu: bytes of that write
	since  int64     // guarded by mu: when it was, ms
	text   string    // guarded by mu: the error that was told last
	told   time.Time // guarded by mu: when
}

// settleRoom is for how long writes succeed, smaller ones than that which failed, until there is
// taken to be room again: else every large one on a nearly full disk would be told.
const settleRoom = 10 * time.Second

// noRoom takes in that a write of so many bytes found no room.
func (l *Log) noRoom(doing string, bytes int64, err error) {
	l.m.metrics.full.Inc()
	if l.m.Log(l.topic, l.partition) != l || l.m.closed.Load() {
		return // it is being opened or closed; whoever does that says what came of it
	}
	t := &l.trouble
	t.mu.Lock()
	t.needed, t.since = bytes, l.m.nowMs()
	first := !t.full.Swap(true)
	t.mu.Unlock()
	if first {
		l.m.logger.Warn("a partition takes no writes, for want of room on the disk",
			"topic", l.topic, "partition", l.partition, "dir", l.dir.path, "doing", doing, "err", err)
	}
}

// room takes in that so many bytes were written. The caller has seen that there was none before.
func (l *Log) room(bytes int64) {
	t := &l.trouble
	t.mu.Lock()
	again := bytes >= t.needed || l.m.nowMs()-t.since >= settleRoom.Milliseconds()
	again = again && t.full.Swap(false)
	t.mu.Unlock()
	if again {
		l.m.logger.Info("a partition takes writes again", "topic", l.topic, "partition", l.partition, "dir", l.dir.path)
	}
}

// fail takes the log alone offline, if it is not already.
func (l *Log) fail(err error) error {
	if l.setFault(err) && l.dir.failed() == nil {
		l.m.logger.Error("a partition is offline", "topic", l.topic, "partition", l.partition, "dir", l.dir.path, "err", err)
	}
	return *l.fault.Load()
}

// setFault makes an error what the log answers from now on. It is false if it had one already.
func (l *Log) setFault(err error) bool {
	if !errors.Is(err, ErrStorage) && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%s: %w: %w", l, ErrStorage, err)
	}
	if vfs.Broken(err) {
		l.dir.fail(err, "topic", l.topic, "partition", l.partition)
	}
	set := l.fault.CompareAndSwap(nil, &err)
	l.wake.all()
	return set
}

// errUnsynced marks the error of an fsync. Whatever it says, also that there is no room: what was
// to be durable may be gone from memory, and the next fsync would know nothing of it.
var errUnsynced = errors.New("not made durable")

// writeFailed says what a failed write, sync or rename means: without room, or a descriptor, the
// log goes on as soon as there is one; anything else, and the directory cannot be trusted any
// more, as Kafka's LogDirFailureChannel sees it.
func (l *Log) writeFailed(doing string, err error) error {
	return l.writeOf(0, doing, err)
}

// writeOf is writeFailed for a write of so many bytes.
func (l *Log) writeOf(bytes int64, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrStorage), errors.Is(err, ErrClosed):
		return err
	case errors.Is(err, errUnsynced):
	case vfs.Full(err):
		l.noRoom(doing, bytes, err)
		return fmt.Errorf("%s: %s: %w: %w", l, doing, ErrFull, err)
	case noDescriptor(err): // nothing was done
		l.tell("cannot write a log", doing, err)
		return fmt.Errorf("%s: %s: %w: %w", l, doing, ErrStorage, err)
	}
	l.dir.fail(fmt.Errorf("%s of %s: %w", doing, l, err), "topic", l.topic, "partition", l.partition)
	return fmt.Errorf("%s: %s: %w: %w", l, doing, ErrStorage, err)
}

// makeFailed is writeFailed for what no append has to do with: without room the partition takes
// writes all the same, or is not in use yet, and whoever wants more says so.
func (l *Log) makeFailed(doing string, err error) error {
	if vfs.Full(err) && !errors.Is(err, errUnsynced) {
		l.m.metrics.full.Inc()
		return fmt.Errorf("%s: %s: %w: %w", l, doing, ErrFull, err)
	}
	return l.writeFailed(doing, err)
}

func noDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// readFailed says what a failed read means: with one of a disk that is broken the directory goes
// offline, as in Kafka (LocalLog.read); anything else concerns this partition alone, and the next
// try may find better luck.
func (l *Log) readFailed(doing string, err error) error {
	if err == nil {
		return nil
	}
	l.m.metrics.readErrors.Inc()
	if vfs.Broken(err) {
		l.dir.fail(fmt.Errorf("%s of %s: %w", doing, l, err), "topic", l.topic, "partition", l.partition)
	} else {
		l.tell("cannot read a log", doing, err)
	}
	if !errors.Is(err, ErrStorage) && !noDescriptor(err) {
		err = fmt.Errorf("%w: %w", ErrStorage, err)
	}
	return fmt.Errorf("%s: %s: %w", l, doing, err)
}

// tell logs what failed, unless it is what was told last and not long ago.
func (l *Log) tell(what, doing string, err error) {
	if l.newTrouble(doing+err.Error(), l.m.opts.Now()) {
		l.m.logger.Error(what, "topic", l.topic, "partition", l.partition, "dir", l.dir.path, "doing", doing, "err", err)
	}
}

// newTrouble says whether an error is another one than the last, or that one a while later.
func (l *Log) newTrouble(text string, now time.Time) bool {
	t := &l.trouble
	t.mu.Lock()
	defer t.mu.Unlock()
	if text == t.text && now.Sub(t.told) < tellAgain {
		return false
	}
	t.text, t.told = text, now
	return true
}

// backgroundFailed tells of work on a log that nobody waits for, unless what went wrong has been
// told already.
func (l *Log) backgroundFailed(doing string, err error) {
	if !errors.Is(err, ErrFull) && l.dir.failed() == nil {
		l.m.logger.Warn("background work on a log failed", "topic", l.topic, "partition", l.partition, "dir", l.dir.path, "doing", doing, "err", err)
	}
}
