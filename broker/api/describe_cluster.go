package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/broker/metadata"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeCluster tells cluster id, controller and brokers.
//
// Versions: 1 endpoint type (1 brokers, 2 controllers, which a broker's listener does not serve,
// KIP-919); 2 fenced brokers (there are none: a broker that is not registered is not known).
func (s *API) describeCluster(ctx context.Context, p *Peer, req *kmsg.DescribeClusterRequest) (*kmsg.DescribeClusterResponse, error) {
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.Brokers = []kmsg.DescribeClusterResponseBroker{}
	resp.EndpointType = req.EndpointType
	switch {
	case req.Version < 1 || req.EndpointType == 1:
		resp.EndpointType = 1
	case req.EndpointType == 2:
		resp.ErrorCode = kerr.MismatchedEndpointType.Code
		resp.ErrorMessage = kmsg.StringPtr("The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER")
		return resp, nil
	default:
		resp.ErrorCode = kerr.UnsupportedEndpointType.Code
		resp.ErrorMessage = kmsg.StringPtr("Unsupported endpoint type")
		return resp, nil
	}
	pic := s.Meta.Load()
	resp.ClusterID, resp.ControllerID = pic.ClusterID, pic.Controller
	nodes(p, pic, func(b *metadata.Broker, host string, port int32) {
		rb := kmsg.NewDescribeClusterResponseBroker()
		rb.NodeID, rb.Host, rb.Port = b.ID, host, port
		if b.Rack != "" {
			rb.Rack = kmsg.StringPtr(b.Rack)
		}
		resp.Brokers = append(resp.Brokers, rb)
	})
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = 0
		if s.allowed(p, auth.Describe, auth.Cluster, auth.ClusterName) {
			resp.ClusterAuthorizedOperations = s.authorizedOperations(p, auth.Cluster, auth.ClusterName)
		}
	}
	return resp, nil
}
