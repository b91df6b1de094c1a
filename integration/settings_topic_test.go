package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ottla/broker/config"
	"ottla/broker/registry"
	"ottla/compat"
	"ottla/protocol/record"
)

// topicEffect is a topic setting with the broker settings that give its default. It is seen at a topic that was
// created with it, at one that got it later, at topics of a broker that has the default from its start or from a
// change at run time, and not seen without it, before or after.
type topicEffect struct {
	setting string
	value   string
	from    []string // name=value of the broker, each by itself
	broker  []string // what else the broker needs
	topic   []string // what else the topic needs
	seen    func(h *house, topic string) bool
}

// tasks has the work that comes from time to time done all the time.
var tasks = []string{"log.retention.check.interval.ms=1", "log.initial.task.delay.ms=0", "log.flush.offset.checkpoint.interval.ms=1"}

var topicEffects = []topicEffect{
	{setting: "cleanup.policy", value: "compact", from: []string{"log.cleanup.policy=compact"}, seen: keysDemanded},
	{setting: "compression.type", value: "gzip", from: []string{"compression.type=gzip"}, seen: storedInGzip},
	{setting: "compression.gzip.level", value: "1", from: []string{"compression.gzip.level=1"},
		topic: []string{"compression.type=gzip"}, seen: otherSizeThan("compression.gzip.level=-1")},
	{setting: "compression.lz4.level", value: "1", from: []string{"compression.lz4.level=1"},
		topic: []string{"compression.type=lz4"}, seen: otherSizeThan("compression.lz4.level=9")},
	{setting: "compression.zstd.level", value: "19", from: []string{"compression.zstd.level=19"},
		topic: []string{"compression.type=zstd"}, seen: otherSizeThan("compression.zstd.level=3")},
	{setting: "delete.retention.ms", value: "0", from: []string{"log.cleaner.delete.retention.ms=0"}, broker: cleaning, topic: compacted, seen: tombstoneGone},
	{setting: "file.delete.delay.ms", value: "0", from: []string{"log.segment.delete.delay.ms=0"},
		broker: tasks, topic: []string{"retention.ms=1"}, seen: deletedFilesGone},
	{setting: "flush.messages", value: "1", from: []string{"log.flush.interval.messages=1"}, broker: tasks, seen: flushedLike("flush.messages=1")},
	{setting: "flush.ms", value: "0", from: []string{"log.flush.interval.ms=0"},
		broker: append([]string{"log.flush.interval.ms=3600000", "log.flush.scheduler.interval.ms=1"}, tasks...), seen: flushedLike("flush.ms=0")},
	{setting: "index.interval.bytes", value: "0", from: []string{"log.index.interval.bytes=0"}, seen: indexEntries},
	{setting: "internal.segment.bytes", value: "100", seen: rolled(0, 0)},
	{setting: "max.compaction.lag.ms", value: "1", from: []string{"log.cleaner.max.compaction.lag.ms=1"},
		broker: cleaning, topic: append([]string{"min.cleanable.dirty.ratio=1"}, separate...), seen: compactedNow},
	{setting: "max.decompressed.message.bytes", value: "1000", from: []string{"max.decompressed.message.bytes=1000"}, seen: bombRefused},
	{setting: "max.message.bytes", value: "500", from: []string{"message.max.bytes=500"}, seen: refused(10, func() []byte { return bytesOf(1000) })},
	{setting: "message.timestamp.after.max.ms", value: "1000", from: []string{"log.message.timestamp.after.max.ms=1000"},
		seen: refused(32, func() []byte { return at(nowMs() + hour) })},
	{setting: "message.timestamp.before.max.ms", value: "1000", from: []string{"log.message.timestamp.before.max.ms=1000"},
		seen: refused(32, func() []byte { return at(nowMs() - hour) })},
	{setting: "message.timestamp.difference.max.ms", value: "1000", from: []string{"log.message.timestamp.difference.max.ms=1000"}, seen: bothTimesRefused},
	{setting: "message.timestamp.type", value: "LogAppendTime", from: []string{"log.message.timestamp.type=LogAppendTime"}, seen: stamped},
	{setting: "min.cleanable.dirty.ratio", value: "0.001", from: []string{"log.cleaner.min.cleanable.ratio=0.001"}, broker: cleaning, topic: separate, seen: compactedAgain},
	{setting: "min.compaction.lag.ms", value: "3600000", from: []string{"log.cleaner.min.compaction.lag.ms=3600000"}, broker: cleaning, topic: compacted,
		seen: func(h *house, topic string) bool { return !compactedNow(h, topic) }},
	{setting: "preallocate", value: "true", from: []string{"log.preallocate=true"}, topic: []string{"segment.bytes=1048576"}, seen: reserved},
	{setting: "retention.bytes", value: "1", from: []string{"log.retention.bytes=1"}, broker: tasks,
		topic: []string{"internal.segment.bytes=100"}, seen: deleted(func() int64 { return nowMs() })},
	{setting: "retention.ms", value: "3600000", from: []string{"log.retention.ms=3600000", "log.retention.minutes=60", "log.retention.hours=1"},
		broker: tasks, seen: deleted(func() int64 { return nowMs() - 2*hour })},
	{setting: "segment.bytes", value: "1048576", from: []string{"log.segment.bytes=1048576"}, seen: rolledAfter(600_000)},
	{setting: "segment.index.bytes", value: "12", from: []string{"log.index.size.max.bytes=12"}, seen: rolled(0, 0)},
	{setting: "segment.jitter.ms", value: "3600000", from: []string{"log.roll.jitter.ms=3600000", "log.roll.jitter.hours=1"},
		// the third record is as late as a segment may take without jitter; the first one gets the segment its jitter
		topic: []string{"segment.ms=3600000"}, seen: rolled(0, 2*hour, 3*hour)},
	{setting: "segment.ms", value: "3600000", from: []string{"log.roll.ms=3600000", "log.roll.hours=1"}, seen: rolled(0, hour+1)},
}

func (e topicEffect) see(t *testing.T) {
	want := func(t *testing.T, h *house, topic string, want bool) {
		t.Helper()
		if got := e.seen(h, topic); got != want {
			t.Errorf("%s: seen %v, want %v", topic, got, want)
		}
	}
	set := e.setting + "=" + e.value
	t.Run("running", func(t *testing.T) {
		t.Parallel()
		h := open(t, e.broker...)
		plain := func(what string) string {
			topic := fresh(what)
			h.topic(topic, e.topic...)
			return topic
		}
		want(t, h, plain("without"), false)
		own := fresh("created-with")
		h.topic(own, append([]string{set}, e.topic...)...)
		want(t, h, own, true)
		altered := plain("altered")
		h.alter(forTopic, altered, set)
		want(t, h, altered, true)
		for _, from := range e.from {
			name, _, _ := strings.Cut(from, "=")
			if modeOf(t, name) != config.ClusterWide {
				continue
			}
			for _, broker := range []string{"", "1"} {
				h.alter(forBroker, broker, from)
				want(t, h, plain("broker-"+broker+"-altered"), true)
				h.alter(forBroker, broker, name)
				want(t, h, plain("broker-"+broker+"-restored"), false)
			}
		}
	})
	for _, from := range e.from {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			h := open(t, append(slices.Clone(e.broker), from)...)
			h.topic("default", e.topic...)
			want(t, h, "default", true)
		})
	}
}

func modeOf(t *testing.T, setting string) config.Mode {
	for _, r := range config.Table() {
		if r.Name == setting && r.Scope == "broker" {
			return r.Mode
		}
	}
	t.Fatalf("no setting %s", setting)
	return 0
}

func keysDemanded(h *house, topic string) bool {
	return h.produceTo(topic, newBatch(nil, values("without a key")...)).ErrorCode == 87
}

func storedInGzip(h *house, topic string) bool {
	h.store(topic, bytesOf(100))
	return record.Batch(h.fetchFrom(topic, 11).RecordBatches).Codec() == record.Gzip
}

// otherSizeThan sees that the same records take another size than in a topic with the given level.
func otherSizeThan(level string) func(*house, string) bool {
	return func(h *house, topic string) bool {
		codec, _, _ := strings.Cut(strings.TrimPrefix(level, "compression."), ".")
		h.topic(topic+"-beside", level, "compression.type="+codec)
		size := func(topic string) int {
			random := rand.New(rand.NewPCG(1, 2))
			var text bytes.Buffer
			for text.Len() < 100_000 {
				fmt.Fprintf(&text, "%d %s ", random.IntN(1000), strings.Repeat("word", random.IntN(4)))
			}
			h.store(topic, newBatch(nil, sample{key: []byte("k"), value: text.Bytes(), at: 1}))
			return len(h.fetchFrom(topic, 11).RecordBatches)
		}
		return size(topic) != size(topic+"-beside")
	}
}

// round waits until retention has been through all topics once.
func (h *house) round() {
	h.Helper()
	topic := fresh("round")
	h.topic(topic, "retention.ms=1", "file.delete.delay.ms=0")
	for next := range int64(2) { // between the two there is a whole round
		h.store(topic, at(1000))
		eventually(h, "old records are deleted", patience, func() bool { return h.start(topic) == next+1 })
	}
	eventually(h, "deleted files are removed", patience, func() bool { return len(h.files(topic, ".deleted")) == 0 })
}

func deletedFilesGone(h *house, topic string) bool {
	h.store(topic, at(1000))
	eventually(h, "the record is deleted", patience, func() bool { return h.start(topic) == 1 })
	h.round()
	return len(h.files(topic, ".deleted")) == 0
}

func deleted(of func() int64) func(*house, string) bool {
	return func(h *house, topic string) bool {
		for range 2 {
			h.store(topic, at(of()))
		}
		h.round()
		return h.start(topic) > 0
	}
}

// flushedLike sees the recovery point behind the record, once it is behind that of a later one in a topic that is
// flushed for certain.
func flushedLike(certainly string) func(*house, string) bool {
	return func(h *house, topic string) bool {
		h.store(topic, at(nowMs()))
		certain := fresh("certain")
		h.topic(certain, certainly)
		h.store(certain, at(nowMs()))
		point := func(topic string) int64 { return h.checkpoint("recovery-point-offset-checkpoint", topic) }
		eventually(h, "a recovery point", patience, func() bool { return point(certain) == 1 })
		return point(topic) == 1
	}
}

func indexEntries(h *house, topic string) bool {
	now := nowMs()
	for _, ms := range []int64{now, now, now, now + 8*24*hour} { // the last one begins the next segment
		h.store(topic, at(ms))
	}
	info, err := os.Stat(filepath.Join(h.dir, topic+"-0", h.files(topic, ".index")[0]))
	if err != nil {
		h.Fatal(err)
	}
	return info.Size() > 0
}

// rolled sees that each of the records, so many milliseconds after the first, has a segment of its own.
func rolled(after ...int64) func(*house, string) bool {
	return func(h *house, topic string) bool {
		begin := nowMs() - 24*hour
		for _, ms := range after {
			h.store(topic, at(begin+ms))
		}
		return len(h.files(topic, ".log")) == len(after)
	}
}

func rolledAfter(size int) func(*house, string) bool {
	return func(h *house, topic string) bool {
		for range 2 {
			h.store(topic, bytesOf(size))
		}
		return len(h.files(topic, ".log")) == 2
	}
}

func bombRefused(h *house, topic string) bool {
	return h.produceTo(topic, newBatch(gzipped, sample{key: []byte("k"), value: make([]byte, 100_000)})).ErrorCode != 0
}

func refused(code int16, batch func() []byte) func(*house, string) bool {
	return func(h *house, topic string) bool {
		got := h.produceTo(topic, batch()).ErrorCode
		if got != 0 && got != code {
			h.Errorf("error %d, want %d", got, code)
		}
		return got == code
	}
}

func bothTimesRefused(h *house, topic string) bool {
	before := h.produceTo(topic, at(nowMs()-hour)).ErrorCode
	after := h.produceTo(topic, at(nowMs()+hour)).ErrorCode
	if before != after {
		h.Errorf("an hour before: error %d, after: %d", before, after)
	}
	return before == 32
}

func stamped(h *house, topic string) bool {
	return h.produceTo(topic, at(1000)).LogAppendTime >= 0
}

func reserved(h *house, topic string) bool {
	h.store(topic, bytesOf(100))
	info, err := os.Stat(filepath.Join(h.dir, topic+"-0", h.files(topic, ".log")[0]))
	if err != nil {
		h.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks*512 >= 1<<20
}

// withoutSecond is a setting that counts where a replica is missing. The registry of a stopped broker is given topics
// with a second replica on broker 2, which never comes.
type withoutSecond struct {
	setting string
	value   string
	isr     []int32
	leader  int32
	without int16 // the error codes of Produce
	with    int16
}

var (
	minInsync = withoutSecond{setting: "min.insync.replicas", value: "2", isr: []int32{1, 2}, leader: 1, with: 19}
	unclean   = withoutSecond{setting: "unclean.leader.election.enable", value: "true", isr: []int32{2}, leader: 2, without: 6}
)

func seeWithoutSecondReplica(t *testing.T, e withoutSecond) {
	set := e.setting + "=" + e.value
	prepare := func(t *testing.T, topics map[string]string) (dir string) {
		dir = filepath.Join(t.TempDir(), "data")
		h := reopen(t, dir, nil)
		for topic, setting := range topics {
			h.topic(topic, strings.Fields(setting)...)
		}
		h.shut()
		tree, err := registry.OpenFile(filepath.Join(dir, "ottla.registry"))
		if err != nil {
			t.Fatal(err)
		}
		for topic := range topics {
			data, _, err := tree.Get(compat.PathTopic(topic), nil)
			if err != nil {
				t.Fatal(err)
			}
			node, err := compat.DecodeTopic(data)
			if err != nil {
				t.Fatal(err)
			}
			node.Partitions = [][]int32{{1, 2}}
			state := compat.StateNode{ControllerEpoch: 1, Leader: e.leader, LeaderEpoch: 1, ISR: e.isr}
			if _, err := tree.Multi(registry.Set(compat.PathTopic(topic), node.Encode(), registry.AnyVersion),
				registry.Set(compat.PathState(topic, 0), state.Encode(), registry.AnyVersion)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tree.Close(); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	want := func(h *house, topic string, code int16) {
		h.Helper()
		var got int16
		eventually(h, fmt.Sprintf("error %d of %s", code, topic), patience, func() bool {
			got = h.produceTo(topic, at(nowMs())).ErrorCode
			return got == code
		})
	}
	t.Run("running", func(t *testing.T) {
		t.Parallel()
		h := reopen(t, prepare(t, map[string]string{"created-with": set, "without": "", "altered": "", "cluster": "", "broker": ""}), nil)
		defer h.shut()
		want(h, "created-with", e.with)
		for _, topic := range []string{"altered", "cluster", "broker", "without"} {
			equal(t, topic, h.produceTo(topic, at(nowMs())).ErrorCode, e.without)
		}
		h.alter(forTopic, "altered", set)
		want(h, "altered", e.with)
		equal(t, "without", h.produceTo("without", at(nowMs())).ErrorCode, e.without)
		h.alter(forBroker, "", set)
		want(h, "cluster", e.with)
		h.alter(forBroker, "", e.setting)
	})
	t.Run("one broker's", func(t *testing.T) {
		t.Parallel()
		h := reopen(t, prepare(t, map[string]string{"broker": ""}), nil)
		defer h.shut()
		equal(t, "before", h.produceTo("broker", at(nowMs())).ErrorCode, e.without)
		h.alter(forBroker, "1", set)
		want(h, "broker", e.with)
	})
	t.Run("static", func(t *testing.T) {
		t.Parallel()
		h := reopen(t, prepare(t, map[string]string{"default": ""}), nil, set)
		defer h.shut()
		want(h, "default", e.with)
	})
}
