package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	groupsOnly = flag.Bool("groups", false, "measure groups and nothing else: a join of many, commits of many groups, commits of one; rows of what was measured")
	members    = flag.Int("members", 200, "members of the one large group")
	manyGroups = flag.Int("many-groups", 5000, "groups of one member each that commit every second")
	load       = flag.Duration("load", 10*time.Second, "how long commits and transactions are measured")
	groupCases = flag.String("cases", "classic,consumer,many,one,sixteen,pipelined", "what -groups measures")
)

// topic of everything that members read; each of the large group gets two partitions.
const groupTopic = "read"

func groups(name string, command []string) (string, error) {
	work, err := os.MkdirTemp("", "ottla-bench-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	t := &table{name: name, command: command}
	err = t.groupRows(filepath.Join(work, "groups"))
	return strings.TrimSuffix(t.rows.String(), "\n"), err
}

func (t *table) groupRows(dir string) (err error) {
	b, err := start(t.command, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	if err := makeTopic(b.addr, groupTopic, int32(2**members)); err != nil {
		return err
	}
	w, err := dial(b.addr)
	if err != nil {
		return err
	}
	defer w.close()
	if err := findCoordinator(w, 0, "any"); err != nil {
		return err
	}
	if err := retried(func() error { return committed(w, commitOf("warm", "", -1, groupTopic, 0)) }); err != nil {
		return err
	}
	for _, c := range strings.Split(*groupCases, ",") {
		if err := t.groupCase(b, w, c); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) groupCase(b *broker, w *wire, c string) error {
	switch c {
	case "classic":
		delay, err := brokerSetting(b.addr, "group.initial.rebalance.delay.ms")
		if err != nil {
			return err
		}
		took, err := b.classicJoin(w)
		if err != nil {
			return err
		}
		t.value(took.Seconds(), "%d members join a classic group, initial delay of %s ms: until all have what they keep, s", *members, delay)
	case "consumer":
		took, err := b.consumerJoin(w)
		if err != nil {
			return err
		}
		t.value(took.Seconds(), "%d members join a consumer group: until all have what they keep, s", *members)
	case "many":
		what := fmt.Sprintf("%d groups of one member commit every second", *manyGroups)
		f, took, err := b.manyCommit()
		if err != nil {
			return err
		}
		t.value(100*float64(f.cpu)/float64(f.wall), "%s: processor, %% of one core", what)
		t.value(f.rate(), "%s: commits/s", what)
		t.value(millis(percentile(took, 0.5)), "%s: p50, ms", what)
		t.value(millis(percentile(took, 0.99)), "%s: p99, ms", what)
	case "one", "sixteen", "pipelined":
		conns, ahead := 1, 1
		what := "commits/s of one group, 1 connection"
		switch c {
		case "sixteen":
			conns, what = 16, "commits/s of one group, 16 connections"
		case "pipelined":
			ahead, what = 5, "commits/s of one group, 1 connection with 5 under way"
		}
		f, err := b.oneGroupCommits(conns, ahead)
		if err != nil {
			return err
		}
		t.value(f.rate(), "%s", what)
		t.value(f.each(), "%s: processor each, µs", what)
	default:
		return fmt.Errorf("no case %q", c)
	}
	return nil
}

// figures of a load.
type figures struct {
	done      int64 // of what was measured
	wall, cpu time.Duration
}

func (f figures) rate() float64 { return float64(f.done) / f.wall.Seconds() }

// each is the broker's processor time for one, in microseconds.
func (f figures) each() float64 { return float64(f.cpu.Microseconds()) / float64(f.done) }

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func makeTopic(addr, name string, partitions int32) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	_, err = kadm.NewClient(cl).CreateTopic(context.Background(), partitions, 1, nil, name)
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	return err
}

// brokerSetting is what a setting of the broker is now.
func brokerSetting(addr, name string) (string, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return "", err
	}
	defer cl.Close()
	brokers, err := kadm.NewClient(cl).DescribeBrokerConfigs(context.Background(), 1)
	if err != nil {
		return "", err
	}
	for _, b := range brokers {
		for _, c := range b.Configs {
			if c.Key == name && c.Value != nil {
				return *c.Value, b.Err
			}
		}
	}
	return "", fmt.Errorf("the broker does not tell %s: %+v", name, brokers)
}

// each runs f once a number, all at the same time, and gives the first error.
func each(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		wg.Go(func() { errs <- f(i) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// manyCommit has many groups of one member each, which commit every second and send a heartbeat every three.
func (b *broker) manyCommit() (f figures, took []time.Duration, err error) {
	n := *manyGroups
	wires, err := dials(b.addr, n)
	if err != nil {
		return f, nil, err
	}
	all := make([]*classic, n)
	if err = each(n, func(i int) error {
		all[i] = &classic{wire: wires[i], group: fmt.Sprintf("many-%d", i)}
		return all[i].settle([]string{""})
	}); err != nil {
		return f, nil, err
	}
	defer func() {
		for _, m := range all {
			m.close()
		}
	}()
	var stop, counts atomic.Bool
	var done atomic.Int64
	var mu sync.Mutex
	failed := make(chan error, n)
	var wg sync.WaitGroup
	for i, m := range all {
		wg.Go(func() {
			req := commitOf(m.group, m.id, m.generation, groupTopic, 0)
			var mine []time.Duration
			next := time.Now().Add(time.Duration(i) * time.Second / time.Duration(n))
			for at := i; !stop.Load(); at++ {
				time.Sleep(time.Until(next))
				asked := time.Now()
				req.Topics[0].Partitions[0].Offset++
				if err := committed(m.wire, req); err != nil {
					failed <- err
					return
				}
				if counts.Load() {
					mine = append(mine, time.Since(asked))
					done.Add(1)
				}
				if at%3 == 0 {
					if code, err := m.heartbeat(); err != nil || code != 0 {
						failed <- errors.Join(err, kerr.ErrorForCode(code))
						return
					}
				}
				if next = next.Add(time.Second); time.Now().After(next) {
					next = time.Now()
				}
			}
			mu.Lock()
			took = append(took, mine...)
			mu.Unlock()
		})
	}
	time.Sleep(2 * time.Second)
	before, err1 := spent(b.cmd.Process.Pid)
	begun := time.Now()
	counts.Store(true)
	time.Sleep(*load)
	counts.Store(false)
	wall := time.Since(begun)
	after, err2 := spent(b.cmd.Process.Pid)
	stop.Store(true)
	wg.Wait()
	if err := errors.Join(err1, err2); err != nil {
		return f, nil, err
	}
	select {
	case err := <-failed:
		return f, nil, err
	default:
	}
	return figures{done.Load(), wall, after - before}, took, nil
}

// oneGroupCommits has one group commit as fast as it can, on connections that each have some requests under way.
func (b *broker) oneGroupCommits(conns, ahead int) (f figures, err error) {
	var done atomic.Int64
	before, err := spent(b.cmd.Process.Pid)
	if err != nil {
		return f, err
	}
	begun := time.Now()
	err = each(conns, func(i int) error {
		w, err := dial(b.addr)
		if err != nil {
			return err
		}
		defer w.close()
		req := commitOf("one", "", -1, groupTopic, int32(i))
		for sent, got := 0, 0; ; {
			more := time.Since(begun) < *load
			for more && sent-got < ahead {
				req.Topics[0].Partitions[0].Offset++
				if err := w.send(req); err != nil {
					return err
				}
				sent++
			}
			if got == sent {
				return nil
			}
			resp, err := w.receive(req)
			if err != nil {
				return err
			}
			if code := resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
				return kerr.ErrorForCode(code)
			}
			got++
			done.Add(1)
		}
	})
	wall := time.Since(begun)
	after, err2 := spent(b.cmd.Process.Pid)
	if err := errors.Join(err, err2); err != nil {
		return f, err
	}
	return figures{done.Load(), wall, after - before}, nil
}
