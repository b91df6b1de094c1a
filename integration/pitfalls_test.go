package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"ottla/compat"
)

// pitfallIDs are the cases of the catalogue of known pitfalls that this package has to cover:
// mistakes that other brokers made, by area and number, with the right result at each test.
const pitfallIDs = `enc-1..8 prod-1..9 fetch-1..6 offs-1..6 meta-1..3 group-1..11 group-13..14 admin-1..7 net-1..4
	store-1..7 dev-1..4`

// pitfall is one case.
type pitfall struct {
	id  string
	run func(*pit)
}

// pitfallAreas are the cases in the files of their areas.
var pitfallAreas = [][]pitfall{
	encodingPitfalls, producePitfalls, fetchPitfalls, offsetPitfalls, metadataPitfalls, memberPitfalls, groupPitfalls,
	adminPitfalls, networkPitfalls, storePitfalls, devPitfalls,
}

// TestPitfall runs each case under its id. Cases share brokers, one for each group of settings, and
// use topics and groups of their own; those that end a broker have one for themselves.
func TestPitfall(t *testing.T) {
	if os.Getenv(envBootstrap) != "" {
		t.Skip("runs brokers of its own")
	}
	t.Parallel()
	s := &shelf{TB: t, dir: t.TempDir(), brokers: map[string]*embedded{}}
	t.Cleanup(s.stop)
	for _, area := range pitfallAreas {
		for _, c := range area {
			t.Run(c.id, func(t *testing.T) {
				t.Parallel()
				c.run(&pit{T: t, id: c.id, shelf: s})
			})
		}
	}
}

// TestPitfallsAreComplete: every case of the catalogue has its test, and none has two.
func TestPitfallsAreComplete(t *testing.T) {
	var want, have []string
	for _, word := range strings.Fields(pitfallIDs) {
		area, numbers, _ := strings.Cut(word, "-")
		low, high, ok := strings.Cut(numbers, "..")
		if !ok {
			high = low
		}
		from, err := strconv.Atoi(low)
		if err != nil {
			t.Fatal(err)
		}
		to, err := strconv.Atoi(high)
		if err != nil {
			t.Fatal(err)
		}
		for n := from; n <= to; n++ {
			want = append(want, fmt.Sprintf("%s-%d", area, n))
		}
	}
	for _, area := range pitfallAreas {
		for _, c := range area {
			have = append(have, c.id)
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	for _, id := range want {
		if !slices.Contains(have, id) {
			t.Errorf("no test for %s", id)
		}
	}
	for i, id := range have {
		if !slices.Contains(want, id) {
			t.Errorf("%s is not in the list", id)
		}
		if i > 0 && have[i-1] == id {
			t.Errorf("two tests for %s", id)
		}
	}
}

// shelf has the brokers that cases share.
type shelf struct {
	testing.TB // of all the cases, for what must outlive one
	dir        string
	names      atomic.Int64

	mu      sync.Mutex
	brokers map[string]*embedded // guarded by mu: by settings
}

func (s *shelf) broker(settings ...string) *embedded {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.Join(settings, " ")
	if s.brokers[key] == nil {
		s.brokers[key] = embed(s, filepath.Join(s.dir, strconv.Itoa(len(s.brokers))), nil, settings...)
	}
	return s.brokers[key]
}

func (s *shelf) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for settings, b := range s.brokers {
		if err := b.stop(); err != nil {
			s.Errorf("broker with %q: %v", settings, err)
		}
	}
}

// pit is a case that runs.
type pit struct {
	*testing.T
	id    string
	shelf *shelf
}

// quick are settings under which groups need not wait.
var quick = []string{"group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1", "offsets.topic.num.partitions=3"}

// broker is the address of the shared broker with these settings; none means quick.
func (p *pit) broker(settings ...string) string {
	p.Helper()
	if len(settings) == 0 {
		settings = quick
	}
	return p.shelf.broker(settings...).addr
}

// dial opens a raw connection to the shared broker with these settings.
func (p *pit) dial(settings ...string) *wire {
	p.Helper()
	return dialWire(p, p.broker(settings...))
}

// process starts a broker process of this case alone.
func (p *pit) process(settings ...string) *Broker {
	p.Helper()
	return StartWith(p, Options{Settings: append(slices.Clone(quick), settings...)})
}

// name is one that no other case has.
func (p *pit) name() string { return fmt.Sprintf("p-%s-%d", p.id, p.shelf.names.Add(1)) }

// part runs one part of the case.
func (p *pit) part(name string, run func(*pit)) {
	p.Run(name, func(t *testing.T) {
		t.Parallel()
		run(&pit{T: t, id: p.id, shelf: p.shelf})
	})
}

// needsTransactions skips a case while the broker serves none.
func (p *pit) needsTransactions() {
	p.Helper()
	if compat.EndTxn.State != compat.Served {
		p.Skip("EndTxn is not served")
	}
}
