package api

import (
	"context"
	"time"

	"ottla/broker/auth"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leastDeletion is how long a deletion is waited for whatever the client says: most take no time.
const leastDeletion = 50 * time.Millisecond

// deleteTopics has the controller delete topics, named or (from v6) by id.
//
// Versions: 3 TOPIC_DELETION_DISABLED instead of INVALID_REQUEST; 5 messages; 6 topic ids.
func (s *API) deleteTopics(ctx context.Context, p *Peer, req *kmsg.DeleteTopicsRequest) (*kmsg.DeleteTopicsResponse, error) {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	resp.Topics = make([]kmsg.DeleteTopicsResponseTopic, 0, len(req.TopicNames)+len(req.Topics))
	add := func(name *string, id [16]byte) *kmsg.DeleteTopicsResponseTopic {
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.Topic, rt.TopicID = name, id
		resp.Topics = append(resp.Topics, rt)
		return &resp.Topics[len(resp.Topics)-1]
	}
	fail := func(rt *kmsg.DeleteTopicsResponseTopic, e *kerr.Error, msg string) {
		rt.ErrorCode = e.Code
		rt.ErrorMessage = kmsg.StringPtr(msg)
	}
	if !s.Config.Broker().DeleteTopicEnable {
		off := kerr.TopicDeletionDisabled
		if req.Version < 3 {
			off = kerr.InvalidRequest
		}
		for _, name := range req.TopicNames {
			fail(add(&name, [16]byte{}), off, "Topic deletion is disabled.")
		}
		for _, t := range req.Topics {
			fail(add(t.Topic, t.TopicID), off, "Topic deletion is disabled.")
		}
		return resp, nil
	}

	pic := s.Meta.Load()
	var names []string
	at := map[string]int{} // index in resp.Topics
	remove := func(name string, id [16]byte) {
		if !s.allowed(p, auth.Delete, auth.Topic, name) {
			shown := &name
			if id != [16]byte{} && !s.allowed(p, auth.Describe, auth.Topic, name) {
				shown = nil // who may not see the topic is not told its name
			}
			fail(add(shown, id), kerr.TopicAuthorizationFailed, "Topic authorization failed.")
			return
		}
		if i, twice := at[name]; twice {
			fail(&resp.Topics[i], kerr.InvalidRequest, "Duplicate topic name.")
			return
		}
		at[name] = len(resp.Topics)
		add(&name, id)
		names = append(names, name)
	}
	for _, name := range req.TopicNames {
		remove(name, [16]byte{})
	}
	for _, t := range req.Topics {
		switch {
		case t.Topic != nil && t.TopicID != [16]byte{}:
			fail(add(t.Topic, t.TopicID), kerr.InvalidRequest, "You may not specify both topic name and topic id.")
		case t.Topic != nil:
			remove(*t.Topic, [16]byte{})
		case t.TopicID == [16]byte{}:
			fail(add(nil, t.TopicID), kerr.InvalidRequest, "Neither topic name nor id were specified.")
		default:
			if found := pic.ByID[t.TopicID]; found != nil {
				remove(found.Name, t.TopicID)
			} else {
				fail(add(nil, t.TopicID), kerr.UnknownTopicID, "This server does not host this topic ID.")
			}
		}
	}
	// A topic of which something lies in a log directory that is offline is not gone before that is back.
	limited, cancel := context.WithTimeout(ctx, max(time.Duration(req.TimeoutMillis)*time.Millisecond, leastDeletion))
	defer cancel()
	for _, r := range s.Control.DeleteTopics(limited, names) {
		rt := &resp.Topics[at[r.Name]]
		if r.Err != nil {
			if rt.ErrorCode == 0 {
				rt.ErrorCode, rt.ErrorMessage = code(ctx, r.Err), message(r.Err)
			}
			continue
		}
		if rt.TopicID == [16]byte{} {
			rt.TopicID = r.ID
		}
	}
	return resp, nil
}
