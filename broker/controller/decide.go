package controller

import (
	"fmt"
	"maps"
	"slices"

	"ottla/broker/metadata"
	"ottla/broker/registry"
	"ottla/compat"
)

// A decision is a pure function of the cluster and of what has happened: it changes nothing and
// answers a step. The controller writes the step's ops in a multi that checks its epoch; when
// that has succeeded it applies the changes and sends what is in the outbox.
type step struct {
	ops     []registry.Op
	topics  []*topic // new, or with other fields than their partitions' states changed
	changes []change // of partitions of topics that exist
	gone    []string // topics
	out     outbox
	unclean int // elections of a leader that was not in sync
}

// rules are the settings that decisions depend on.
type rules struct {
	unclean    func(topic string) bool // unclean.leader.election.enable
	partitions int32                   // num.partitions
	replicas   int16                   // default.replication.factor
	random     func(n int) int         // uniform in [0,n)
	newID      func() [16]byte         // of a topic
}

// put adds a partition's new state: its node, the change, the request to all to learn it. The
// leader epoch and replicas are the caller's.
func (s *step) put(c *cluster, k at, p partition) {
	p.controllerEpoch = c.epoch
	s.ops = append(s.ops, stateOps(k, &p)...)
	p.version++
	p.changed = c.newestEpoch()
	s.changes = append(s.changes, change{k, p})
	s.out.addUpdate(k)
}

// stateOps writes the state of a partition whose version is still the one before.
func stateOps(k at, p *partition) []registry.Op {
	data := compat.StateNode{
		ControllerEpoch: p.controllerEpoch, Leader: p.leader, LeaderEpoch: p.leaderEpoch, ISR: p.isr, Recovery: p.recovery,
	}.Encode()
	if p.version >= 0 {
		return []registry.Op{registry.Set(compat.PathState(k.topic, k.n), data, p.version)}
	}
	return []registry.Op{
		registry.Create(compat.PathPartitions(k.topic), nil, registry.Persistent),
		registry.Create(compat.PathPartition(k.topic, k.n), nil, registry.Persistent),
		registry.Create(compat.PathState(k.topic, k.n), data, registry.Persistent),
	}
}

// newestEpoch is a transaction before the one that is being decided and after the registration
// of every live broker.
func (c *cluster) newestEpoch() int64 {
	var newest int64
	for _, m := range c.members {
		newest = max(newest, m.Epoch)
	}
	return newest
}

// telling adds LeaderAndIsr for the partition's online replicas.
func (s *step) telling(c *cluster, k at, replicas []int32, isNew bool) {
	for _, id := range replicas {
		if c.online(id, k) {
			s.out.addLead(id, k, isNew)
		}
	}
}

// settle gives the state that a partition has to have with the brokers that are online now, and
// whether it differs from the one it has. In Kafka that is the way of a partition and its
// replicas through PartitionStateMachine and ReplicaStateMachine when brokers come and go:
//
//   - without a state, the first online replica leads and all online ones are in sync;
//   - a broker that has registered anew since the state was written has lost its place, though
//     nobody may have seen it missing: it is out of sync where others are in sync, and if it
//     leads it is elected again, so that a restart raises the leader epoch;
//   - replicas that are not there leave the in-sync set as long as one stays;
//   - a broker in controlled shutdown keeps what it leads, but is not elected;
//   - a new leader is the first replica in sync, or, where the topic allows it, the first online
//     one, which is then in sync alone and recovering (KIP-704); otherwise there is none.
//
// Kafka writes such a change in up to two steps of the leader epoch; here it is one.
func (c *cluster) settle(k at, p *partition, unclean bool) (next partition, changed, wasUnclean bool) {
	next = *p
	online := func(id int32) bool { return c.online(id, k) }
	if p.version < 0 {
		live := keep(p.replicas, online)
		if len(live) == 0 {
			return next, false, false
		}
		next.leader, next.isr, next.recovery = live[0], live, 0
		return next, true, false
	}
	insync := keep(p.isr, func(id int32) bool { return c.present(id, k) })
	if steady := keep(insync, func(id int32) bool { return c.members[id].Epoch <= p.changed }); len(steady) > 0 {
		insync = steady
	}
	leads := slices.Contains(insync, p.leader) && c.members[p.leader].Epoch <= p.changed
	switch {
	case leads && len(insync) == len(p.isr):
		return next, false, false
	case leads:
		next.isr = insync
	default:
		insync = keep(insync, online)
		if i := slices.IndexFunc(p.replicas, func(id int32) bool { return slices.Contains(insync, id) }); i >= 0 {
			next.leader, next.isr = p.replicas[i], insync
		} else if i := slices.IndexFunc(p.replicas, online); i >= 0 && unclean {
			next.leader, next.isr, next.recovery = p.replicas[i], []int32{p.replicas[i]}, 1
			wasUnclean = true
		} else if p.leader == NoLeader {
			return next, false, false
		} else {
			next.leader = NoLeader
		}
	}
	next.leaderEpoch++
	return next, true, wasUnclean
}

// keep gives those ids for which f holds: the same slice if all.
func keep(ids []int32, f func(int32) bool) []int32 {
	for i, id := range ids {
		if !f(id) {
			kept := slices.Clone(ids[:i])
			for _, id := range ids[i+1:] {
				if f(id) {
					kept = append(kept, id)
				}
			}
			return kept
		}
	}
	return ids
}

// without is a list without those of another; the same one if it has none of them.
func without(ids, gone []int32) []int32 {
	return keep(ids, func(id int32) bool { return !slices.Contains(gone, id) })
}

// settleInto settles one partition and tells its replicas of a change.
func (s *step) settleInto(c *cluster, r rules, k at, p *partition) {
	next, changed, unclean := c.settle(k, p, r.unclean(k.topic))
	if !changed {
		return
	}
	if unclean {
		s.unclean++
	}
	s.put(c, k, next)
	s.telling(c, k, next.replicas, p.version < 0)
}

// takeOver is what a controller decides when it has loaded the tree
// (KafkaController.onControllerFailover): every partition gets the state that the live brokers
// allow, every broker is told everything, deletions go on.
func (c *cluster) takeOver(r rules) *step {
	s := &step{}
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		if t := c.topics[name]; !t.deleting {
			s.identify(c, r, t, metadata.ID{})
		}
	}
	c.all(func(k at, p *partition) {
		s.settleInto(c, r, k, p)
		if p.version >= 0 {
			s.telling(c, k, p.replicas, false)
		}
	})
	for id := range c.members {
		s.out.addFull(id)
	}
	c.resumeDeletions(s, nil)
	return s
}

// brokersChanged decides after members of the cluster were replaced: died and started are
// brokers that are gone, and that registered; one that did both is in both
// (KafkaController.processBrokerChange).
func (c *cluster) brokersChanged(r rules, died, started []int32) *step {
	s := &step{}
	s.out.everyone = true
	c.all(func(k at, p *partition) {
		touched := func(ids []int32) bool {
			return slices.ContainsFunc(p.replicas, func(id int32) bool { return slices.Contains(ids, id) })
		}
		if touched(died) || touched(started) {
			s.settleInto(c, r, k, p)
		}
		for _, id := range started {
			if p.version >= 0 && slices.Contains(p.replicas, id) {
				s.out.addLead(id, k, false)
				s.out.addUpdate(k) // the replica is not offline any more
			}
		}
	})
	for _, id := range started {
		s.out.addFull(id)
	}
	c.resumeDeletions(s, started)
	return s
}

// replicasChanged decides after replicas of a broker were marked offline, or online again.
func (c *cluster) replicasChanged(r rules, changed []at) *step {
	s := &step{}
	for _, k := range changed {
		if p := c.get(k); p != nil {
			s.settleInto(c, r, k, p)
			s.out.addUpdate(k)
		}
	}
	return s
}

// partitionsFound decides about topics and partitions that another member has written to the
// tree: before is the topic as it was, nil if it is new.
func (c *cluster) partitionsFound(r rules, t, before *topic) *step {
	s, known, id := &step{}, 0, metadata.ID{}
	if before != nil {
		known, id = len(before.partitions), before.id
	}
	s.identify(c, r, t, id)
	t.each(func(k at, p *partition) {
		if int(k.n) >= known && p.version < 0 {
			s.settleInto(c, r, k, p)
			s.out.addUpdate(k)
		}
	})
	return s
}

// electLeaderless decides about the partitions that have no leader, when a rule has changed.
func (c *cluster) electLeaderless(r rules) *step {
	s := &step{}
	c.all(func(k at, p *partition) {
		if p.version >= 0 && p.leader == NoLeader {
			s.settleInto(c, r, k, p)
		}
	})
	return s
}

// elect decides an election of the given partitions, of their preferred leaders or an unclean
// one; the map has an error for each that gets no new leader (KafkaController.processReplicaLeaderElection).
func (c *cluster) elect(unclean bool, keys []at) (*step, map[at]error) {
	s, errs := &step{}, map[at]error{}
	for _, k := range keys {
		p := c.get(k)
		switch t := c.topics[k.topic]; {
		case t != nil && t.deleting:
			errs[k] = refuse(ErrInvalidTopic, "The topic is being deleted")
			continue
		case p == nil:
			errs[k] = refuse(ErrUnknownTopicOrPartition, "The partition does not exist.")
			continue
		}
		next := *p
		if unclean {
			if p.leader >= 0 && c.members[p.leader] != nil {
				errs[k] = refuse(ErrElectionNotNeeded, "Leader election not needed for topic partition.")
				continue
			}
			var changed, dirty bool
			if next, changed, dirty = c.settle(k, p, true); !changed || next.leader < 0 {
				errs[k] = refuse(ErrEligibleLeadersUnavailable, "Failed to elect leader for partition %s-%d under strategy OfflinePartitionLeaderElectionStrategy(true)", k.topic, k.n)
				continue
			} else if dirty {
				s.unclean++
			}
		} else {
			first := p.replicas[0]
			if p.leader == first {
				errs[k] = refuse(ErrElectionNotNeeded, "Leader election not needed for topic partition.")
				continue
			}
			if p.version < 0 || !c.online(first, k) || !slices.Contains(p.isr, first) {
				errs[k] = refuse(ErrPreferredLeaderUnavailable, "Failed to elect leader for partition %s-%d under strategy PreferredReplicaPartitionLeaderElectionStrategy", k.topic, k.n)
				continue
			}
			next.leader = first
			next.leaderEpoch++
		}
		s.put(c, k, next)
		s.telling(c, k, next.replicas, p.version < 0)
	}
	return s, errs
}

// leave decides a controlled shutdown of a broker that is marked as leaving: leaderships move to
// others in sync, its replicas stop and leave the in-sync sets. What it still leads afterwards is
// the answer (KafkaController.doControlledShutdown). Partitions of one replica stay as they are.
func (c *cluster) leave(id int32) *step {
	s := &step{}
	c.all(func(k at, p *partition) {
		if len(p.replicas) < 2 || p.version < 0 || !slices.Contains(p.replicas, id) {
			return
		}
		insync := keep(p.isr, func(r int32) bool { return c.online(r, k) })
		next := *p
		if p.leader == id {
			i := slices.IndexFunc(p.replicas, func(r int32) bool { return slices.Contains(insync, r) })
			if i < 0 {
				return
			}
			next.leader = p.replicas[i]
			s.out.addLead(id, k, false) // it follows until it is gone
		} else {
			s.out.addStop(id, StopPartition{Topic: k.topic, Partition: k.n, LeaderEpoch: p.leaderEpoch})
			if !slices.Contains(p.isr, id) || len(insync) == 0 {
				return
			}
		}
		next.isr = insync
		next.leaderEpoch++
		s.put(c, k, next)
		s.telling(c, k, next.replicas, false)
	})
	return s
}

// led are the partitions that a broker leads.
func (c *cluster) led(id int32) (keys []at) {
	c.all(func(k at, p *partition) {
		if p.leader == id && len(p.replicas) > 1 {
			keys = append(keys, k)
		}
	})
	return keys
}

// ISRChange is one partition of an AlterPartition request.
type ISRChange struct {
	Topic          string
	Partition      int32
	LeaderEpoch    int32
	PartitionEpoch int32
	ISR            []int32
	Recovery       int8
}

// ISRResult is the answer: the partition's state now, or Err.
type ISRResult struct {
	Topic          string
	Partition      int32
	Leader         int32
	LeaderEpoch    int32
	PartitionEpoch int32
	ISR            []int32
	Recovery       int8
	Err            error
}

// alterISR decides the changes that a leader asks for
// (KafkaController.tryProcessAlterPartition). Results without an error hold when the step has
// been applied.
func (c *cluster) alterISR(broker int32, changes []ISRChange) (*step, []ISRResult) {
	s, results := &step{}, make([]ISRResult, len(changes))
	for i, ch := range changes {
		k := at{ch.Topic, ch.Partition}
		res := &results[i]
		res.Topic, res.Partition = ch.Topic, ch.Partition
		p := c.get(k)
		if p == nil || p.version < 0 {
			res.Err = ErrUnknownTopicOrPartition
			continue
		}
		same := ch.LeaderEpoch == p.leaderEpoch && p.leader == broker && slices.Equal(ch.ISR, p.isr) &&
			ch.Recovery == p.recovery && ch.PartitionEpoch <= p.version
		var dead []int32
		for _, id := range ch.ISR {
			if m := c.members[id]; m == nil || m.leaving {
				dead = append(dead, id)
			}
		}
		switch {
		case ch.PartitionEpoch > p.version || ch.LeaderEpoch > p.leaderEpoch:
			res.Err = ErrNotController // the leader has heard of a newer controller than this one
		case ch.LeaderEpoch < p.leaderEpoch:
			res.Err = ErrFencedLeaderEpoch
		case same: // asked again after a lost answer
		case ch.PartitionEpoch < p.version:
			res.Err = ErrInvalidUpdateVersion
		case p.leader != broker:
			res.Err = fmt.Errorf("%w: broker %d does not lead %s-%d", ErrInvalidRequest, broker, k.topic, k.n)
		case ch.Recovery == 1 && len(ch.ISR) > 1, p.recovery == 0 && ch.Recovery == 1:
			res.Err = fmt.Errorf("%w: leader recovery state of %s-%d", ErrInvalidRequest, k.topic, k.n)
		case !slices.Contains(ch.ISR, broker) || !inAssignment(p.replicas, ch.ISR):
			res.Err = fmt.Errorf("%w: in-sync set %v of %s-%d", ErrInvalidRequest, ch.ISR, k.topic, k.n)
		case len(dead) > 0:
			res.Err = fmt.Errorf("%w: %v", ErrIneligibleReplica, dead)
		default:
			next := *p
			next.isr, next.recovery = slices.Clone(ch.ISR), ch.Recovery
			s.put(c, k, next)
			p = &s.changes[len(s.changes)-1].partition
		}
		if res.Err == nil {
			res.Leader, res.LeaderEpoch, res.PartitionEpoch = p.leader, p.leaderEpoch, p.version
			res.ISR, res.Recovery = p.isr, p.recovery
		}
	}
	return s, results
}

func inAssignment(replicas, isr []int32) bool {
	for i, id := range isr {
		if !slices.Contains(replicas, id) || slices.Contains(isr[:i], id) {
			return false
		}
	}
	return true
}
