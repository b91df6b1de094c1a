package api

import (
	"context"
	"slices"
	"strconv"

	"ottla/broker/auth"
	"ottla/broker/config"
	"ottla/broker/controller"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeConfigs answers with the settings of topics, this broker, groups, client metrics
// subscriptions and the log (kafka.server.ConfigHelper). No keys, or an empty list of them,
// asks for all.
//
// Versions: 1 synonyms and sources; 3 types and docs; 4 flexible. Any version may ask for groups
// (type 32) and client metrics (16).
func (s *API) describeConfigs(ctx context.Context, p *Peer, req *kmsg.DescribeConfigsRequest) (*kmsg.DescribeConfigsResponse, error) {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	resp.Resources = make([]kmsg.DescribeConfigsResponseResource, 0, len(req.Resources))
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		out.ErrorMessage = kmsg.StringPtr("") // as Kafka: not null
		out.Configs = []kmsg.DescribeConfigsResponseResourceConfig{}
		var entries []config.Entry
		err := s.mayConfigure(p, auth.DescribeConfigs, resource{r.ResourceType, r.ResourceName})
		if err == nil {
			entries, err = s.describe(r.ResourceType, r.ResourceName)
		}
		if err != nil {
			out.ErrorCode, out.ErrorMessage = code(ctx, err), message(err)
		}
		for j := range entries {
			if len(r.ConfigNames) == 0 || slices.Contains(r.ConfigNames, entries[j].Name) {
				out.Configs = append(out.Configs, configEntry(&entries[j], req))
			}
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

// describe returns the settings of one resource.
func (s *API) describe(kind kmsg.ConfigResourceType, name string) ([]config.Entry, error) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if err := controller.CheckTopicName(name); err != nil {
			return nil, err
		}
		if s.Meta.Load().Topics[name] == nil {
			return nil, refuse(kerr.UnknownTopicOrPartition, "")
		}
		return s.Config.DescribeTopic(name), nil
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return s.Config.DescribeBrokerDefaults(), nil
		}
		if id, err := strconv.ParseInt(name, 10, 32); err != nil {
			return nil, refuse(kerr.InvalidRequest, "Broker id must be an integer, but it is: %s", name)
		} else if int32(id) != s.BrokerID {
			return nil, refuse(kerr.InvalidRequest, "Unexpected broker id, expected %d or empty string, but received %s", s.BrokerID, name)
		}
		return s.Config.DescribeBroker(), nil
	case kmsg.ConfigResourceTypeBrokerLogger:
		if name == "" {
			return nil, refuse(kerr.InvalidRequest, "Broker id must not be empty")
		}
		if id, err := strconv.ParseInt(name, 10, 32); err != nil {
			return nil, refuse(kerr.InvalidRequest, "Broker id must be an integer, but it is: %s", name)
		} else if int32(id) != s.BrokerID {
			return nil, refuse(kerr.InvalidRequest, "Unexpected broker id, expected %d but received %s", s.BrokerID, name)
		}
		return s.Config.DescribeLoggers(), nil
	case kmsg.ConfigResourceTypeClientMetrics:
		if name == "" {
			return nil, refuse(kerr.InvalidRequest, "Client metrics subscription name must not be empty")
		}
		return s.Config.DescribeClientMetrics(name), nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if name == "" {
			return nil, refuse(kerr.InvalidRequest, "Group name must not be empty")
		}
		return s.Config.DescribeGroup(name), nil
	}
	return nil, refuse(kerr.InvalidRequest, "Unknown resource type %d", kind)
}

// configEntry is one setting in the form of the wire.
func configEntry(e *config.Entry, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.ReadOnly, c.IsSensitive = e.Name, e.Value, e.ReadOnly, e.Sensitive
	c.IsDefault = e.Source == config.DefaultSource
	c.Source = kmsg.ConfigSource(e.Source)
	c.ConfigType = kmsg.ConfigType(e.Type)
	c.ConfigSynonyms = []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{}
	if req.IncludeSynonyms {
		for _, y := range e.Synonyms {
			cs := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			cs.Name, cs.Value, cs.Source = y.Name, y.Value, kmsg.ConfigSource(y.Source)
			c.ConfigSynonyms = append(c.ConfigSynonyms, cs)
		}
	}
	if req.IncludeDocumentation && e.Doc != "" {
		c.Documentation = &e.Doc
	}
	return c
}
