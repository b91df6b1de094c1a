package group

import (
	"context"
	"errors"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"ottla/coordinator"
	"ottla/protocol/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Store that commits at once.
type memory struct {
	mu   sync.Mutex
	logs map[int32][]record.Batch
}

func (s *memory) Append(_ context.Context, shard, _ int32, data []byte) (int64, func(context.Context) error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := record.Batch(data)
	if old := s.logs[shard]; len(old) > 0 {
		b.SetBaseOffset(old[len(old)-1].NextOffset())
	}
	s.logs[shard] = append(s.logs[shard], b)
	return b.BaseOffset(), nil, nil
}

func (s *memory) Load(_ context.Context, shard, _ int32) iter.Seq2[[]byte, error] {
	s.mu.Lock()
	all := slices.Clone(s.logs[shard])
	s.mu.Unlock()
	return func(yield func([]byte, error) bool) {
		for _, b := range all {
			if !yield(b, nil) {
				return
			}
		}
	}
}

func newTestCoordinator(s *memory, reg prometheus.Registerer) *Coordinator {
	o := Defaults()
	c := New(Config{
		Store: s, Options: func() *Options { return o }, Partitions: func() int32 { return 3 }, Now: time.Now, Registerer: reg,
		EndOffset: func(topic string, partition int32) (int64, bool) { return 100, topic == "t" },
	})
	for p := range int32(3) {
		c.Led(p, 1)
	}
	synctest.Wait()
	return c
}

func joinOf(g string) JoinRequest {
	return JoinRequest{Group: g, Client: Client{"c", "/127.0.0.1"}, ProtocolType: "consumer", Protocols: consumerProtocols("t"),
		Session: 10 * time.Second, Rebalance: time.Minute, MemberIDRequired: true}
}

func TestCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memory{logs: map[int32][]record.Batch{}}
		c := newTestCoordinator(s, nil)
		defer c.Close()
		ctx := t.Context()

		r := joinOf("g")
		a := c.Join(ctx, r)
		want(t, "join without an id", a.Err, error(ErrMemberIDRequired))
		want(t, "a UUID behind the client id", regexp.MustCompile(`^c-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(a.MemberID), true)
		r.MemberID = a.MemberID
		start := time.Now()
		a = c.Join(ctx, r)
		want(t, "join", a.Err, nil)
		want(t, "initial rebalance delay", time.Since(start), 3*time.Second)
		frame := []byte("part")
		sa := c.Sync(ctx, SyncRequest{Group: "g", MemberID: a.MemberID, Generation: 1, Assignment: []Assigned{{a.MemberID, frame}}})
		copy(frame, "XXXX") // the frame that it lay in is used for something else
		want(t, "sync", sa.Err, nil)
		again := c.Sync(ctx, SyncRequest{Group: "g", MemberID: a.MemberID, Generation: 1})
		want(t, "assignment", string(again.Assignment), "part")

		hb := HeartbeatRequest{Group: "g", MemberID: a.MemberID, Generation: 1}
		for range 5 {
			time.Sleep(9 * time.Second)
			want(t, "heartbeat", c.Heartbeat(ctx, hb), nil)
		}
		errs, err := c.Commit(ctx, CommitRequest{Group: "g", MemberID: a.MemberID, Generation: 1, Retention: -1,
			Topics: []CommitTopic{{Name: "t", Partitions: []CommitPartition{{Partition: 2, Offset: 7, Time: -1}}}}})
		want(t, "commit", err, nil)
		want(t, "commit of the partition", errs[0][0], nil)

		// Another epoch: the shard is read anew.
		for p := range int32(3) {
			c.Led(p, 2)
		}
		synctest.Wait()
		want(t, "heartbeat at the new coordinator", c.Heartbeat(ctx, hb), nil)
		topics, err := c.Fetch(ctx, FetchRequest{Group: "g"})
		want(t, "fetch", err, nil)
		want(t, "offset", topics[0].Partitions[0].Offset, 7)
		time.Sleep(11 * time.Second)
		want(t, "heartbeat after the session", c.Heartbeat(ctx, hb), error(ErrUnknownMember))
		want(t, "state", c.Describe(ctx, "g").State, "Empty")

		for _, g := range []string{"a", "b", "c", "d"} {
			_, err := c.Commit(ctx, CommitRequest{Group: g, Generation: -1, Retention: -1,
				Topics: []CommitTopic{{Name: "t", Partitions: []CommitPartition{{Offset: 1, Time: -1}}}}})
			want(t, "commit", err, nil)
		}
		all, err := c.List(ctx, nil, nil)
		want(t, "list", err, nil)
		want(t, "groups", len(all), 5)
		gone := c.DeleteGroups(ctx, []string{"a", "x", "b", "a"})
		for i, err := range []error{nil, ErrGroupNotFound, nil, ErrGroupNotFound} {
			want(t, "delete", gone[i], err)
		}
		want(t, "topic gone", c.TopicsDeleted(ctx, []DeletedTopic{{Name: "t"}}), nil)
		topics, err = c.Fetch(ctx, FetchRequest{Group: "c"})
		want(t, "fetch", err, nil)
		want(t, "topics left", len(topics), 0)
	})
}

func TestCoordinatorLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memory{logs: map[int32][]record.Batch{}}
		c := newTestCoordinator(s, nil)
		defer c.Close()
		r := joinOf("g")
		r.MemberIDRequired = false
		done := make(chan JoinAnswer)
		go func() { done <- c.Join(t.Context(), r) }()
		synctest.Wait()
		c.Lost(c.PartitionFor("g"))
		want(t, "waiting join", (<-done).Err, error(coordinator.ErrNotCoordinator))
		want(t, "heartbeat", c.Heartbeat(t.Context(), HeartbeatRequest{Group: "g"}), error(coordinator.ErrNotCoordinator))
		_, err := c.List(t.Context(), nil, nil)
		want(t, "list of what is left", err, nil)

		ctx, cancel := context.WithCancel(t.Context())
		r = joinOf("other")
		r.MemberIDRequired = false
		for c.PartitionFor(r.Group) == c.PartitionFor("g") {
			r.Group += "x"
		}
		go func() { done <- c.Join(ctx, r) }()
		synctest.Wait()
		cancel()
		want(t, "join of a client that goes", errors.Is((<-done).Err, context.Canceled), true)
		d := c.Describe(t.Context(), r.Group)
		want(t, "its member stays until its time is up", len(d.Members), 1)
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		s := &memory{logs: map[int32][]record.Batch{}}
		c := newTestCoordinator(s, reg)
		defer c.Close()
		for _, topic := range []string{"t", "u"} {
			_, err := c.Commit(t.Context(), CommitRequest{Group: "g\xff", Generation: -1, Retention: -1,
				Topics: []CommitTopic{{Name: topic, Partitions: []CommitPartition{{Partition: 0, Offset: 60, Time: -1}, {Partition: 1, Offset: 200, Time: -1}}}}})
			want(t, "commit", err, nil)
		}
		expected := `
			# HELP kafka_consumergroup_lag Records between the committed offset and the end of the partition.
			# TYPE kafka_consumergroup_lag gauge
			kafka_consumergroup_lag{consumergroup="\"g\\xff\"",partition="0",topic="t"} 40
			kafka_consumergroup_lag{consumergroup="\"g\\xff\"",partition="1",topic="t"} 0
			# HELP kafka_consumergroup_lag_sum Lag of the group, summed over the topic.
			# TYPE kafka_consumergroup_lag_sum gauge
			kafka_consumergroup_lag_sum{consumergroup="\"g\\xff\"",topic="t"} 40
			# HELP kafka_consumergroup_current_offset_sum Committed offsets of the group, summed over the topic.
			# TYPE kafka_consumergroup_current_offset_sum gauge
			kafka_consumergroup_current_offset_sum{consumergroup="\"g\\xff\"",topic="t"} 260
			kafka_consumergroup_current_offset_sum{consumergroup="\"g\\xff\"",topic="u"} 260
			# HELP kafka_coordinator_group_groupmetadatamanager_numgroups Groups that this broker coordinates.
			# TYPE kafka_coordinator_group_groupmetadatamanager_numgroups gauge
			kafka_coordinator_group_groupmetadatamanager_numgroups 1
			# HELP kafka_coordinator_group_groupmetadatamanager_numgroupsempty Groups that this broker coordinates, without members.
			# TYPE kafka_coordinator_group_groupmetadatamanager_numgroupsempty gauge
			kafka_coordinator_group_groupmetadatamanager_numgroupsempty 1
			# HELP kafka_server_group_coordinator_metrics_offset_commit_count Offsets committed.
			# TYPE kafka_server_group_coordinator_metrics_offset_commit_count counter
			kafka_server_group_coordinator_metrics_offset_commit_count 4
		`
		err := testutil.GatherAndCompare(reg, strings.NewReader(expected),
			"kafka_consumergroup_lag", "kafka_consumergroup_lag_sum", "kafka_consumergroup_current_offset_sum",
			"kafka_coordinator_group_groupmetadatamanager_numgroups", "kafka_coordinator_group_groupmetadatamanager_numgroupsempty",
			"kafka_server_group_coordinator_metrics_offset_commit_count")
		if err != nil {
			t.Fatal(err)
		}
	})
}

// maker is a TopicMaker that notes what it is asked for.
type maker struct {
	asked int
	made  int32
	err   error
	cfg   map[string]string
}

func (m *maker) EnsureTopic(_ context.Context, name string, partitions int32, replication int16, configs map[string]string) error {
	m.asked++
	if m.err == nil {
		m.made, m.cfg = partitions, configs
	}
	return m.err
}

func TestTopicIsMadeOnce(t *testing.T) {
	m := &maker{err: errors.New("no controller")}
	c := New(Config{Topics: m, Options: Defaults, Partitions: func() int32 { return m.made }, Now: time.Now})
	defer c.Close()
	want(t, "an error that clients try again after", c.EnsureTopic(t.Context()), error(coordinator.ErrNotAvailable))
	m.err = nil
	for range 2 {
		want(t, "made", c.EnsureTopic(t.Context()), nil)
	}
	want(t, "asked", m.asked, 2)
	want(t, "partitions", m.made, 50)
	want(t, "cleanup.policy", m.cfg["cleanup.policy"], "compact")
	want(t, "segment.bytes", m.cfg["segment.bytes"], "104857600")
}
