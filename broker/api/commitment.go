package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/broker/metadata"
	"ottla/coordinator/group"

	"github.com/twmb/franz-go/pkg/kerr"
)

// commitment is what a request wants committed. It keeps the partitions that exist and that the
// client may read, and refuses the others.
type commitment struct {
	api     *API
	peer    *Peer
	picture *metadata.Picture
	byID    bool  // the version names topics by id
	refused int16 // the code for all of the request; 0: none

	topics []group.CommitTopic // with at least one partition each
	codes  [][]*int16          // where the answers to their partitions belong

	// What begin found.
	topic *metadata.Topic // nil: not there
	code  int16           // the code for all of the topic; 0: none
	first bool            // none of its partitions is in topics yet
}

// begin turns to a topic of the request.
func (c *commitment) begin(name string, id [16]byte) {
	var missing int16
	c.topic, missing = topicOf(c.picture, c.byID, name, id)
	if c.topic != nil {
		name = c.topic.Name
	}
	c.first, c.code = true, 0
	switch {
	case c.refused != 0:
		c.code = c.refused
	case c.topic == nil && c.byID:
		c.code = missing
	case !c.api.allowed(c.peer, auth.Read, auth.Topic, name):
		c.code = kerr.TopicAuthorizationFailed.Code
	case c.topic == nil:
		c.code = missing
	}
}

// add takes a partition of the topic at hand, or refuses it. code is where its answer belongs; it
// must stay there until answer.
func (c *commitment) add(p group.CommitPartition, meta *string, code *int16) {
	switch {
	case c.code != 0:
		*code = c.code
		return
	case p.Partition < 0 || int(p.Partition) >= len(c.topic.Partitions):
		*code = kerr.UnknownTopicOrPartition.Code
		return
	}
	if meta != nil {
		p.Metadata = *meta
	}
	if c.first {
		c.topics = append(c.topics, group.CommitTopic{Name: c.topic.Name, ID: c.topic.ID})
		c.codes = append(c.codes, nil)
		c.first = false
	}
	last := len(c.topics) - 1
	c.topics[last].Partitions = append(c.topics[last].Partitions, p)
	c.codes[last] = append(c.codes[last], code)
}

// answer gives every partition that was kept its code: all, or if that is 0 the one of its error.
func (c *commitment) answer(ctx context.Context, all int16, errs [][]error) {
	for i, codes := range c.codes {
		for j, at := range codes {
			if *at = all; all == 0 {
				*at = code(ctx, errs[i][j])
			}
		}
	}
}

// topicOf finds a topic by its name, or by its id where a version has ids; the code is for one
// that is not there.
func topicOf(pic *metadata.Picture, byID bool, name string, id [16]byte) (*metadata.Topic, int16) {
	if byID {
		return pic.ByID[id], kerr.UnknownTopicID.Code
	}
	return pic.Topics[name], kerr.UnknownTopicOrPartition.Code
}
