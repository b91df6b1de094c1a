package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ottla/broker/registry"
	"ottla/compat"
)

// What others leave in the tree for the controller: failed log directories, elections that are asked
// for. It is read when it comes, done, and deleted.

// Rebalance are the rules by which leadership goes back to preferred replicas by itself.
type Rebalance struct {
	Every   time.Duration // leader.imbalance.check.interval.seconds
	Percent int           // leader.imbalance.per.broker.percentage
}

// firstRebalance is the time before the first look (KafkaController: 5 s after an election).
const firstRebalance = 5 * time.Second

// watchNotices watches what may come, and handles what is there. A controller that takes over tells
// every broker of all its replicas anyway, so that notices of failed directories have been heard.
func (c *Controller) watchNotices(t registry.Tree) error {
	for _, parent := range []string{compat.PathLogDirEvents, compat.PathISRChanges} {
		names, _, err := t.Children(parent, c.watcher)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := t.Delete(parent+"/"+name, registry.AnyVersion); err != nil && !errors.Is(err, registry.ErrNoNode) {
				return err
			}
		}
	}
	for _, path := range []string{compat.PathPreferredElection, compat.PathReassign} {
		switch _, err := t.Exists(path, c.watcher); {
		case err == nil:
			c.left = append(c.left, path) // for when the state is there
		case !errors.Is(err, registry.ErrNoNode):
			return err
		}
	}
	return nil
}

// logDirsFailed tells the brokers whose log directories have failed of all their replicas: their
// answers say which are offline (KafkaController.processLogDirEventNotification).
func (c *Controller) logDirsFailed() error {
	names, _, err := c.tree.Children(compat.PathLogDirEvents, c.watcher)
	if err != nil {
		return err
	}
	var brokers []int32
	var ops []registry.Op
	for _, name := range names {
		path := compat.PathLogDirEvents + "/" + name
		data, _, err := c.tree.Get(path, nil)
		if errors.Is(err, registry.ErrNoNode) {
			continue
		} else if err != nil {
			return err
		}
		ops = append(ops, registry.Delete(path, registry.AnyVersion))
		if n, err := compat.DecodeLogDirEvent(data); err != nil {
			c.log.Warn("notice ignored", "path", path, "err", err)
		} else {
			brokers = append(brokers, n.Broker)
		}
	}
	c.state.all(func(k at, p *partition) {
		for _, id := range brokers {
			if p.version >= 0 && slices.Contains(p.replicas, id) && c.state.members[id] != nil {
				c.out.addLead(id, k, false)
			}
		}
	})
	return c.multi(c.tree, ops)
}

// wish reads a node in which others name partitions, and watches it; nil where there is none. What cannot
// be read names none.
func (c *Controller) wish(path string) (*compat.PartitionsNode, error) {
	for {
		if _, err := c.tree.Exists(path, c.watcher); errors.Is(err, registry.ErrNoNode) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		data, _, err := c.tree.Get(path, nil)
		if errors.Is(err, registry.ErrNoNode) {
			continue // gone in between; the watch has fired
		} else if err != nil {
			return nil, err
		}
		n, err := compat.DecodePartitions(data)
		if err != nil {
			c.log.Warn("what others have asked for is ignored", "path", path, "err", err)
			n = compat.PartitionsNode{}
		}
		return &n, nil
	}
}

// electionAsked elects the preferred leaders that /admin/preferred_replica_election names, and deletes
// it (KafkaController.processReplicaLeaderElection of a ZooKeeper trigger).
func (c *Controller) electionAsked() error {
	n, err := c.wish(compat.PathPreferredElection)
	if err != nil || n == nil {
		return err
	}
	asked := map[at]struct{}{}
	for _, p := range n.Partitions {
		asked[at{p.Topic, p.Partition}] = struct{}{}
	}
	s, errs := c.state.elect(false, sortedKeys(asked))
	for _, k := range sortedKeys(errs) {
		if !errors.Is(errs[k], ErrElectionNotNeeded) {
			c.log.Warn("preferred leader not elected", "topic", k.topic, "partition", k.n, "err", errs[k])
		}
	}
	s.ops = append(s.ops, registry.Delete(compat.PathPreferredElection, registry.AnyVersion))
	return c.write(c.tree, s)
}

// imbalance names the partitions whose preferred leader could lead and does not, of those brokers for
// which they are more than percent of all that they should lead
// (KafkaController.checkAndTriggerAutoLeaderRebalance).
func (c *cluster) imbalance(percent int) (keys []at) {
	type count struct{ all, others int }
	by := map[int32]*count{}
	c.all(func(_ at, p *partition) {
		if c.members[p.replicas[0]] == nil {
			return
		}
		n := by[p.replicas[0]]
		if n == nil {
			n = &count{}
			by[p.replicas[0]] = n
		}
		n.all++
		if p.leader != p.replicas[0] {
			n.others++
		}
	})
	c.all(func(k at, p *partition) {
		first := p.replicas[0]
		if n := by[first]; n == nil || p.leader == first || n.others*100 <= n.all*percent {
			return
		}
		if p.version >= 0 && !p.moving() && c.online(first, k) && slices.Contains(p.isr, first) {
			keys = append(keys, k)
		}
	})
	return keys
}

func (c *Controller) rebalance() error {
	if c.state == nil {
		return nil
	}
	keys := c.state.imbalance(c.o.Rebalance.Percent)
	if len(keys) == 0 {
		return nil
	}
	s, _ := c.state.elect(false, keys)
	c.log.Info("leadership goes back to preferred replicas", "partitions", len(s.changes))
	return c.write(c.tree, s)
}

// ReportLogDirs tells the controller, wherever it is, that a log directory of this broker has failed.
func (c *Controller) ReportLogDirs(ctx context.Context) error {
	_, err := c.tree.Create(compat.PathLogDirEvents+"/"+compat.PrefixLogDirEvent,
		compat.LogDirEventNode{Broker: c.o.BrokerID}.Encode(), registry.Persistent|registry.Sequence)
	return err
}

// checkCluster compares the tree with the cluster that this broker belongs to. A ZooKeeper that has
// come back empty, or with another cluster, is not to be filled, nor to be obeyed.
func (c *Controller) checkCluster() error {
	if c.o.ClusterID == "" {
		return nil
	}
	data, _, err := c.tree.Get(compat.PathClusterID, nil)
	if errors.Is(err, registry.ErrNoNode) {
		return fmt.Errorf("%w: the registry has none, as if it were new; this broker is of cluster %s", registry.ErrClusterID, c.o.ClusterID)
	} else if err != nil {
		return err
	}
	n, err := compat.DecodeClusterID(data)
	if err == nil && n.ID != c.o.ClusterID {
		err = fmt.Errorf("%w: the registry is of cluster %s, this broker of %s", registry.ErrClusterID, n.ID, c.o.ClusterID)
	}
	return err
}
