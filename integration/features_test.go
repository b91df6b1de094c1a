package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ottla/compat"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// finalized are the levels that ApiVersions tells, and their epoch.
func (w *wire) finalized() (levels map[string]int16, epoch int64) {
	w.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1"
	resp := ask[*kmsg.ApiVersionsResponse](w, req, 4)
	levels = map[string]int16{}
	for _, f := range resp.FinalizedFeatures {
		levels[f.Name] = f.MaxVersionLevel
	}
	return levels, resp.FinalizedFeaturesEpoch
}

// level brings a feature to a level.
func level(tb testing.TB, addr, feature string, to int16) {
	tb.Helper()
	w := dialWire(tb, addr)
	defer w.nc.Close()
	from, _ := w.finalized()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType = feature, to, 1
	if to < from[feature] {
		u.UpgradeType = 2
	}
	req.FeatureUpdates = append(req.FeatureUpdates, u)
	equal(tb, fmt.Sprintf("error of UpdateFeatures: %s to %d", feature, to), ask[*kmsg.UpdateFeaturesResponse](w, req, 2).ErrorCode, 0)
	equal(tb, "level", func() int16 { now, _ := w.finalized(); return now[feature] }(), to)
}

// nextGenHeartbeat joins a group of the next protocol, or says why not.
func (w *wire) nextGenHeartbeat(group string) int16 {
	w.Helper()
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.RebalanceTimeoutMillis = group, "AAAAAAAAAAAAAAAAAAAAAQ", 10000
	req.SubscribedTopicNames, req.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return ask[*kmsg.ConsumerGroupHeartbeatResponse](w, req, 1).ErrorCode
}

// TestFeatureLevels: kadm changes levels; they hold at once and over restarts, those that are off
// as well, and the epoch rises with each change.
func TestFeatureLevels(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	h := reopen(t, dir, nil, few)
	h.coordinated("g")
	defaults := map[string]int16{"group.version": 1, "metadata.version": 33, "transaction.version": 2}
	check := func(want map[string]int16, epoch int64) {
		t.Helper()
		if levels, is := h.finalized(); !maps.Equal(levels, want) || is != epoch {
			t.Fatalf("levels %v, epoch %d, want %v and %d", levels, is, want, epoch)
		}
	}
	update := func(validate bool, want error, updates ...kadm.FeatureUpdate) {
		t.Helper()
		admin := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(h.addr)))
		got, err := admin.UpdateFeatures(t.Context(), validate, updates...)
		if err == nil {
			err = got[updates[0].Feature].Err
		}
		if !errors.Is(err, want) {
			t.Fatalf("%+v: %v, want %v", updates, err, want)
		}
	}
	groupsOff := kadm.FeatureUpdate{Feature: "group.version", UpgradeType: 2}
	check(defaults, 0)
	update(true, nil, groupsOff)
	update(false, kerr.InvalidUpdateVersion, groupsOff, kadm.FeatureUpdate{Feature: "share.version", MaxVersionLevel: 1, UpgradeType: 1})
	check(defaults, 0)
	equal(t, "heartbeat", h.nextGenHeartbeat("g"), 0)

	update(false, nil, groupsOff, kadm.FeatureUpdate{Feature: "transaction.version", MaxVersionLevel: 1, UpgradeType: 3})
	off := map[string]int16{"metadata.version": 33, "transaction.version": 1}
	for start := range 3 {
		check(off, 1)
		equal(t, "heartbeat", h.nextGenHeartbeat("g"), kerr.UnsupportedVersion.Code)
		if start < 2 {
			equal(t, "a classic member", h.join(fmt.Sprint("classic", start), 30000).ErrorCode, 0)
			h.shut()
			h = reopen(t, dir, nil, few, "group.initial.rebalance.delay.ms=0")
			h.coordinated("g")
		}
	}
	update(false, nil, kadm.FeatureUpdate{Feature: "group.version", MaxVersionLevel: 1, UpgradeType: 1})
	equal(t, "heartbeat", h.nextGenHeartbeat("g"), 0)
	off["group.version"] = 1
	check(off, 2)
	h.shut()
}

// TestApiVersionsOfLater: a version that is not known is answered in version 0, with the versions of
// ApiVersions alone; the connection goes on. Names of clients that are none are refused.
func TestApiVersionsOfLater(t *testing.T) {
	t.Parallel()
	b := Start(t)
	w := dialWire(t, b.Addr())
	b1 := w.frame(kmsg.NewPtrApiVersionsRequest(), 5)
	b1[7] = 99 // the version, behind the length and the key
	w.write(b1)
	frame, err := w.read(patience)
	if err != nil {
		t.Fatal(err)
	}
	resp, _, err := decodeAnswer(kmsg.NewPtrApiVersionsRequest(), 0, frame)
	if err != nil {
		t.Fatal(err)
	}
	got := resp.(*kmsg.ApiVersionsResponse)
	if got.ErrorCode != kerr.UnsupportedVersion.Code || len(got.ApiKeys) != 1 || got.ApiKeys[0].ApiKey != 18 || got.ApiKeys[0].MaxVersion != 5 {
		t.Errorf("%+v", got)
	}
	for _, x := range []struct {
		name, version string
		code          int16
	}{{"a.b-c", "1.2-3", 0}, {"", "1", 42}, {"a", "", 42}, {"a b", "1", 42}, {"-a", "1", 42}, {"a-", "1", 42}, {"a", "1.", 42}, {"ä", "1", 42}} {
		for v := int16(3); v <= 5; v++ {
			req := kmsg.NewPtrApiVersionsRequest()
			req.ClientSoftwareName, req.ClientSoftwareVersion = x.name, x.version
			got := ask[*kmsg.ApiVersionsResponse](w, req, v)
			if got.ErrorCode != x.code || (len(got.ApiKeys) == 0) != (x.code != 0) {
				t.Errorf("v%d of %q %q: error %d, %d keys", v, x.name, x.version, got.ErrorCode, len(got.ApiKeys))
			}
		}
	}
	served := 0
	for _, a := range compat.APIs {
		if a.State == compat.Served {
			served++
		}
	}
	if !b.External() {
		equal(t, "keys of version 0", len(ask[*kmsg.ApiVersionsResponse](w, kmsg.NewPtrApiVersionsRequest(), 0).ApiKeys), served)
	}
}

// inTxn writes one record of a transaction: by the requests of transactions v2, or those before.
func (w *wire) inTxn(id, topic string, producer int64, epoch int16, sequence int32, v2 bool) int16 {
	w.Helper()
	version := int16(12)
	if !v2 {
		version = 11
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, producer, epoch
		rt := kmsg.NewAddPartitionsToTxnRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		req.Topics = append(req.Topics, rt)
		if code := ask[*kmsg.AddPartitionsToTxnResponse](w, req, 3).Topics[0].Partitions[0].ErrorCode; code != 0 {
			return code
		}
	}
	req := produceOf(topic, 0, newBatch(func(b *kmsg.RecordBatch) {
		b.Attributes |= 1 << 4
		from(producer, epoch, sequence)(b)
	}, values(fmt.Sprint(id, " ", epoch, " ", sequence))...))
	req.TransactionID = &id
	return ask[*kmsg.ProduceResponse](w, req, version).Topics[0].Partitions[0].ErrorCode
}

// endTxn commits; the epoch is that of the next transaction.
func (w *wire) endTxn(id string, producer int64, epoch, version int16) (next, code int16) {
	w.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = id, producer, epoch, true
	resp := ask[*kmsg.EndTxnResponse](w, req, version)
	if version < 5 {
		return epoch, resp.ErrorCode
	}
	return resp.ProducerEpoch, resp.ErrorCode
}

// TestTransactionsAcrossLevels: transaction.version changes while a transaction is open. Its producer
// has been told of the old level, or of the new one, and ends it by that one's requests; a broker that
// starts in between takes it up again. Kafka 4.4 answers the same, but that it cannot write at level
// 0 what the requests of transactions v2 have made.
func TestTransactionsAcrossLevels(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	h := reopen(t, dir, nil, fewTxn, few)
	h.transactional()
	h.topic("t")
	records := 0
	for _, restart := range []bool{false, true} {
		type open struct {
			id       string
			producer int64
			end      int16 // version of EndTxn
		}
		for from := range int16(3) {
			for to := range int16(3) {
				level(t, h.addr, "transaction.version", from)
				var all []open
				for _, v2 := range []bool{false, true} {
					for _, end := range []int16{3, 5} {
						o := open{id: fmt.Sprint(restart, from, to, v2, end), end: end}
						p := h.initProducer(o.id, 60000)
						equal(t, "error of InitProducerId", p.ErrorCode, 0)
						o.producer = p.ProducerID
						equal(t, o.id+": write", h.inTxn(o.id, "t", o.producer, 0, 0, v2), 0)
						all = append(all, o)
					}
				}
				level(t, h.addr, "transaction.version", to)
				if restart {
					h.shut()
					h = reopen(t, dir, nil, fewTxn, few)
					h.transactional()
				}
				for _, o := range all {
					equal(t, o.id+": write on", h.inTxn(o.id, "t", o.producer, 0, 1, o.end == 5), 0)
					next, code := h.endTxn(o.id, o.producer, 0, o.end)
					equal(t, o.id+": end", code, 0)
					equal(t, o.id+": epoch after it", next, map[int16]int16{3: 0, 5: 1}[o.end])
					sequence := int32(2)
					if next == 1 {
						sequence = 0
						eventually(t, o.id+": the end again, as after a lost answer", patience, func() bool {
							again, code := h.endTxn(o.id, o.producer, 0, o.end)
							if code != kerr.ConcurrentTransactions.Code { // as long as the markers are on their way
								equal(t, o.id+": end again", [2]int16{again, code}, [2]int16{1, 0})
							}
							return code == 0
						})
					}
					eventually(t, o.id+": goes on", patience, func() bool { // the markers are on their way
						return h.inTxn(o.id, "t", o.producer, next, sequence, o.end == 5) == 0
					})
					_, code = h.endTxn(o.id, o.producer, next, o.end)
					equal(t, o.id+": second end", code, 0)
					records += 3
				}
			}
			if restart && from == 1 {
				break // two of them are enough to see it
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := consumeAll(ctx, t, h.addr, "t", records, kgo.ReadCommitted())
	if len(got) != records || len(slices.Compact(got)) != records {
		t.Errorf("%d records, %d of them different, want %d", len(got), len(slices.Compact(got)), records)
	}
	h.shut()
}

// TestClientsAcrossLevels: a client's transactions go on while the level changes, without a record
// lost or doubled.
func TestClientsAcrossLevels(t *testing.T) {
	t.Parallel()
	for name, v := range kgoVersions {
		t.Run(name, func(t *testing.T) {
			h := open(t, fewTxn, few)
			h.transactional()
			h.topic("t")
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			cl := kgoDial(t, kgoOptions(h.addr, v, kgo.TransactionalID("levels"), kgo.DefaultProduceTopic("t"), kgo.ProducerLinger(0))...)
			var want []string
			for i, to := range []int16{1, 0, 2, 1, 2, 0, 1, 2} {
				if err := cl.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				for half := range 2 {
					value := fmt.Sprintf("%d %d", i, half)
					if err := cl.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
						t.Fatalf("%s: %v", value, err)
					}
					if half == 0 {
						level(t, h.addr, "transaction.version", to)
					}
					if i%3 != 2 {
						want = append(want, value)
					}
				}
				if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(i%3 != 2)); err != nil {
					t.Fatalf("end %d: %v", i, err)
				}
			}
			slices.Sort(want)
			if got := consumeAll(ctx, t, h.addr, "t", len(want), kgo.ReadCommitted()); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestGroupsAcrossLevels: members of the next protocol stand still while group.version is 0, and go on
// afterwards where they were; classic ones notice nothing.
func TestGroupsAcrossLevels(t *testing.T) {
	t.Parallel()
	h := open(t, few, "group.initial.rebalance.delay.ms=0")
	h.coordinated("next")
	h.topic("t")
	equal(t, "join", h.nextGenHeartbeat("next"), 0)
	cl := kgoDial(t, kgo.SeedBrokers(h.addr), kgo.ConsumeTopics("t"), kgo.ConsumerGroup("classic"), kgo.FetchMaxWait(50*time.Millisecond))
	read := func(value string) {
		t.Helper()
		h.stored("t", newBatch(nil, values(value)...))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			fs := cl.PollFetches(ctx)
			if err := fs.Err(); err != nil {
				t.Fatalf("%s: %v", value, err)
			}
			if all := fs.Records(); len(all) > 0 && string(all[len(all)-1].Value) == value {
				break
			}
		}
		if err := cl.CommitUncommittedOffsets(ctx); err != nil {
			t.Fatal(err)
		}
	}
	read("a")
	level(t, h.addr, "group.version", 0)
	equal(t, "heartbeat", h.nextGenHeartbeat("next"), kerr.UnsupportedVersion.Code)
	read("b")
	level(t, h.addr, "group.version", 1)
	equal(t, "heartbeat", h.nextGenHeartbeat("next"), 0)
	read("c")
}
