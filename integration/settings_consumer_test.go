package integration

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupEffects are the settings of a single group.
var groupEffects = []struct {
	setting string
	see     func(t *testing.T)
}{
	{"consumer.heartbeat.interval.ms", seeGroupHeartbeatInterval},
	{"consumer.session.timeout.ms", seeGroupSessionTimeout},
}

// beat is the heartbeat of a member of a consumer group; epoch 0 joins.
func (h *house) beat(group, member string, epoch int32, change ...func(*kmsg.ConsumerGroupHeartbeatRequest)) *kmsg.ConsumerGroupHeartbeatResponse {
	h.Helper()
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = group, member, epoch
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if epoch == 0 {
		req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 60000, []string{"t"}
	}
	for _, f := range change {
		f(req)
	}
	return ask[*kmsg.ConsumerGroupHeartbeatResponse](h.wire, req, 1)
}

// members is how many a consumer group has.
func (h *house) members(group string) int {
	h.Helper()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	return len(ask[*kmsg.ConsumerGroupDescribeResponse](h.wire, req, 1).Groups[0].Members)
}

func seeConsumerAssignors(t *testing.T) {
	h := open(t, few, "group.consumer.assignors=block,range")
	h.coordinated("g")
	equal(t, "create", h.create("t", 4, 1), 0)
	for _, m := range []string{"a", "b", "c"} { // 2, 2 and none
		equal(t, "join", h.beat("g", m, 0).ErrorCode, 0)
	}
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{"g"}
	g := ask[*kmsg.ConsumerGroupDescribeResponse](h.wire, req, 1).Groups[0]
	equal(t, "assignor", g.AssignorName, "block")
	equal(t, "topics of the last", len(g.Members[2].TargetAssignment.TopicPartitions), 0)
	uniform := "uniform"
	r := h.beat("g", "d", 0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = &uniform })
	equal(t, "an assignor that is not named", r.ErrorCode, 112)
}

func seeConsumerHeartbeat(t *testing.T) {
	h := open(t, few, "group.consumer.heartbeat.interval.ms=6789")
	h.coordinated("g")
	equal(t, "interval", h.beat("g", "m", 0).HeartbeatIntervalMillis, 6789)
}

func seeConsumerSession(t *testing.T) {
	h := open(t, few, "group.consumer.session.timeout.ms=300")
	h.coordinated("g")
	equal(t, "join", h.beat("g", "m", 0).ErrorCode, 0)
	eventually(t, "the member is out", patience, func() bool { return h.members("g") == 0 })
}

func seeConsumerMaxSize(t *testing.T) {
	h := open(t, few, "group.consumer.max.size=1")
	h.coordinated("g")
	equal(t, "the first", h.beat("g", "m", 0).ErrorCode, 0)
	equal(t, "the second", h.beat("g", "n", 0).ErrorCode, 81)
}

func seeMigrationPolicy(t *testing.T) {
	for _, x := range []struct {
		policy string
		code   int16
	}{{"Bidirectional", 0}, {"UPGRADE", 0}, {"downgrade", 69}, {"disabled", 69}} {
		h := open(t, few, "group.initial.rebalance.delay.ms=0", "group.consumer.migration.policy="+x.policy)
		h.coordinated("g")
		equal(t, "create", h.create("t", 4, 1), 0)
		req, told := joinRequest("g", 30000), kmsg.NewConsumerMemberMetadata()
		told.Topics = []string{"t"}
		req.Protocols[0].Metadata = told.AppendTo(nil)
		equal(t, "join with the classic protocol", ask[*kmsg.JoinGroupResponse](h.wire, req, 3).ErrorCode, 0)
		equal(t, "join with the other, "+x.policy, h.beat("g", "m", 0).ErrorCode, x.code)
		h.shut()
	}
}

func seeRebalanceProtocols(t *testing.T) {
	h := open(t, few, "group.coordinator.rebalance.protocols=classic")
	h.coordinated("g")
	equal(t, "join", h.beat("g", "m", 0).ErrorCode, 35)
}

// seeConsumerBounds: what a single group may set; a bound that is moved counts for what was set before.
func seeConsumerBounds(t *testing.T) {
	h := open(t, few, "group.consumer.min.heartbeat.interval.ms=2000", "group.consumer.max.heartbeat.interval.ms=3000",
		"group.consumer.min.session.timeout.ms=4000", "group.consumer.max.session.timeout.ms=6000")
	for _, x := range []struct {
		setting string
		code    int16
	}{
		{"consumer.heartbeat.interval.ms=1999", 40}, {"consumer.heartbeat.interval.ms=2000", 0}, {"consumer.heartbeat.interval.ms=3001", 40},
		{"consumer.session.timeout.ms=3999", 40}, {"consumer.session.timeout.ms=6000", 0}, {"consumer.session.timeout.ms=6001", 40},
	} {
		equal(t, x.setting, h.tryAlter(kmsg.ConfigResourceTypeGroupConfig, "g", x.setting).ErrorCode, x.code)
	}
}

func seeGroupHeartbeatInterval(t *testing.T) {
	h := open(t, few)
	h.coordinated("g")
	equal(t, "interval", h.beat("g", "m", 0).HeartbeatIntervalMillis, 5000)
	h.alter(kmsg.ConfigResourceTypeGroupConfig, "g", "consumer.heartbeat.interval.ms=7000")
	equal(t, "interval", h.beat("g", "n", 0).HeartbeatIntervalMillis, 7000)
	equal(t, "interval of another group", h.beat("h", "n", 0).HeartbeatIntervalMillis, 5000)
}

func seeGroupSessionTimeout(t *testing.T) {
	h := open(t, few, "group.consumer.min.session.timeout.ms=100", "group.consumer.min.heartbeat.interval.ms=100")
	h.coordinated("g")
	h.alter(kmsg.ConfigResourceTypeGroupConfig, "g", "consumer.session.timeout.ms=200", "consumer.heartbeat.interval.ms=100")
	begun := time.Now()
	equal(t, "join", h.beat("g", "m", 0).ErrorCode, 0)
	eventually(t, "the member is out", patience, func() bool { return h.members("g") == 0 })
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("out after %v", took)
	}
}
