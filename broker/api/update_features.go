package api

import (
	"context"

	"ottla/broker/controller"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// updateFeatures finalizes levels of features (KIP-584), all that it names or none. Where several
// are wrong, the answer names the first in the order of the request.
//
// Versions: 1 says in which direction a level may go, and may only validate; up to 0 it goes up,
// as Kafka 4.4 does not look at AllowDowngrade; 2 has no results of single features, which never
// had an error of their own.
func (s *API) updateFeatures(ctx context.Context, _ *Peer, req *kmsg.UpdateFeaturesRequest) (*kmsg.UpdateFeaturesResponse, error) {
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	updates := make([]controller.FeatureUpdate, len(req.FeatureUpdates))
	for i, u := range req.FeatureUpdates {
		updates[i] = controller.FeatureUpdate{Name: u.Feature, Level: u.MaxVersionLevel, Change: controller.FeatureChange(u.UpgradeType)}
		if req.Version == 0 {
			updates[i].Change = controller.Upgrade
		}
	}
	resp.Results = []kmsg.UpdateFeaturesResponseResult{}
	err := s.Control.UpdateFeatures(ctx, updates, req.Version >= 1 && req.ValidateOnly)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = code(ctx, err), message(err)
		if resp.ErrorCode == kerr.InvalidUpdateVersion.Code {
			resp.ErrorMessage = kmsg.StringPtr("The update failed for all features since the following feature had an error: " + err.Error())
		}
		return resp, nil
	}
	for _, u := range req.FeatureUpdates {
		r := kmsg.NewUpdateFeaturesResponseResult()
		r.Feature, r.ErrorMessage = u.Feature, kmsg.StringPtr("NONE") // the text of no error in Kafka
		resp.Results = append(resp.Results, r)
	}
	return resp, nil
}
