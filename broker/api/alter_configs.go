package api

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"ottla/broker/auth"
	"ottla/broker/config"
	"ottla/broker/controller"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterConfigs replaces the settings of entities as a whole: what is not named goes back to its
// default. Clients since Kafka 2.3 use incrementalAlterConfigs.
//
// Versions: 2 flexible.
func (s *API) alterConfigs(ctx context.Context, p *Peer, req *kmsg.AlterConfigsRequest) (*kmsg.AlterConfigsResponse, error) {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	resp.Resources = make([]kmsg.AlterConfigsResponseResource, 0, len(req.Resources))
	times := map[resource]int{}
	for _, r := range req.Resources {
		times[resource{r.ResourceType, r.ResourceName}]++
	}
	for i := range req.Resources {
		r := &req.Resources[i]
		at := resource{r.ResourceType, r.ResourceName}
		values, nulls := make(map[string]string, len(r.Configs)), []string(nil)
		for _, c := range r.Configs {
			if c.Value == nil {
				nulls = append(nulls, c.Name)
				values[c.Name] = ""
			} else {
				values[c.Name] = *c.Value
			}
		}
		err := wellFormed(times[at], len(values) != len(r.Configs), nulls)
		if err == nil {
			err = s.alter(ctx, p, at, req.ValidateOnly, func(string, map[string]string) (map[string]string, error) { return values, nil })
		}
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		out.ErrorCode, out.ErrorMessage = code(ctx, err), message(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

// resource names what has settings.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

// wellFormed checks what Kafka's ConfigAdminManager checks before it looks at a resource: how
// often it is named, whether a setting is named twice, which settings have no value.
func wellFormed(times int, twice bool, nulls []string) error {
	switch {
	case times > 1:
		return refuse(kerr.InvalidRequest, "Each resource must appear at most once.")
	case twice:
		return refuse(kerr.InvalidRequest, "Error due to duplicate config keys")
	case len(nulls) > 0:
		return refuse(kerr.InvalidRequest, "Null value not supported for : %s", strings.Join(nulls, ", "))
	}
	return nil
}

// alter changes the settings of one resource: change gets the kind of its entity and what it
// has, and returns what it is to have; it may be called again when somebody else was faster. The
// result is stored if it is allowed and this is not only to validate.
func (s *API) alter(ctx context.Context, p *Peer, r resource, validateOnly bool, change func(kind string, now map[string]string) (map[string]string, error)) error {
	kind, err := s.entityKind(r)
	if err != nil {
		return err
	}
	if err := s.mayConfigure(p, auth.AlterConfigs, r); err != nil {
		return err
	}
	node := config.NodeName(kind, r.name)
	checked := func(now map[string]string) (map[string]string, error) {
		after, err := change(kind, now)
		if err != nil {
			return nil, err
		}
		return after, s.checkConfigs(kind, r.name, after)
	}
	if !validateOnly {
		return s.Control.UpdateConfig(ctx, kind, node, checked)
	}
	now, err := s.Control.ConfigOf(kind, node)
	if err == nil {
		_, err = checked(now)
	}
	return err
}

// mayConfigure asks whether a client may see or change the settings of a resource.
func (s *API) mayConfigure(p *Peer, op auth.Operation, r resource) error {
	denied := kerr.ClusterAuthorizationFailed
	ok := false
	switch r.kind {
	case kmsg.ConfigResourceTypeTopic:
		ok, denied = s.allowed(p, op, auth.Topic, r.name), kerr.TopicAuthorizationFailed
	case kmsg.ConfigResourceTypeGroupConfig:
		ok, denied = s.allowed(p, op, auth.Group, r.name), kerr.GroupAuthorizationFailed
	case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger, kmsg.ConfigResourceTypeClientMetrics:
		ok = s.allowed(p, op, auth.Cluster, auth.ClusterName)
	default:
		return refuse(kerr.InvalidRequest, "Unknown resource type %d", r.kind)
	}
	if !ok {
		return refuse(denied, "%s", denied.Description)
	}
	return nil
}

// entityKind is the kind of entity that a resource is, in the registry's words.
func (s *API) entityKind(r resource) (string, error) {
	switch r.kind {
	case kmsg.ConfigResourceTypeTopic:
		if r.name == "" {
			return "", refuse(kerr.InvalidRequest, "Default topic resources are not allowed.")
		}
		return config.Topics, controller.CheckTopicName(r.name)
	case kmsg.ConfigResourceTypeBroker:
		if r.name != "" {
			if err := s.ownID(r.name); err != nil {
				return "", err
			}
		}
		return config.Brokers, nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if r.name == "" {
			return "", refuse(kerr.InvalidRequest, "Default group resources are not allowed.")
		}
		return config.Groups, nil
	case kmsg.ConfigResourceTypeClientMetrics:
		if r.name == "" {
			return "", refuse(kerr.InvalidRequest, "Subscription name can't be empty")
		}
		return config.ClientMetrics, nil
	}
	return "", refuse(kerr.InvalidRequest, "Unknown resource type %d", r.kind)
}

// ownID checks that a resource is this broker.
func (s *API) ownID(name string) error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return refuse(kerr.InvalidRequest, "Node id must be an integer, but it is: %s", name)
	}
	if int32(id) != s.BrokerID {
		return refuse(kerr.InvalidRequest, "Unexpected broker id, expected %d, but received %s", s.BrokerID, name)
	}
	return nil
}

// checkConfigs checks the settings that an entity is to have.
func (s *API) checkConfigs(kind, name string, values map[string]string) error {
	switch kind {
	case config.Topics:
		if err := s.Config.CheckTopic(values); err != nil {
			return err
		}
		if s.Meta.Load().Topics[name] == nil {
			return refuse(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", name)
		}
	case config.Brokers:
		return s.Config.CheckBroker(values, name != "")
	case config.Groups:
		return s.Config.CheckGroup(values)
	case config.ClientMetrics:
		return s.Config.CheckClientMetrics(values)
	}
	return nil
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
