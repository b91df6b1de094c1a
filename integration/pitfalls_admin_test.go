package integration

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var adminPitfalls = []pitfall{
	{"admin-1", creationWithDefaults}, {"admin-2", creationReply}, {"admin-3", oldAlterConfigs}, {"admin-4", describedConfigs},
	{"admin-5", describedLogDirs}, {"admin-6", deletedRecords}, {"admin-7", electedLeaders},
}

// describeConfigs asks for one resource and returns its error and its entries by name.
func (w *wire) describeConfigs(kind kmsg.ConfigResourceType, name string, synonyms bool, version int16) (int16, map[string]kmsg.DescribeConfigsResponseResourceConfig) {
	w.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = synonyms
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	req.Resources = append(req.Resources, r)
	got := ask[*kmsg.DescribeConfigsResponse](w, req, version).Resources[0]
	all := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, c := range got.Configs {
		all[c.Name] = c
	}
	return got.ErrorCode, all
}

func (w *wire) topicConfig(topic, name string) string {
	w.Helper()
	_, all := w.describeConfigs(kmsg.ConfigResourceTypeTopic, topic, false, 4)
	if all[name].Value == nil {
		return "null"
	}
	return *all[name].Value
}

func creationWithDefaults(p *pit) {
	w := p.dial("num.partitions=3")
	for v := int16(4); v <= 7; v++ {
		topic := p.name()
		got := w.createTopic(topic, -1, -1, false, v)
		equal(p, fmt.Sprintf("v%d: error", v), got.ErrorCode, 0)
		if v >= 5 {
			equal(p, "partitions in the reply", got.NumPartitions, 3)
			equal(p, "replication in the reply", got.ReplicationFactor, 1)
		}
		m := w.metadata(topic).Topics[0]
		equal(p, "partitions", len(m.Partitions), 3)
		equal(p, "replicas", len(m.Partitions[0].Replicas), 1)
	}
	equal(p, "error of 0 partitions", w.createTopic(p.name(), 0, 1, false, 7).ErrorCode, 37)
	equal(p, "error of replication 0", w.createTopic(p.name(), 1, 0, false, 7).ErrorCode, 38)
	equal(p, "error of replication 2 with one broker", w.createTopic(p.name(), 1, 2, false, 7).ErrorCode, 38)
}

func creationReply(p *pit) {
	w := p.dial()
	for v := int16(5); v <= 7; v++ {
		topic := p.name()
		for _, validate := range []bool{true, false} {
			got := w.createTopic(topic, 2, 1, validate, v, "retention.ms", "7654321")
			equal(p, "error", got.ErrorCode, 0)
			equal(p, "partitions", got.NumPartitions, 2)
			equal(p, "replication", got.ReplicationFactor, 1)
			equal(p, "error of the configs", got.ConfigErrorCode, 0)
			equal(p, "there is no topic id", v >= 7 && !validate && got.TopicID == [16]byte{}, false)
			seen := map[string]kmsg.CreateTopicsResponseTopicConfig{}
			for _, c := range got.Configs {
				seen[c.Name] = c
			}
			equal(p, "retention.ms", *seen["retention.ms"].Value, "7654321")
			equal(p, "source of retention.ms", seen["retention.ms"].Source, 1)
			equal(p, "source of cleanup.policy", seen["cleanup.policy"].Source, 5)
			if validate {
				equal(p, "error of Metadata after validate_only", w.metadata(topic).Topics[0].ErrorCode, 3)
				continue
			}
			_, all := w.describeConfigs(kmsg.ConfigResourceTypeTopic, topic, false, 4)
			for name := range all {
				if _, ok := seen[name]; !ok {
					p.Errorf("v%d: no %s in the reply", v, name)
				}
			}
			equal(p, "configs in the reply", len(seen), len(all))
		}
		equal(p, "error of validate_only for a topic that exists", w.createTopic(topic, 2, 1, true, v).ErrorCode, 36)
	}
}

func oldAlterConfigs(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1, "segment.bytes", "2000000")
	fresh, _ := p.topic(w, 1)

	incremental := kmsg.NewPtrIncrementalAlterConfigsRequest()
	ir := kmsg.NewIncrementalAlterConfigsRequestResource()
	ir.ResourceType, ir.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	ic := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	ic.Name, ic.Value = "retention.ms", kmsg.StringPtr("111111")
	ir.Configs = append(ir.Configs, ic)
	incremental.Resources = append(incremental.Resources, ir)
	for v := range int16(2) {
		equal(p, "error of the incremental call", ask[*kmsg.IncrementalAlterConfigsResponse](w, incremental, v).Resources[0].ErrorCode, 0)
		equal(p, "retention.ms after it", w.topicConfig(topic, "retention.ms"), "111111")
		equal(p, "segment.bytes after it", w.topicConfig(topic, "segment.bytes"), "2000000")
	}

	old := kmsg.NewPtrAlterConfigsRequest()
	or := kmsg.NewAlterConfigsRequestResource()
	or.ResourceType, or.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	oc := kmsg.NewAlterConfigsRequestResourceConfig()
	oc.Name, oc.Value = "retention.ms", kmsg.StringPtr("222222")
	or.Configs = append(or.Configs, oc)
	old.Resources = append(old.Resources, or)
	for v := range int16(3) {
		equal(p, "error of the old call", ask[*kmsg.AlterConfigsResponse](w, old, v).Resources[0].ErrorCode, 0)
		equal(p, "retention.ms after it", w.topicConfig(topic, "retention.ms"), "222222")
		equal(p, "segment.bytes after it", w.topicConfig(topic, "segment.bytes"), w.topicConfig(fresh, "segment.bytes"))
	}

	old.ValidateOnly = true
	old.Resources[0].Configs[0].Value = kmsg.StringPtr("no number")
	equal(p, "error of a bad value", ask[*kmsg.AlterConfigsResponse](w, old, 2).Resources[0].ErrorCode, 40)
	old.Resources[0].Configs[0].Value = kmsg.StringPtr("333333")
	equal(p, "error of validate_only", ask[*kmsg.AlterConfigsResponse](w, old, 2).Resources[0].ErrorCode, 0)
	equal(p, "retention.ms after validate_only", w.topicConfig(topic, "retention.ms"), "222222")
}

func describedConfigs(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1, "retention.ms", "7654321", "segment.bytes", "2222222")
	types := map[string]kmsg.ConfigType{
		"retention.ms": 5, "cleanup.policy": 7, "segment.bytes": 3, "compression.type": 2, "preallocate": 1, "min.cleanable.dirty.ratio": 6,
		"max.message.bytes": 3, "min.insync.replicas": 3, "flush.ms": 5, "delete.retention.ms": 5, "message.timestamp.type": 2,
		"unclean.leader.election.enable": 1,
	}
	for v := int16(1); v <= 4; v++ {
		for _, synonyms := range []bool{false, true} {
			code, all := w.describeConfigs(kmsg.ConfigResourceTypeTopic, topic, synonyms, v)
			equal(p, "error", code, 0)
			for name, kind := range types {
				c, ok := all[name]
				if !ok {
					p.Fatalf("v%d: no %s", v, name)
				}
				source := kmsg.ConfigSourceDefaultConfig
				if name == "retention.ms" || name == "segment.bytes" {
					source = kmsg.ConfigSourceDynamicTopicConfig
				}
				equal(p, "source of "+name, c.Source, source)
				equal(p, "type of "+name, v >= 3 && c.ConfigType != kind, false)
				equal(p, name+" has synonyms unasked", !synonyms && len(c.ConfigSynonyms) > 0, false)
			}
			equal(p, "retention.ms", *all["retention.ms"].Value, "7654321")
			equal(p, "cleanup.policy", *all["cleanup.policy"].Value, "delete")
			if !synonyms {
				continue
			}
			for name, want := range map[string]string{
				"segment.bytes":  "segment.bytes=2222222/1 log.segment.bytes=1073741824/5",
				"retention.ms":   "retention.ms=7654321/1",
				"cleanup.policy": "log.cleanup.policy=delete/5",
			} {
				var list []string
				for _, s := range all[name].ConfigSynonyms {
					list = append(list, fmt.Sprintf("%s=%s/%d", s.Name, *s.Value, s.Source))
				}
				equal(p, "synonyms of "+name, strings.Join(list, " "), want)
			}
		}
	}
	code, all := w.describeConfigs(kmsg.ConfigResourceTypeTopic, p.name(), false, 4)
	equal(p, "error of a missing topic", code, 3)
	equal(p, "configs of a missing topic", len(all), 0)
	code, all = w.describeConfigs(kmsg.ConfigResourceTypeBroker, fmt.Sprint(w.metadata().Brokers[0].NodeID), false, 4)
	equal(p, "error of the broker", code, 0)
	equal(p, "type of the broker's num.partitions", all["num.partitions"].ConfigType, 3)
	code, _ = w.describeConfigs(kmsg.ConfigResourceTypeBroker, "4711", false, 4)
	equal(p, "error of another broker's id", code, 42)
}

func describedLogDirs(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 2)
	other, _ := p.topic(w, 1)
	batch := newBatch(nil, sample{value: make([]byte, 1000)})
	w.stored(topic, batch)
	sizes := func(v int16, topics []kmsg.DescribeLogDirsRequestTopic) map[string]int64 {
		p.Helper()
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Topics = topics
		got := ask[*kmsg.DescribeLogDirsResponse](w, req, v)
		equal(p, "error", got.ErrorCode, 0)
		equal(p, "directories", len(got.Dirs), 1)
		d := got.Dirs[0]
		equal(p, "error of the directory", d.ErrorCode, 0)
		if v >= 4 && (d.UsableBytes <= 0 || d.UsableBytes > d.TotalBytes) {
			p.Errorf("v%d: %d usable bytes of %d", v, d.UsableBytes, d.TotalBytes)
		}
		all := map[string]int64{}
		for _, dt := range d.Topics {
			for _, dp := range dt.Partitions {
				all[fmt.Sprintf("%s-%d", dt.Topic, dp.Partition)] = dp.Size
				equal(p, "lag", dp.OffsetLag, 0)
				equal(p, "future", dp.IsFuture, false)
			}
		}
		return all
	}
	one := func(topic string) []kmsg.DescribeLogDirsRequestTopic {
		rt := kmsg.NewDescribeLogDirsRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		return []kmsg.DescribeLogDirsRequestTopic{rt}
	}
	_, high := w.announced(kmsg.DescribeLogDirs)
	for v := int16(0); v <= high; v++ {
		all := sizes(v, nil)
		for name, size := range map[string]int64{topic + "-0": int64(len(batch)), topic + "-1": 0, other + "-0": 0} {
			if got, ok := all[name]; !ok || got != size {
				p.Errorf("v%d: %s has %d bytes (listed: %v), want %d", v, name, got, ok, size)
			}
		}
		filtered := sizes(v, one(topic))
		equal(p, "partitions of the filtered list", len(filtered), 1)
		equal(p, "size in the filtered list", filtered[topic+"-0"], int64(len(batch)))
		equal(p, "partitions of an unknown topic", len(sizes(v, one(p.name()))), 0)
		equal(p, "partitions of an empty list", len(sizes(v, []kmsg.DescribeLogDirsRequestTopic{})), 0)
	}
}

func (w *wire) deleteRecords(topic string, to int64) kmsg.DeleteRecordsResponseTopicPartition {
	w.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 10000
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Offset = to
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.DeleteRecordsResponse](w, req, 2).Topics[0].Partitions[0]
}

func deletedRecords(p *pit) {
	ten := values(strings.Fields("0 1 2 3 4 5 6 7 8 9")...)
	p.part("offsets", func(p *pit) {
		w := p.dial()
		topic, _ := p.topic(w, 1)
		w.stored(topic, newBatch(nil, ten...))
		check := func(what, topic string, to int64, code int16, low int64) {
			p.Helper()
			got := w.deleteRecords(topic, to)
			equal(p, "error of "+what, got.ErrorCode, code)
			equal(p, "low watermark of "+what, got.LowWatermark, low)
		}
		check("5", topic, 5, 0, 5)
		equal(p, "earliest", w.start(topic), 5)
		got := w.fetch(topic, 5, 0)
		equal(p, "error of Fetch from 5", got.ErrorCode, 0)
		equal(p, "log start told by Fetch", got.LogStartOffset, 5)
		equal(p, "batches from 5", len(batchesIn(p, got.RecordBatches)), 1)
		equal(p, "error of Fetch from 4", w.fetch(topic, 4, 0).ErrorCode, 1)
		check("3, below the start", topic, 3, 0, 5)
		check("99", topic, 99, 1, -1)
		check("-1", topic, -1, 0, 10)
		check("-2", topic, -2, 1, -1)
		equal(p, "earliest after -1", w.start(topic), 10)
		check("a missing topic", p.name(), 0, 3, -1)
		next := w.produce(topic, newBatch(nil, values("x")...))
		equal(p, "error of Produce after it", next.ErrorCode, 0)
		equal(p, "offset of Produce after it", next.BaseOffset, 10)

		keyed := newBatch(nil, sample{key: []byte("k"), value: []byte("v")})
		compact, _ := p.topic(w, 1, "cleanup.policy", "compact")
		w.stored(compact, keyed)
		check("a compacted topic", compact, 1, 44, -1)
		both, _ := p.topic(w, 1, "cleanup.policy", "compact,delete")
		w.stored(both, keyed)
		check("compact,delete", both, 1, 0, 1)
	})
	p.part("restarts", func(p *pit) {
		b := p.process()
		w := dialWire(p, b.Addr())
		topic, _ := p.topic(w, 1)
		w.stored(topic, newBatch(nil, ten...))
		equal(p, "error of DeleteRecords", w.deleteRecords(topic, 5).ErrorCode, 0)
		b.Stop()
		b.Start()
		w = dialWire(p, b.Addr())
		equal(p, "earliest after a stop", w.start(topic), 5)
		equal(p, "error of DeleteRecords", w.deleteRecords(topic, 6).ErrorCode, 0)
		b.Restart()
		w = dialWire(p, b.Addr())
		equal(p, "latest after kill -9", w.end(topic), 10)
		// The start goes to disk by a checkpoint once a minute, so a kill may take the last move back.
		start := w.start(topic)
		if start != 5 && start != 6 {
			p.Errorf("earliest after kill -9: %d", start)
		}
		equal(p, "error of Fetch from the start", w.fetch(topic, start, 0).ErrorCode, 0)
		equal(p, "error of DeleteRecords", w.deleteRecords(topic, 7).ErrorCode, 0)
		equal(p, "error of Fetch below", w.fetch(topic, 6, 0).ErrorCode, 1)
	})
}

func electedLeaders(p *pit) {
	w := p.dial()
	elect := func(topic string, partitions ...int32) *kmsg.ElectLeadersResponse {
		p.Helper()
		req := kmsg.NewPtrElectLeadersRequest()
		req.TimeoutMillis = 10000
		if topic != "" {
			rt := kmsg.NewElectLeadersRequestTopic()
			rt.Topic, rt.Partitions = topic, partitions
			req.Topics = append(req.Topics, rt)
		} else {
			req.Topics = nil
		}
		return ask[*kmsg.ElectLeadersResponse](w, req, 2)
	}
	topic, _ := p.topic(w, 2)
	got := elect(topic, 0, 1)
	equal(p, "error", got.ErrorCode, 0)
	var codes []int16
	for _, ep := range got.Topics[0].Partitions {
		codes = append(codes, ep.ErrorCode)
	}
	equal(p, "partitions led by their preferred replica", slices.Equal(codes, []int16{84, 84}), true)
	equal(p, "error of an unknown partition", elect(topic, 7).Topics[0].Partitions[0].ErrorCode, 3)
	equal(p, "error of an unknown topic", elect(p.name(), 0).Topics[0].Partitions[0].ErrorCode, 3)
	got = elect("")
	equal(p, "error of null", got.ErrorCode, 0)
	for _, et := range got.Topics {
		equal(p, "partitions listed for null", len(et.Partitions), 0)
	}
}
