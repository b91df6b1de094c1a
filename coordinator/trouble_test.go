package coordinator

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// logLines keeps what is logged.
type logLines struct {
	mu  sync.Mutex
	all strings.Builder // guarded by mu
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// TestFailedWritesAreToldOnce: one line when shards cannot write, one when all of them can again.
func TestFailedWritesAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines logLines
		s := newMemory()
		r := newRuntime(s)
		r.o.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		defer r.Close()
		r.Led(0, 1)
		r.Led(1, 1)
		synctest.Wait()
		try := func(refuse error, shards ...int32) {
			s.refuse = refuse
			for _, id := range shards {
				if _, err := r.Do(t.Context(), id, 0, put("a", "b")); !errors.Is(err, refuse) {
					t.Fatalf("shard %d: %v, want %v", id, err, refuse)
				}
			}
		}
		want := func(failed, again int) {
			t.Helper()
			eq(t, "lines that it cannot write", strings.Count(lines.String(), "could not write"), failed)
			eq(t, "lines that it can again", strings.Count(lines.String(), "writes again"), again)
		}
		for round := 1; round < 3; round++ {
			try(ErrNotAvailable, 0, 1, 0, 0, 1)
			want(round, round-1)
			s.refuse = nil
			if _, err := r.Do(t.Context(), 0, 0, put("small")); err != nil { // a nearly full disk
				t.Fatal(err)
			}
			try(ErrNotAvailable, 0)
			try(nil, 0)
			want(round, round-1) // the other one has not written yet
			try(nil, 1, 0)
			want(round, round)
		}
		try(ErrNotAvailable, 1)
		r.Lost(1)
		synctest.Wait()
		try(ErrNotAvailable, 0)
		want(4, 2)
	})
}

// TestFailedLoadsAreToldOnce: not at every try.
func TestFailedLoadsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines logLines
		s := newMemory()
		s.always = errors.New("unreadable")
		r := newRuntime(s)
		r.o.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		defer r.Close()
		r.Led(0, 1)
		time.Sleep(30*time.Second + time.Millisecond)
		synctest.Wait()
		eq(t, "lines", strings.Count(lines.String(), "could not load"), 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		eq(t, "lines a minute later", strings.Count(lines.String(), "could not load"), 2)
	})
}
