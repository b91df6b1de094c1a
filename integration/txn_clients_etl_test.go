//go:build clients

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// copies has two copiers of a group copy a topic in transactions while the broker is killed again and again: each
// record comes out once. The second copier is a static member. settings are for the consumers.
func (s *theatre) copies(t *testing.T, settings map[string]any) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const total, kills = 2000, 4
	from, to := s.mark+"-from", s.mark+"-to"
	if _, err := s.adm.CreateTopics(ctx, 4, 1, nil, from, to); err != nil {
		t.Fatal(err)
	}
	source := kgoDial(t, kgo.SeedBrokers(s.broker.Addr()), kgo.DefaultProduceTopic(from), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	want := make([]string, total)
	sent := 0
	send := func(n int) {
		for range n {
			want[sent] = fmt.Sprintf("R%05d", sent)
			source.Produce(ctx, kgo.StringRecord(strings.ToLower(want[sent])), func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("a record was not taken: %v", err)
				}
			})
			sent++
		}
	}
	for i := range 2 {
		member := map[string]any{"session.timeout.ms": 6000, "max.poll.records": 20, "group.instance.id": fmt.Sprint("copier-", i)}
		if i == 0 {
			delete(member, "group.instance.id")
		}
		for k, v := range settings {
			if member[k] = v; k == "group.protocol" {
				delete(member, "session.timeout.ms")
			}
		}
		var is string
		if err := s.c.do(ctx, "copy", args{"name": fmt.Sprint(i), "producer": fmt.Sprint(s.mark, "-copy-", i), "group": s.mark + "-copies", "from": from, "to": to, "consumer": member}, &is); err != nil {
			t.Fatal(err)
		}
	}
	until := func(n int) {
		for copied := 0; copied < n; {
			if err := s.c.do(ctx, "copied", nil, &copied); err != nil {
				t.Fatalf("%d of %d copied: %v", copied, n, err)
			}
		}
	}
	for i := range kills {
		send(total / kills)
		until(sent - total/kills/2 - 100*(i%2))
		s.broker.Restart()
	}
	got := []string{}
	sink := kgoDial(t, kgo.SeedBrokers(s.broker.Addr()), kgo.ConsumeTopics(to), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	for len(got) < total {
		sink.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records have come", len(got), total)
		}
	}
	var anew int
	if err := s.c.do(ctx, "stop", nil, &anew); err != nil {
		t.Fatal(err)
	}
	got = committed(ctx, t, s.broker.Addr(), to)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d records, want %d: %s", len(got), total, firstDifference(got, want))
	}
	eventually(t, fmt.Sprintf("the group's offsets add up to %d", total), 20*time.Second, func() bool {
		at, err := s.adm.FetchOffsetsForTopics(ctx, s.mark+"-copies", from)
		done := int64(0)
		at.Each(func(o kadm.OffsetResponse) { done += o.At })
		return err == nil && done == total
	})
}
