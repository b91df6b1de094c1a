package controller

import (
	"context"
	"slices"
	"strings"

	"ottla/broker/registry"
	"ottla/compat"
)

// changes handles events of the tree.
func (c *Controller) changes(ctx context.Context, events []registry.Event) error {
	var controller, members, topics, deletions, logDirs, election, moves bool
	var changed []string
	for _, e := range events {
		switch {
		case e.Kind == registry.Lost:
			_, err := c.tree.Exists("/", nil)
			if err == nil {
				err = registry.ErrClosed
			}
			return err
		case e.Kind == registry.Expired, e.Kind == registry.Connected && c.expired:
			return c.rejoin(ctx)
		case e.Kind == registry.Disconnected, e.Kind == registry.Connected:
		case e.Path == compat.PathController:
			controller = true
		case strings.HasPrefix(e.Path, compat.PathLogDirEvents):
			logDirs = true
		case e.Path == compat.PathPreferredElection:
			election = true
		case e.Path == compat.PathReassign:
			moves = true
		case e.Path == compat.PathTopics:
			topics = true
		case e.Path == compat.PathDeleteTopics:
			deletions = true
		case strings.HasPrefix(e.Path, compat.PathBrokerIDs):
			members = true
		case len(e.Path) > len(compat.PathTopics) && e.Kind != registry.NodeDeleted:
			changed = append(changed, e.Path[len(compat.PathTopics)+1:])
		}
	}
	if controller {
		if err := c.controllerChanged(ctx); err != nil {
			return err
		}
	}
	if c.state != nil {
		election = election || slices.Contains(c.left, compat.PathPreferredElection)
		moves = moves || slices.Contains(c.left, compat.PathReassign)
		c.left = nil
	}
	for _, part := range []struct {
		due bool
		do  func() error
	}{
		{members, c.membersChanged},
		{topics, c.topicsChanged},
		{len(changed) > 0, func() error { return c.assignmentsChanged(changed) }},
		{deletions, c.deletionsChanged},
		{logDirs, c.logDirsFailed},
		{election, c.electionAsked},
		{moves, c.movesAsked},
	} {
		if !part.due || c.state == nil {
			continue
		}
		if err := part.do(); err != nil {
			return err
		}
	}
	return c.flush(ctx)
}

// rejoin begins anew after the session has expired
// (KafkaController.processRegisterBrokerAndReelect).
func (c *Controller) rejoin(ctx context.Context) error {
	c.resign("the session has expired")
	c.reload, c.expired = false, true // until it has succeeded: a lost connection tries again
	if err := c.tree.Renew(); err != nil {
		return err
	}
	if err := c.checkCluster(); err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	c.expired = false
	return nil
}

func (c *Controller) controllerChanged(ctx context.Context) error {
	_, mine, err := c.holder(c.tree)
	if err != nil {
		return err
	}
	if c.state != nil && mine {
		return nil
	}
	c.resign("the controller's node is not this broker's")
	c.reload = false
	if err := c.tree.Group(c.stand); err != nil {
		c.state = nil
		return err
	}
	return c.flush(ctx)
}

func (c *Controller) membersChanged() error {
	now, err := c.loadMembers(c.tree)
	if err != nil {
		return err
	}
	var died, started []int32
	before := c.state.members
	for id, m := range before {
		if n := now[id]; n == nil {
			died = append(died, id)
		} else if n.Epoch != m.Epoch {
			died, started = append(died, id), append(started, id)
		} else {
			n.leaving, n.offline = m.leaving, m.offline
		}
	}
	for id := range now {
		if before[id] == nil {
			started = append(started, id)
		}
	}
	slices.Sort(died)
	slices.Sort(started)
	c.state.members = now
	for _, id := range died {
		if s := c.senders[id]; s != nil {
			s.stop()
			delete(c.senders, id)
		}
	}
	if len(died)+len(started) > 0 {
		c.log.Info("brokers changed", "gone", died, "new", started)
	}
	if err := c.write(c.tree, c.state.brokersChanged(c.rules(), died, started)); err != nil {
		return err
	}
	return c.finishMoves(c.tree, c.state.moves())
}

func (c *Controller) topicsChanged() error {
	names, _, err := c.tree.Children(compat.PathTopics, c.watcher)
	if err != nil {
		return err
	}
	there := make(map[string]struct{}, len(names))
	var fresh []string
	for _, name := range names {
		there[name] = struct{}{}
		if c.state.topics[name] == nil {
			fresh = append(fresh, name)
		}
	}
	lost := &step{}
	for name, t := range c.state.topics {
		if _, ok := there[name]; !ok {
			c.log.Warn("topic is gone from the registry", "topic", name)
			lost.gone = append(lost.gone, name)
			lost.out.going = append(lost.out.going, t)
		}
	}
	c.state.apply(lost)
	c.out.merge(&lost.out)
	topics, err := c.loadTopics(c.tree, fresh)
	if err != nil {
		return err
	}
	return c.found(topics)
}

// found takes over topics as they are in the tree now.
func (c *Controller) found(topics []*topic) error {
	for _, t := range topics {
		before := c.state.topics[t.name]
		c.state.apply(&step{topics: []*topic{t}})
		if err := c.write(c.tree, c.state.partitionsFound(c.rules(), t, before)); err != nil {
			return err
		}
	}
	return nil
}

// assignmentsChanged looks for partitions that another member has added to topics
// (KafkaController.processPartitionModifications).
func (c *Controller) assignmentsChanged(names []string) error {
	slices.Sort(names)
	names = slices.Compact(names)
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = compat.PathTopic(name)
	}
	nodes, err := c.tree.GetAll(paths, c.watcher)
	if err != nil {
		return err
	}
	var newer []string
	for i, name := range names { // most are this controller's own changes
		if old := c.state.topics[name]; old != nil && !old.deleting && nodes[i].Err == nil && nodes[i].Stat.Version > old.version {
			newer = append(newer, name)
		}
	}
	topics, err := c.loadTopics(c.tree, newer)
	if err != nil {
		return err
	}
	return c.found(topics)
}

func (c *Controller) deletionsChanged() error {
	marked, _, err := c.tree.Children(compat.PathDeleteTopics, c.watcher)
	if err != nil {
		return err
	}
	return c.write(c.tree, c.state.markDeleted(marked, false))
}
