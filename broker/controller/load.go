package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"ottla/broker/metadata"
	"ottla/broker/registry"
	"ottla/compat"
)

// stand stands for election (KafkaController.elect) and takes over if it wins. It leaves a watch
// on /controller either way.
func (c *Controller) stand(t registry.Tree) error {
	for {
		holder, mine, err := c.holder(t)
		switch {
		case err != nil:
			c.setLeader(-1)
			return err
		case mine: // from an election whose outcome was not known, or that was fenced: once more
			if err := t.Delete(compat.PathController, registry.AnyVersion); err != nil && !errors.Is(err, registry.ErrNoNode) {
				return err
			}
			continue
		case holder == c.o.BrokerID: // of an earlier life: it will go
			holder = -1
			fallthrough
		case holder >= 0:
			c.setLeader(holder)
			return nil
		}
		ops := []registry.Op{registry.Create(compat.PathController, compat.ControllerNode{
			BrokerID: c.o.BrokerID, Timestamp: c.o.Now().UnixMilli(),
		}.Encode(), registry.Ephemeral)}
		epoch, version := int32(0), int32(0)
		data, st, err := t.Get(compat.PathControllerEpoch, nil)
		switch {
		case errors.Is(err, registry.ErrNoNode):
			ops = append(ops, registry.Create(compat.PathControllerEpoch, compat.EncodeControllerEpoch(0), registry.Persistent))
		case err != nil:
			return err
		default:
			if epoch, err = compat.DecodeControllerEpoch(data); err != nil {
				return fmt.Errorf("%s: %w", compat.PathControllerEpoch, err)
			}
			version = st.Version
		}
		ops = append(ops, registry.Set(compat.PathControllerEpoch, compat.EncodeControllerEpoch(epoch+1), version))
		if _, err := t.Exists(compat.PathFeature, nil); errors.Is(err, registry.ErrNoNode) {
			ops = append(ops, registry.Create(compat.PathFeature, compat.FeatureNode{Enabled: true, Levels: c.o.Features}.Encode(), registry.Persistent))
		} else if err != nil {
			return err
		}
		_, err = t.Multi(ops...)
		if errors.Is(err, registry.ErrNodeExists) || errors.Is(err, registry.ErrBadVersion) {
			continue // somebody was faster
		} else if err != nil {
			return err
		}
		state, err := c.load(t, epoch+1, version+1)
		if err != nil {
			return err
		}
		c.state, c.reload = state, false
		if err := c.write(t, state.takeOver(c.rules())); err != nil {
			return err
		}
		if err := c.finishMoves(t, state.moves()); err != nil {
			return err
		}
		c.setLeader(c.o.BrokerID)
		level := slog.LevelInfo
		if len(state.members) < 2 { // nobody else could have been
			level = slog.LevelDebug
		}
		c.log.Log(context.Background(), level, "elected as controller", "epoch", epoch+1, "topics", state.live, "partitions", state.partitions)
		return nil
	}
}

// holder reads who the controller is, -1: nobody, and watches that. Mine: by this session.
func (c *Controller) holder(t registry.Tree) (id int32, mine bool, err error) {
	for {
		if _, err := t.Exists(compat.PathController, c.watcher); errors.Is(err, registry.ErrNoNode) {
			return -1, false, nil
		} else if err != nil {
			return -1, false, err
		}
		data, st, err := t.Get(compat.PathController, nil)
		if errors.Is(err, registry.ErrNoNode) {
			continue // gone in between; the watch has fired
		} else if err != nil {
			return -1, false, err
		}
		n, err := compat.DecodeController(data)
		if err != nil {
			return -1, false, fmt.Errorf("%s: %w", compat.PathController, err)
		}
		return n.BrokerID, st.EphemeralOwner == t.Session(), nil
	}
}

// load reads the state from the tree and watches it: members, topics, deletions.
func (c *Controller) load(t registry.Tree, epoch, version int32) (*cluster, error) {
	s := newCluster(c.o.BrokerID)
	s.epoch, s.epochVersion = epoch, version
	var err error
	if s.members, err = c.loadMembers(t); err != nil {
		return nil, err
	}
	names, _, err := t.Children(compat.PathTopics, c.watcher)
	if err != nil {
		return nil, err
	}
	topics, err := c.loadTopics(t, names)
	if err != nil {
		return nil, err
	}
	s.apply(&step{topics: topics})
	marked, _, err := t.Children(compat.PathDeleteTopics, c.watcher)
	if err != nil {
		return nil, err
	}
	for _, name := range marked {
		if s.topics[name] == nil { // nothing is left to delete but the marker
			if err := t.Delete(compat.PathDeleteTopic(name), registry.AnyVersion); err != nil && !errors.Is(err, registry.ErrNoNode) {
				return nil, err
			}
		}
	}
	if err := c.watchNotices(t); err != nil {
		return nil, err
	}
	gone := s.markDeleted(marked, false)
	gone.out = outbox{} // takeOver asks for them
	s.apply(gone)
	return s, nil
}

func (c *Controller) loadMembers(t registry.Tree) (map[int32]*member, error) {
	names, _, err := t.Children(compat.PathBrokerIDs, c.watcher)
	if err != nil {
		return nil, err
	}
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = compat.PathBrokerIDs + "/" + name
	}
	nodes, err := t.GetAll(paths, c.watcher)
	if err != nil {
		return nil, err
	}
	members := map[int32]*member{}
	for i, n := range nodes {
		var id int32
		if _, err := fmt.Sscanf(names[i], "%d", &id); err != nil || compat.PathBroker(id) != n.Path {
			c.log.Warn("registration ignored: not a broker id", "path", n.Path)
			continue
		}
		if n.Err != nil {
			continue // gone in between; the watch has fired
		}
		node, err := compat.DecodeBroker(n.Data)
		if err != nil {
			c.log.Warn("registration ignored", "path", n.Path, "err", err)
			continue
		}
		members[id] = &member{Broker: brokerOf(id, n.Stat.Czxid, node), features: node.Features}
	}
	return members, nil
}

func brokerOf(id int32, epoch int64, n compat.BrokerNode) metadata.Broker {
	b := metadata.Broker{ID: id, Epoch: epoch, Rack: n.Rack, Endpoints: make([]metadata.Endpoint, len(n.Endpoints))}
	for i, e := range n.Endpoints {
		b.Endpoints[i] = metadata.Endpoint{Listener: e.Listener, Protocol: e.Protocol, Host: e.Host, Port: e.Port}
	}
	return b
}

// loadTopics reads topics and the states of their partitions, and watches the topics. What is
// malformed is left out, with a line in the log: Kafka's controller does not survive it.
func (c *Controller) loadTopics(t registry.Tree, names []string) ([]*topic, error) {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = compat.PathTopic(name)
	}
	nodes, err := t.GetAll(paths, c.watcher)
	if err != nil {
		return nil, err
	}
	var topics []*topic
	var states []string
	for i, n := range nodes {
		if errors.Is(n.Err, registry.ErrNoNode) {
			continue
		}
		node, err := compat.DecodeTopic(n.Data)
		if err == nil {
			err = CheckTopicName(names[i])
		}
		if err != nil {
			c.log.Error("topic ignored", "path", n.Path, "err", err)
			continue
		}
		tt := &topic{name: names[i], id: node.ID, version: n.Stat.Version, partitions: make([]partition, len(node.Partitions))}
		for p, replicas := range node.Partitions {
			tt.partitions[p] = partition{replicas: replicas, adding: node.Adding[int32(p)], removing: node.Removing[int32(p)], leader: NoLeader, version: -1}
			if len(replicas) > 0 {
				states = append(states, compat.PathState(tt.name, int32(p)))
			}
		}
		topics = append(topics, tt)
	}
	if nodes, err = t.GetAll(states, nil); err != nil {
		return nil, err
	}
	for _, tt := range topics {
		tt.each(func(k at, p *partition) {
			n := nodes[0]
			nodes = nodes[1:]
			if n.Err != nil {
				return // no state yet
			}
			st, err := compat.DecodeState(n.Data)
			if err != nil {
				c.log.Error("partition state ignored", "path", n.Path, "err", err)
				return
			}
			p.leader, p.leaderEpoch, p.isr = st.Leader, st.LeaderEpoch, st.ISR
			p.controllerEpoch, p.recovery = st.ControllerEpoch, st.Recovery
			p.version, p.changed = n.Stat.Version, n.Stat.Mzxid
			if slices.Equal(p.isr, p.replicas) {
				p.isr = p.replicas // the usual case: one slice less a partition
			}
		})
	}
	return topics, nil
}

// reloadAll starts from the tree again after a write whose outcome is unknown, or after the
// controller was fenced.
func (c *Controller) reloadAll(ctx context.Context) error {
	if c.state == nil {
		return c.controllerChanged(ctx)
	}
	if st, err := c.tree.Exists(compat.PathControllerEpoch, nil); err != nil {
		return err
	} else if st.Version != c.state.epochVersion {
		c.resign("another controller was elected")
		return c.controllerChanged(ctx)
	}
	state, err := c.load(c.tree, c.state.epoch, c.state.epochVersion)
	if err != nil {
		return err
	}
	for id, m := range c.state.members {
		if now := state.members[id]; now != nil && now.Epoch == m.Epoch {
			now.leaving, now.offline = m.leaving, m.offline
		}
	}
	c.state, c.reload = state, false
	if err := c.write(c.tree, state.takeOver(c.rules())); err != nil {
		return err
	}
	if err := c.finishMoves(c.tree, state.moves()); err != nil {
		return err
	}
	return c.flush(ctx)
}
