package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/broker/replica"
	"ottla/log"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeLogDirs tells what lies in which log directory: of all partitions if topics are null,
// of those named otherwise; a directory without any of them is listed all the same.
//
// Versions: 3 a code for the whole; 4 sizes of the file system (KIP-827); 5 cordoned directories
// (KIP-1066), which there are none of.
func (s *API) describeLogDirs(ctx context.Context, p *Peer, req *kmsg.DescribeLogDirsRequest) (*kmsg.DescribeLogDirsResponse, error) {
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	resp.Dirs = []kmsg.DescribeLogDirsResponseDir{}
	if !s.allowed(p, auth.Describe, auth.Cluster, auth.ClusterName) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp, nil
	}
	var asked map[replica.Key]bool
	if req.Topics != nil {
		asked = map[replica.Key]bool{}
		for i := range req.Topics {
			for _, n := range req.Topics[i].Partitions {
				asked[replica.Key{Topic: req.Topics[i].Topic, Partition: n}] = true
			}
		}
	}
	s.Replicas.OpenAll(ctx)
	logs := map[string][]*log.Log{} // by directory
	for l := range s.Logs.Logs() {
		if asked == nil || asked[replica.Key{Topic: l.Topic(), Partition: l.Partition()}] {
			logs[l.Dir()] = append(logs[l.Dir()], l)
		}
	}
	for _, d := range s.Logs.Dirs() {
		rd := kmsg.NewDescribeLogDirsResponseDir()
		rd.Dir = d.Path
		rd.Topics = []kmsg.DescribeLogDirsResponseDirTopic{}
		if d.Err != nil {
			rd.ErrorCode = kerr.KafkaStorageError.Code
			resp.Dirs = append(resp.Dirs, rd)
			continue
		}
		rd.TotalBytes, rd.UsableBytes = d.Total, d.Usable
		at := map[string]int{} // index in rd.Topics
		for _, l := range logs[d.Path] {
			i, ok := at[l.Topic()]
			if !ok {
				i = len(rd.Topics)
				at[l.Topic()] = i
				rt := kmsg.NewDescribeLogDirsResponseDirTopic()
				rt.Topic = l.Topic()
				rd.Topics = append(rd.Topics, rt)
			}
			rp := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			rp.Partition, rp.Size = l.Partition(), l.Size()
			rp.OffsetLag = max(l.HighWatermark()-l.End(), 0)
			rd.Topics[i].Partitions = append(rd.Topics[i].Partitions, rp)
		}
		resp.Dirs = append(resp.Dirs, rd)
	}
	return resp, nil
}
