package integration

import (
	"encoding/hex"
	"math"
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// stage brings a fresh broker to the state that a recorded request and its answer speak of.
type stage struct {
	*wire
	r             *recording
	ids           map[[16]byte][16]byte // recorded topic ids to those given out here
	partitions    map[string]int32      // by topic
	records       map[string][]int64    // by topic: how many each partition needs to have
	missing       map[string]bool       // topics that the recorded broker did not have
	configs       []string              // of the topics: name, value pairs
	producer      *int64                // whose the records are; nil: nobody's
	member        *classic
	session       int32
	consumerEpoch int32 // of the member of a consumer group
}

// recordedTopic is the name that a topic gets of which a recording has the id alone.
func recordedTopic(id [16]byte) string { return "by-id-" + hex.EncodeToString(id[:4]) }

func (s *stage) set() {
	s.Helper()
	s.missing = map[string]bool{}
	s.gather(reflect.ValueOf(s.r.answer).Elem())
	s.gather(reflect.ValueOf(s.r.request).Elem())
	switch req := s.r.request.(type) {
	case *kmsg.CreateTopicsRequest:
		clear(s.partitions)
		for i := range req.Topics {
			if req.Topics[i].ReplicationFactor > 1 {
				req.Topics[i].ReplicationFactor = 1 // there is one broker
			}
		}
	case *kmsg.DescribeConfigsRequest:
		for _, r := range req.Resources {
			if r.ResourceType == kmsg.ConfigResourceTypeTopic {
				s.partitions[r.ResourceName] = 1
			}
		}
		for _, r := range s.r.answer.(*kmsg.DescribeConfigsResponse).Resources {
			for _, c := range r.Configs {
				if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
					s.configs = append(s.configs, c.Name, *c.Value)
				}
			}
		}
	case *kmsg.DescribeProducersRequest:
		id, _ := s.producerID()
		s.producer = &id
	case *kmsg.IncrementalAlterConfigsRequest:
		for _, r := range req.Resources {
			if r.ResourceType == kmsg.ConfigResourceTypeTopic {
				s.partitions[r.ResourceName] = 1
			}
		}
	case *kmsg.CreatePartitionsRequest:
		for _, t := range req.Topics {
			s.partitions[t.Topic] = t.Count - 1
		}
	case *kmsg.DeleteRecordsRequest:
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				s.need(t.Topic, p.Partition, p.Offset)
			}
		}
	}
	for topic, n := range s.partitions {
		if !s.missing[topic] && !strings.HasPrefix(topic, "__") {
			s.create(topic, max(n, 1))
		}
	}
	s.groups()
	s.sessions()
}

func (s *stage) create(topic string, n int32) {
	s.Helper()
	got := s.createTopic(topic, n, 1, false, 7, s.configs...)
	equal(s, "error of CreateTopics", got.ErrorCode, 0)
	for old := range s.ids {
		if recordedTopic(old) == topic {
			s.ids[old] = got.TopicID
		}
	}
	for partition, records := range s.records[topic] {
		for i := range records {
			var edit func(*kmsg.RecordBatch)
			if s.producer != nil {
				edit = from(*s.producer, 0, int32(i))
			}
			equal(s, "error of Produce", s.produceTo(topic, int32(partition), newBatch(edit, values("v")...)).ErrorCode, 0)
		}
	}
}

func (s *stage) need(topic string, partition int32, records int64) {
	for len(s.records[topic]) <= int(partition) {
		s.records[topic] = append(s.records[topic], 0)
	}
	s.records[topic][partition] = max(s.records[topic][partition], records)
}

// gather finds the topics of a request or an answer: structs that name one, with their partitions and
// the offsets that were asked for or told.
func (s *stage) gather(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			s.gather(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			s.gather(v.Index(i))
		}
	case reflect.Struct:
		topic := topicOf(v)
		if id := v.FieldByName("TopicID"); id.IsValid() && !id.IsZero() && topic == "" {
			recorded := id.Interface().([16]byte)
			topic = recordedTopic(recorded)
			s.ids[recorded] = [16]byte{}
		}
		if topic != "" {
			if code := v.FieldByName("ErrorCode"); code.IsValid() && (code.Int() == 3 || code.Int() == 5) {
				s.missing[topic] = true
			}
			s.partitions[topic] = max(s.partitions[topic], 1)
			if parts := v.FieldByName("Partitions"); parts.IsValid() {
				s.gatherPartitions(topic, parts)
			}
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				s.gather(v.Field(i))
			}
		}
	}
}

func topicOf(v reflect.Value) string {
	f := v.FieldByName("Topic")
	if f.IsValid() && f.Kind() == reflect.Pointer {
		f = f.Elem()
	}
	if !f.IsValid() || f.Kind() != reflect.String {
		return ""
	}
	return f.String()
}

func (s *stage) gatherPartitions(topic string, parts reflect.Value) {
	for i := range parts.Len() {
		p := parts.Index(i)
		if p.Kind() == reflect.Int32 {
			s.partitions[topic] = max(s.partitions[topic], int32(p.Int())+1)
			continue
		}
		partition := int32(p.FieldByName("Partition").Int())
		s.partitions[topic] = max(s.partitions[topic], partition+1)
		for _, told := range []string{"FetchOffset", "HighWatermark", "Size"} {
			if f := p.FieldByName(told); f.IsValid() && f.Int() > 0 && f.Int() < math.MaxInt64 { // the default of a request
				s.need(topic, partition, min(f.Int(), 50))
			}
		}
		if f := p.FieldByName("Offset"); f.IsValid() && f.Kind() == reflect.Int64 && s.r.header.Key == kmsg.ListOffsets.Int16() {
			s.need(topic, partition, min(f.Int(), 50))
		}
		if p.FieldByName("ActiveProducers").IsValid() {
			s.need(topic, partition, 1)
		}
	}
}

// groups makes the groups of the recording: with a member where one speaks, else empty.
func (s *stage) groups() {
	s.Helper()
	if loading(errorOf(s.r.answer)) {
		return // the recorded answer is that of a broker without coordinators
	}
	join := func(group string, sync bool) *classic {
		m := &classic{wire: dialWire(s, s.nc.RemoteAddr().String()), look: dialWire(s, s.nc.RemoteAddr().String()),
			group: group, session: 45000, rebalance: 60000, topics: []string{"t"}}
		m.look.coordinator(group, 0)
		if sync {
			settle(m)
		} else {
			equal(m, "error of JoinGroup", m.join().ErrorCode, 0)
		}
		return m
	}
	empty := func(group string) {
		s.Helper()
		equal(s, "error of LeaveGroup", join(group, true).leave(), 0)
	}
	switch req := s.r.request.(type) {
	case *kmsg.FindCoordinatorRequest:
		s.coordinator("x", req.CoordinatorType)
	case *kmsg.JoinGroupRequest:
		s.coordinator(req.Group, 0)
		if req.MemberID != "" {
			s.member = &classic{wire: dialWire(s, s.nc.RemoteAddr().String()), group: req.Group, session: 45000, rebalance: 60000}
			s.member.ready()
		}
	case *kmsg.SyncGroupRequest:
		s.member = join(req.Group, false)
	case *kmsg.HeartbeatRequest:
		s.member = join(req.Group, true)
	case *kmsg.LeaveGroupRequest:
		s.member = join(req.Group, true)
	case *kmsg.OffsetCommitRequest:
		s.coordinator(req.Group, 0)
		if req.MemberID != "" {
			s.member = join(req.Group, true)
		}
	case *kmsg.OffsetFetchRequest:
		for i, g := range req.Groups {
			s.coordinator(g.Group, 0)
			for _, t := range s.r.answer.(*kmsg.OffsetFetchResponse).Groups[i].Topics {
				for _, p := range t.Partitions {
					if p.Offset >= 0 {
						s.commitRecorded(g.Group, t.Topic, t.TopicID, p.Partition, min(p.LeaderEpoch, 0))
					}
				}
			}
			if g.MemberID != nil {
				s.member = join(g.Group, true)
			}
		}
	case *kmsg.ConsumerGroupHeartbeatRequest:
		s.coordinator(req.Group, 0)
		for _, t := range req.SubscribedTopicNames {
			s.create(t, 1)
		}
		if req.MemberEpoch != 0 {
			s.consumerEpoch = s.joinConsumer(req.Group, req.MemberID)
		}
	case *kmsg.ConsumerGroupDescribeRequest:
		for _, g := range s.r.answer.(*kmsg.ConsumerGroupDescribeResponse).Groups {
			s.coordinator(g.Group, 0)
			if g.ErrorCode == 0 { // recorded without members
				s.joinConsumer(g.Group, "m")
				leave := kmsg.NewPtrConsumerGroupHeartbeatRequest()
				leave.Group, leave.MemberID, leave.MemberEpoch = g.Group, "m", -1
				equal(s, "error of ConsumerGroupHeartbeat", ask[*kmsg.ConsumerGroupHeartbeatResponse](s.wire, leave, 1).ErrorCode, 0)
			}
		}
	case *kmsg.OffsetDeleteRequest:
		empty(req.Group)
		for _, t := range req.Topics {
			s.commitRecorded(req.Group, t.Topic, [16]byte{}, t.Partitions[0].Partition, -1)
		}
	case *kmsg.DescribeGroupsRequest:
		for _, g := range req.Groups {
			empty(g)
		}
	case *kmsg.DeleteGroupsRequest:
		for _, g := range req.Groups {
			empty(g)
		}
	case *kmsg.ListGroupsRequest:
		for _, g := range s.r.answer.(*kmsg.ListGroupsResponse).Groups {
			if g.GroupType == "classic" {
				empty(g.Group)
			}
		}
	case *kmsg.MetadataRequest:
		if s.partitions["__consumer_offsets"] > 0 {
			s.coordinator("x", 0)
		}
	case *kmsg.DescribeLogDirsRequest:
		if s.partitions["__consumer_offsets"] > 0 {
			s.coordinator("x", 0)
		}
	}
}

// joinConsumer lets a member join a group of the consumer protocol, and returns its epoch.
func (s *stage) joinConsumer(group, member string) int32 {
	s.Helper()
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.RebalanceTimeoutMillis = group, member, 60000
	req.SubscribedTopicNames, req.Topics = []string{}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](s.wire, req, 1)
	equal(s, "error of ConsumerGroupHeartbeat", resp.ErrorCode, 0)
	return resp.MemberEpoch
}

func (s *stage) commitRecorded(group, topic string, id [16]byte, partition, epoch int32) {
	s.Helper()
	if topic == "" {
		topic = recordedTopic(id)
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.LeaderEpoch = partition, epoch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	equal(s, "error of OffsetCommit", ask[*kmsg.OffsetCommitResponse](s.wire, req, 8).Topics[0].Partitions[0].ErrorCode, 0)
}

// errorOf is the error of an answer, or of its first element.
func errorOf(resp kmsg.Response) int16 {
	v := reflect.ValueOf(resp).Elem()
	if f, ok := resp.(*kmsg.FindCoordinatorResponse); ok && len(f.Coordinators) > 0 {
		v = reflect.ValueOf(f.Coordinators[0])
	}
	if code := v.FieldByName("ErrorCode"); code.IsValid() {
		return int16(code.Int())
	}
	return 0
}

// sessions makes the fetch session that an incremental fetch goes on with.
func (s *stage) sessions() {
	s.Helper()
	req, ok := s.r.request.(*kmsg.FetchRequest)
	if !ok || req.SessionID == 0 {
		return
	}
	full := kmsg.NewPtrFetchRequest()
	full.SessionEpoch = 0
	full.Topics = append(full.Topics, req.Topics...)
	if len(full.Topics) == 0 {
		full.Topics = fetchOf("session", s.createTopic("session", 1, 1, false, 7).TopicID, 0).Topics
	}
	s.topicIDs(reflect.ValueOf(full).Elem())
	s.session = ask[*kmsg.FetchResponse](s.wire, full, s.r.header.Version).SessionID
}

// substitute puts what this broker gave out in the place of what the recorded one did.
func (s *stage) substitute() {
	s.topicIDs(reflect.ValueOf(s.r.request).Elem())
	switch req := s.r.request.(type) {
	case *kmsg.ApiVersionsRequest:
		if req.ClusterID != nil {
			cluster := *ask[*kmsg.MetadataResponse](s.wire, metadataOf(false), 9).ClusterID
			req.ClusterID = &cluster
		}
	case *kmsg.FetchRequest:
		if req.SessionID != 0 {
			req.SessionID, req.SessionEpoch = s.session, 1
		}
		for i := range req.Topics {
			for j := range req.Topics[i].Partitions {
				if p := &req.Topics[i].Partitions[j]; p.CurrentLeaderEpoch > 0 {
					p.CurrentLeaderEpoch = 0
				}
			}
		}
	case *kmsg.ConsumerGroupHeartbeatRequest:
		if req.MemberEpoch > 0 {
			req.MemberEpoch = s.consumerEpoch
		}
	case *kmsg.ListOffsetsRequest:
		for i := range req.Topics {
			for j := range req.Topics[i].Partitions {
				if p := &req.Topics[i].Partitions[j]; p.CurrentLeaderEpoch > 0 {
					p.CurrentLeaderEpoch = 0
				}
			}
		}
	}
	if s.member == nil {
		return
	}
	id, generation := s.member.id, s.member.generation
	switch req := s.r.request.(type) {
	case *kmsg.JoinGroupRequest:
		req.MemberID = id
	case *kmsg.SyncGroupRequest:
		req.MemberID, req.Generation = id, generation
		for i := range req.GroupAssignment {
			req.GroupAssignment[i].MemberID = id
		}
	case *kmsg.HeartbeatRequest:
		req.MemberID, req.Generation = id, generation
	case *kmsg.LeaveGroupRequest:
		req.MemberID = id
		for i := range req.Members {
			req.Members[i].MemberID = id
		}
	case *kmsg.OffsetCommitRequest:
		req.MemberID, req.Generation = id, generation
	case *kmsg.OffsetFetchRequest:
		for i := range req.Groups {
			if req.Groups[i].MemberID != nil {
				req.Groups[i].MemberID = &id
				req.Groups[i].MemberEpoch = generation
			}
		}
	}
}

func (s *stage) topicIDs(v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			s.topicIDs(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				s.topicIDs(f)
			}
		}
	case reflect.Array:
		if id, ok := v.Interface().([16]byte); ok && s.ids[id] != ([16]byte{}) {
			v.Set(reflect.ValueOf(s.ids[id]))
		}
	}
}
