package controller

import (
	"errors"
	"slices"

	"ottla/broker/registry"
	"ottla/compat"
)

// /admin/reassign_partitions is how tools of before KIP-455 ask for moves. The node stays, with those that are
// under way, until all have ended, since that is how these tools see it.

// movesAsked begins the moves that the node names (KafkaController.processZkPartitionReassignment).
func (c *Controller) movesAsked() error {
	n, err := c.wish(compat.PathReassign)
	if err != nil || n == nil {
		return err
	}
	under := map[at]bool{}
	for _, p := range n.Partitions {
		k := at{p.Topic, p.Partition}
		part := c.state.get(k)
		if part != nil && part.moving() && slices.Equal(part.target(), p.Replicas) {
			under[k] = true
			continue
		}
		replicas := p.Replicas
		if replicas == nil {
			replicas = []int32{}
		}
		s, err := c.state.reassign(k, replicas)
		if err == nil {
			err = c.write(c.tree, s)
		}
		if err == nil {
			err = c.finishMoves(c.tree, []at{k})
		}
		if errors.Is(err, ErrNotController) {
			return err
		}
		if err != nil {
			c.log.Warn("partition not moved", "path", compat.PathReassign, "topic", k.topic, "partition", k.n, "replicas", p.Replicas, "err", err)
			continue
		}
		if part = c.state.get(k); part != nil && part.moving() {
			under[k] = true
		}
	}
	c.state.asked = under
	if len(under) > 0 && len(under) == len(n.Partitions) {
		return nil // it says so already
	}
	return c.writeMoves(c.tree)
}

// writeMoves writes those that are still under way into the node, or deletes it when there is none.
func (c *Controller) writeMoves(t registry.Tree) error {
	if c.state.asked == nil {
		return nil
	}
	var n compat.PartitionsNode
	for _, k := range sortedKeys(c.state.asked) {
		if p := c.state.get(k); p != nil && p.moving() {
			n.Partitions = append(n.Partitions, compat.PartitionRef{Topic: k.topic, Partition: k.n, Replicas: p.target()})
		} else {
			delete(c.state.asked, k)
		}
	}
	if len(n.Partitions) == 0 {
		c.state.asked = nil
		return c.multi(t, []registry.Op{registry.Delete(compat.PathReassign, registry.AnyVersion)})
	}
	return c.multi(t, []registry.Op{registry.Set(compat.PathReassign, n.Encode(), registry.AnyVersion)})
}
