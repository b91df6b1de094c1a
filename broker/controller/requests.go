package controller

import (
	"context"
	"maps"
	"slices"

	"ottla/broker/metadata"
)

// The leaders that are no broker, in requests.
const (
	NoLeader    int32 = -1
	LeaderGoing int32 = -2 // the topic is being deleted
	EpochGoing  int32 = -2 // the leader epoch in StopReplica then (LeaderAndIsr.EPOCH_DURING_DELETE)
)

// PartitionState is a partition as brokers are told of it. Slices are shared: not to be changed.
type PartitionState struct {
	Topic               string
	ID                  metadata.ID
	Partition           int32
	ControllerEpoch     int32
	Leader, LeaderEpoch int32
	ISR, Replicas       []int32
	Adding, Removing    []int32
	Offline             []int32 // UpdateMetadata: replicas that are not online
	PartitionEpoch      int32
	New                 bool // LeaderAndIsr: the replica's log does not exist yet
	Recovery            int8 // leader_recovery_state
}

// Fence is what every request to a broker begins with: who asks, and whom.
type Fence struct {
	ControllerID    int32
	ControllerEpoch int32
	BrokerEpoch     int64 // the receiver's
}

// LeaderAndIsr tells a broker of the replicas that it has to have. Leaders has the brokers that
// lead them.
type LeaderAndIsr struct {
	Fence
	Partitions []PartitionState
	Leaders    []metadata.Broker
}

// UpdateMetadata tells a broker what its clients are told: all live brokers, and the partitions
// that have changed. A leader of LeaderGoing takes the partition's topic away.
type UpdateMetadata struct {
	Fence
	Brokers    []metadata.Broker
	Partitions []PartitionState
}

// StopPartition is one replica to stop; its log is deleted where Delete says so.
type StopPartition struct {
	Topic       string
	Partition   int32
	LeaderEpoch int32
	Delete      bool
}

// StopReplica tells a broker of replicas that it has no more, or not for now.
type StopReplica struct {
	Fence
	Partitions []StopPartition
}

// PartitionError is one partition's error in a broker's answer; partitions without are not
// named. ErrReplicaStorage marks a failed log directory.
type PartitionError struct {
	Topic     string
	Partition int32
	Err       error
}

// Broker is a broker as the controller reaches it. An error of a call says that it did not reach
// the broker, or was refused as a whole, and is tried again until the broker's epoch changes; for
// the own broker it is only logged. Calls to one broker come one at a time and in order.
type Broker interface {
	LeaderAndIsr(context.Context, *LeaderAndIsr) ([]PartitionError, error)
	UpdateMetadata(context.Context, *UpdateMetadata) error
	StopReplica(context.Context, *StopReplica) ([]PartitionError, error)
}

// Line is the way to another broker.
type Line interface {
	Broker
	Close()
}

// outbox collects what a decision wants brokers to be told, by broker, as Kafka's
// AbstractControllerBrokerRequestBatch: of several changes of one partition the last is sent.
type outbox struct {
	lead     map[int32]map[at]bool // value: new
	stop     map[int32]map[at]StopPartition
	update   map[at]struct{} // told to all
	full     map[int32]bool  // brokers told of every partition
	everyone bool            // told of the live brokers, even without a partition
	going    []*topic        // told to all as being deleted
}

func (o *outbox) addLead(id int32, k at, isNew bool) {
	if o.lead == nil {
		o.lead = map[int32]map[at]bool{}
	}
	if o.lead[id] == nil {
		o.lead[id] = map[at]bool{}
	}
	o.lead[id][k] = o.lead[id][k] || isNew
}

func (o *outbox) addStop(id int32, s StopPartition) {
	if o.stop == nil {
		o.stop = map[int32]map[at]StopPartition{}
	}
	if o.stop[id] == nil {
		o.stop[id] = map[at]StopPartition{}
	}
	o.stop[id][at{s.Topic, s.Partition}] = s
}

func (o *outbox) addUpdate(k at) {
	if o.update == nil {
		o.update = map[at]struct{}{}
	}
	o.update[k] = struct{}{}
}

func (o *outbox) addFull(id int32) {
	if o.full == nil {
		o.full = map[int32]bool{}
	}
	o.full[id] = true
}

// merge adds a later outbox.
func (o *outbox) merge(more *outbox) {
	for id, by := range more.lead {
		for k, isNew := range by {
			o.addLead(id, k, isNew)
		}
	}
	for id, by := range more.stop {
		for _, s := range by {
			o.addStop(id, s)
		}
	}
	for k := range more.update {
		o.addUpdate(k)
	}
	for id := range more.full {
		o.addFull(id)
	}
	o.everyone = o.everyone || more.everyone
	o.going = append(o.going, more.going...)
}

// letter is the requests to one broker that rest on one decision, in the order of sending: first
// LeaderAndIsr, so that a client which is told of a leader finds it leading; but everything before that to
// a broker that is new, or that a new controller speaks to. Nil: none.
type letter struct {
	to     int32
	epoch  int64
	greet  *UpdateMetadata // everything, to one that may know nothing: Kafka's refuses leaders that it does not know
	lead   *LeaderAndIsr
	update *UpdateMetadata
	stop   *StopReplica
}

// letters writes the outbox out from the state that holds now.
func (c *cluster) letters(o *outbox) []letter {
	brokers := c.brokers()
	changed := make([]PartitionState, 0, len(o.update))
	var every []PartitionState
	for _, k := range sortedKeys(o.update) {
		if p := c.get(k); p != nil {
			changed = append(changed, c.state(c.topics[k.topic], k, p, false))
		}
	}
	for _, t := range o.going {
		t.each(func(k at, p *partition) {
			s := c.state(t, k, p, false)
			s.Leader = LeaderGoing
			changed = append(changed, s)
		})
	}
	if len(o.full) > 0 {
		every = make([]PartitionState, 0, c.partitions)
		c.all(func(k at, p *partition) {
			if p.version >= 0 {
				every = append(every, c.state(c.topics[k.topic], k, p, false))
			}
		})
	}
	var letters []letter
	for _, id := range c.ids() {
		l := letter{to: id, epoch: c.members[id].Epoch}
		fence := Fence{ControllerID: c.self, ControllerEpoch: c.epoch, BrokerEpoch: l.epoch}
		if lead := o.lead[id]; len(lead) > 0 {
			l.lead = &LeaderAndIsr{Fence: fence, Partitions: make([]PartitionState, 0, len(lead))}
			for _, k := range sortedKeys(lead) {
				if p := c.get(k); p != nil && p.version >= 0 {
					l.lead.Partitions = append(l.lead.Partitions, c.state(c.topics[k.topic], k, p, lead[k]))
				}
			}
			l.lead.Leaders = c.leadersOf(l.lead.Partitions)
		}
		switch {
		case o.full[id]:
			l.update = &UpdateMetadata{fence, brokers, every}
			if len(o.going) > 0 {
				l.update.Partitions = append(slices.Clone(every), changed...)
			}
			if id != c.self {
				l.greet, l.update = l.update, nil
			}
		case len(changed) > 0 || o.everyone || len(o.full) > 0:
			l.update = &UpdateMetadata{fence, brokers, changed}
		}
		if stop := o.stop[id]; len(stop) > 0 {
			l.stop = &StopReplica{Fence: fence}
			for _, k := range sortedKeys(stop) {
				l.stop.Partitions = append(l.stop.Partitions, stop[k])
			}
		}
		if l.greet != nil || l.lead != nil || l.update != nil || l.stop != nil {
			letters = append(letters, l)
		}
	}
	return letters
}

func (c *cluster) leadersOf(states []PartitionState) []metadata.Broker {
	seen := map[int32]struct{}{}
	for i := range states {
		seen[states[i].Leader] = struct{}{}
	}
	var leaders []metadata.Broker
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		if m := c.members[id]; m != nil {
			leaders = append(leaders, m.Broker)
		}
	}
	return leaders
}

func (c *cluster) state(t *topic, k at, p *partition, isNew bool) PartitionState {
	s := PartitionState{
		Topic: k.topic, ID: t.id, Partition: k.n, ControllerEpoch: p.controllerEpoch,
		Leader: p.leader, LeaderEpoch: p.leaderEpoch, ISR: p.isr, Replicas: p.replicas,
		Adding: p.adding, Removing: p.removing, PartitionEpoch: p.version, New: isNew, Recovery: p.recovery,
	}
	for _, id := range p.replicas {
		if !c.online(id, k) {
			s.Offline = append(s.Offline, id)
		}
	}
	return s
}

func sortedKeys[V any](m map[at]V) []at {
	keys := slices.Collect(maps.Keys(m))
	slices.SortFunc(keys, func(a, b at) int {
		if a.topic != b.topic {
			if a.topic < b.topic {
				return -1
			}
			return 1
		}
		return int(a.n) - int(b.n)
	})
	return keys
}
