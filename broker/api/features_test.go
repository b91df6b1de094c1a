package api

import (
	"testing"

	"ottla/broker/metadata"
	"ottla/compat"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestFeatures: clients learn which levels the cluster has agreed on, from version 3 on; those of
// version 3 must not see a feature whose lowest level is 0.
func TestFeatures(t *testing.T) {
	for _, x := range []struct {
		levels map[string]int16
		epoch  int64
		want   int16
	}{{map[string]int16{compat.TransactionVersion: 2, "unknown": 1}, 5, 2}, {nil, 3, 0}, {nil, -1, 0}} {
		s := bare(on(compat.ApiVersions, (*API).apiVersions, beforeLogin))
		s.Meta.Store(&metadata.Picture{})
		s.Features = func() (map[string]int16, int64) { return x.levels, x.epoch }
		for version := int16(3); version <= compat.ApiVersions.Max; version++ {
			req := kmsg.NewPtrApiVersionsRequest()
			req.ClientSoftwareName, req.ClientSoftwareVersion = "a", "1"
			resp := ask[*kmsg.ApiVersionsResponse](t, peerOf(s), req, version)
			same(t, "epoch", resp.FinalizedFeaturesEpoch, x.epoch)
			var final int16
			for _, f := range resp.FinalizedFeatures {
				same(t, "name", f.Name, compat.TransactionVersion) // the others have no level here
				same(t, "lowest", f.MinVersionLevel, f.MaxVersionLevel)
				final = f.MaxVersionLevel
			}
			same(t, "level", final, x.want)
			supported := 0
			for _, f := range resp.SupportedFeatures {
				same(t, "supported", f.MaxVersion, map[string]int16{compat.GroupVersion: 1, compat.MetadataVersion: 33, compat.TransactionVersion: 2}[f.Name])
				supported++
			}
			same(t, "supported features", supported, map[bool]int{false: 1, true: len(compat.Features)}[version >= 4])
			same(t, "migration from ZooKeeper", resp.ZkMigrationReady, false)
		}
	}
}
