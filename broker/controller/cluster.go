package controller

import (
	"maps"
	"slices"

	"ottla/broker/metadata"
	"ottla/compat"
)

// cluster is what the controller knows: the state that decisions are made from. Only the
// controller's goroutine has it, and only apply changes it, after the writes of a decision have
// succeeded. Slices of broker ids are never changed in place, so they are shared with the picture.
type cluster struct {
	self         int32
	epoch        int32 // the controller's
	epochVersion int32 // of /controller_epoch; every multi checks it
	members      map[int32]*member
	topics       map[string]*topic
	names        map[metadata.ID]string
	going        map[string]struct{} // topics that are being deleted
	asked        map[at]bool         // moves that /admin/reassign_partitions has asked for; nil: there is no such node

	partitions int // of topics that are not being deleted, as the three below
	live       int // topics
	offline    int // partitions without a leader
	imbalanced int // partitions not led by their first replica
}

// member is a registered broker.
type member struct {
	metadata.Broker
	leaving bool // in controlled shutdown: it is not elected, but still told
	// offline holds the partitions whose log directory has failed there.
	offline map[at]struct{}
	// features are the levels that it can follow, by name.
	features map[string]compat.FeatureRange
}

// at names a partition.
type at struct {
	topic string
	n     int32
}

type topic struct {
	name       string
	id         metadata.ID
	version    int32 // of its node
	partitions []partition
	deleting   bool
	pending    map[replicaOf]struct{} // while deleting: replicas not yet known to be gone
}

type replicaOf struct{ n, broker int32 }

// partition is one partition. Version is that of its state node and is Kafka's partition epoch;
// -1: no state yet (Kafka's NewPartition), then leader is -1.
type partition struct {
	replicas, adding, removing []int32 // no replicas: a hole in the assignment
	isr                        []int32
	leader, leaderEpoch        int32
	controllerEpoch            int32
	version                    int32
	recovery                   int8
	changed                    int64 // mzxid of the state node
}

func newCluster(self int32) *cluster {
	return &cluster{self: self, members: map[int32]*member{}, topics: map[string]*topic{}, names: map[metadata.ID]string{}, going: map[string]struct{}{}}
}

// get gives a partition of a topic that is not being deleted, or nil.
func (c *cluster) get(k at) *partition {
	t := c.topics[k.topic]
	if t == nil || t.deleting || k.n < 0 || int(k.n) >= len(t.partitions) || len(t.partitions[k.n].replicas) == 0 {
		return nil
	}
	return &t.partitions[k.n]
}

// online tells whether a replica can take part: its broker lives, is not leaving, and its
// directory works (ControllerContext.isReplicaOnline).
func (c *cluster) online(id int32, k at) bool {
	return c.present(id, k) && !c.members[id].leaving
}

// present is online, or in controlled shutdown.
func (c *cluster) present(id int32, k at) bool {
	m := c.members[id]
	if m == nil {
		return false
	}
	_, off := m.offline[k]
	return !off
}

// ids are the registered brokers, ascending.
func (c *cluster) ids() []int32 { return slices.Sorted(maps.Keys(c.members)) }

// brokers is the live ones as requests and the picture show them, ascending by id.
func (c *cluster) brokers() []metadata.Broker {
	brokers := make([]metadata.Broker, 0, len(c.members))
	for _, id := range c.ids() {
		brokers = append(brokers, c.members[id].Broker)
	}
	return brokers
}

// all calls f for every partition that has replicas and whose topic is not being deleted, in the
// order of names and numbers.
func (c *cluster) all(f func(at, *partition)) {
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		if t := c.topics[name]; !t.deleting {
			t.each(f)
		}
	}
}

func (t *topic) each(f func(at, *partition)) {
	for n := range t.partitions {
		if len(t.partitions[n].replicas) > 0 {
			f(at{t.name, int32(n)}, &t.partitions[n])
		}
	}
}

// change is a partition's new value; its version counts up from the one it replaces.
type change struct {
	at
	partition
}

// apply makes a step's changes, after its writes have taken place.
func (c *cluster) apply(s *step) {
	for _, t := range s.topics {
		c.count(c.topics[t.name], -1)
		c.topics[t.name] = t
		if t.id != (metadata.ID{}) {
			c.names[t.id] = t.name
		}
		if t.deleting {
			c.going[t.name] = struct{}{}
		}
		c.count(t, 1)
	}
	for _, ch := range s.changes {
		p := &c.topics[ch.topic].partitions[ch.n]
		c.countPartition(p, -1)
		*p = ch.partition
		c.countPartition(p, 1)
	}
	for _, name := range s.gone {
		if t := c.topics[name]; t != nil {
			c.count(t, -1)
			delete(c.names, t.id)
			delete(c.topics, name)
			delete(c.going, name)
			for _, m := range c.members { // a topic of its name is a new one
				maps.DeleteFunc(m.offline, func(k at, _ struct{}) bool { return k.topic == name })
			}
		}
	}
}

func (c *cluster) count(t *topic, by int) {
	if t == nil || t.deleting {
		return
	}
	c.live += by
	for n := range t.partitions {
		c.countPartition(&t.partitions[n], by)
	}
}

func (c *cluster) countPartition(p *partition, by int) {
	if len(p.replicas) == 0 {
		return
	}
	c.partitions += by
	if p.leader < 0 {
		c.offline += by
	} else if p.leader != p.replicas[0] {
		c.imbalanced += by
	}
}
