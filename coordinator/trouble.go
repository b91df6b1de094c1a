package coordinator

import (
	"log/slog"
	"sync"
	"time"
)

// tellAgain is how long a trouble that goes on is kept quiet.
const tellAgain = time.Minute

// trouble is what keeps shards from writing or loading. A full disk meets every request of every
// shard; each change is told once, for all of them.
type trouble struct {
	mu       sync.Mutex
	stuck    map[int32]bool // guarded by mu: shards whose last write failed
	text     string         // guarded by mu: what was told last of a load
	toldLoad time.Time      // guarded by mu: when
}

// failed takes in that a shard could not write. It says whether that is to be told.
func (t *trouble) failed(shard int32) (tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tell = len(t.stuck) == 0
	if t.stuck == nil {
		t.stuck = map[int32]bool{}
	}
	t.stuck[shard] = true
	return tell
}

// over takes in that a shard has written, or is gone. It says whether it was the last one that could
// not.
func (t *trouble) over(shard int32) (tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stuck[shard] {
		return false
	}
	delete(t.stuck, shard)
	return len(t.stuck) == 0
}

// newLoad says whether what a load failed with is to be told: it is not what was told last, or that
// is a while ago.
func (t *trouble) newLoad(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text == t.text && time.Since(t.toldLoad) < tellAgain {
		return false
	}
	t.text, t.toldLoad = text, time.Now()
	return true
}

// settle is for how long smaller writes than that which failed succeed until all is taken to be well
// again: a disk that is nearly full would be told at every second request.
const settle = 10 * time.Second

// unwritten tells of a write that failed.
func (s *shard[M]) unwritten(records int, err error) {
	s.r.o.Metrics.AppendErrors.Inc()
	s.stuck, s.stuckAt = max(records, 1), s.r.now().Mono
	level := slog.LevelDebug
	if s.r.trouble.failed(s.id) {
		level = slog.LevelWarn
	}
	s.r.o.Logger.Log(s.ctx, level, "coordinator could not write", "coordinator", s.r.o.Name, "shard", s.id, "records", records, "err", err)
}

// wrote takes in that so many records were written.
func (s *shard[M]) wrote(records int) {
	if s.stuck == 0 || records < s.stuck && s.r.now().Mono-s.stuckAt < settle {
		return
	}
	s.stuck = 0
	if s.r.trouble.over(s.id) {
		s.r.o.Logger.Info("coordinator writes again", "coordinator", s.r.o.Name, "shard", s.id)
	}
}
