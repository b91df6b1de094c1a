package integration

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const forGroup = kmsg.ConfigResourceTypeGroupConfig

// configuredGroups are the groups that ListConfigResources names.
func (h *house) configuredGroups() (names []string) {
	h.Helper()
	req := kmsg.NewPtrListConfigResourcesRequest()
	req.ResourceTypes = []int8{int8(forGroup)}
	for _, r := range ask[*kmsg.ListConfigResourcesResponse](h.wire, req, 1).ConfigResources {
		names = append(names, r.Name)
	}
	return names
}

// TestGroupConfigs: the settings of a group act at once on the members that it has, outlive a restart
// and go back to the broker's when they are deleted.
func TestGroupConfigs(t *testing.T) {
	t.Parallel()
	settings := []string{few, "group.consumer.min.session.timeout.ms=100", "group.consumer.min.heartbeat.interval.ms=50"}
	dir := filepath.Join(t.TempDir(), "data")
	h := reopen(t, dir, nil, settings...)
	h.coordinated("g")
	const group = "g ü/%"
	// interval is what a member is told that goes on.
	epoch := int32(0)
	interval := func() int32 {
		t.Helper()
		r := h.beat(group, "m", epoch)
		equal(t, "heartbeat", r.ErrorCode, 0)
		epoch = r.MemberEpoch
		return r.HeartbeatIntervalMillis
	}
	equal(t, "interval", interval(), 5000)
	h.alter(forGroup, group, "consumer.heartbeat.interval.ms=6000", "consumer.session.timeout.ms=50000")
	equal(t, "interval after the change", interval(), 6000)
	equal(t, "groups with settings", len(h.configuredGroups()), 1)

	h.shut()
	h = reopen(t, dir, nil, settings...)
	h.coordinated("g")
	eventually(t, "the member is there", patience, func() bool { return h.members(group) == 1 })
	equal(t, "interval after a restart", interval(), 6000)
	equal(t, "groups with settings", h.configuredGroups()[0], group)

	h.alter(forGroup, group, "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms")
	equal(t, "interval of the broker", interval(), 5000)
	equal(t, "groups with settings", len(h.configuredGroups()), 0)

	h.alter(forGroup, group, "consumer.heartbeat.interval.ms=50", "consumer.session.timeout.ms=200")
	equal(t, "interval", interval(), 50)
	begun := time.Now()
	eventually(t, "the silent member is out", patience, func() bool { return h.members(group) == 0 })
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("out after %v", took)
	}
	h.shut()
}
