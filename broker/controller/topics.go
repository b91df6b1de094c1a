package controller

import (
	"slices"
	"strings"

	"ottla/broker/metadata"
	"ottla/broker/registry"
	"ottla/compat"
)

const (
	// MaxPartitions is the most partitions that one request may create: what Kafka's 1 MB nodes
	// hold in every replication factor in use, and twice what Kafka 4.4 allows.
	MaxPartitions = 20_000

	maxTopicName = 249 // org.apache.kafka.common.internals.Topic
)

// NewTopic is a topic to create.
type NewTopic struct {
	Name        string
	Partitions  int32             // -1: the default
	Replication int16             // -1: the default
	Assignment  [][]int32         // by partition number; nil: automatic, else the two above are -1
	Configs     map[string]string // checked by the caller
	ID          metadata.ID       // zero: a random one
	LeaderEpoch int32             // its partitions' first; above 0 where their logs exist already
}

// MorePartitions is a topic that shall have more partitions.
type MorePartitions struct {
	Name       string
	Count      int32     // afterwards
	Assignment [][]int32 // of the new ones; nil: automatic
}

// Result is what became of one topic. Err's text is for the client.
type Result struct {
	Name        string
	ID          metadata.ID
	Partitions  int32
	Replication int16
	Err         error
}

// CheckTopicName holds Kafka's rules for names (Topic.validate); the error is ErrInvalidTopic.
func CheckTopicName(name string) error {
	bad := func(format string, args ...any) error {
		return refuse(ErrInvalidTopic, "Topic name is invalid: "+format, args...)
	}
	switch {
	case name == "":
		return bad("the empty string is not allowed")
	case name == "." || name == "..":
		return bad("'%s' is not allowed", name)
	case len(name) > maxTopicName:
		return bad("the length of '%s' is longer than the max allowed length %d", name, maxTopicName)
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c == '.' || c == '_' || c == '-') {
			return bad("'%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
		}
	}
	return nil
}

// OrderAssignment turns the assignment of a request, partition numbers and their replicas side
// by side, into one by number; they must be 0, 1, 2, … in any order.
func OrderAssignment(numbers []int32, replicas [][]int32) ([][]int32, error) {
	ordered := make([][]int32, len(numbers))
	for i, n := range numbers {
		if n < 0 || int(n) >= len(numbers) || ordered[n] != nil {
			return nil, refuse(ErrInvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
		if ordered[n] = replicas[i]; ordered[n] == nil {
			ordered[n] = []int32{}
		}
	}
	return ordered, nil
}

// checkAssignment holds the rules for the replicas that a client names.
func (c *cluster) checkAssignment(assignment [][]int32) error {
	if len(assignment) > MaxPartitions {
		return refuse(ErrInvalidPartitions, "Number of partitions must not be larger than %d.", MaxPartitions)
	}
	for _, replicas := range assignment {
		switch {
		case len(replicas) == 0:
			return refuse(ErrInvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
		case len(replicas) != len(assignment[0]):
			return refuse(ErrInvalidReplicaAssignment, "All partitions should have the same number of replicas")
		}
		for i, id := range replicas {
			if slices.Contains(replicas[:i], id) {
				return refuse(ErrInvalidReplicaAssignment, "Duplicate replica assignment found: %v", replicas)
			}
			if c.members[id] == nil {
				return refuse(ErrInvalidReplicaAssignment, "The manual partition assignment includes broker %d, but no such broker is registered.", id)
			}
		}
	}
	return nil
}

// createTopic decides the creation of one topic. Room is how many partitions the request may
// still create. The step is nil where the result has an error or only is validated.
//
// Kafka 3.9 (ZkAdminManager.createTopics, AdminZkClient.validateTopicCreate) writes the nodes one
// by one, the partitions' states from its controller; here they are one transaction.
func (c *cluster) createTopic(r rules, n NewTopic, room int, validateOnly bool) (*step, Result) {
	res := Result{Name: n.Name}
	fail := func(err error) (*step, Result) {
		res.Err = err
		return nil, res
	}
	if t := c.topics[n.Name]; t != nil {
		if t.deleting {
			return fail(refuse(ErrTopicExists, "Topic '%s' is marked for deletion.", n.Name))
		}
		return fail(refuse(ErrTopicExists, "Topic '%s' already exists.", n.Name))
	}
	if n.Assignment != nil && (n.Partitions != -1 || n.Replication != -1) {
		return fail(refuse(ErrInvalidRequest, "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same time."))
	}
	assignment := n.Assignment
	if assignment == nil {
		if n.Partitions == -1 {
			n.Partitions = r.partitions
		}
		if n.Replication == -1 {
			n.Replication = r.replicas
		}
		if err := c.checkCounts(n.Partitions, int(n.Replication)); err != nil {
			return fail(err)
		}
	}
	if err := CheckTopicName(n.Name); err != nil {
		return fail(err)
	}
	if err := c.checkCollision(n.Name); err != nil {
		return fail(err)
	}
	count := len(assignment)
	if assignment == nil {
		count = int(n.Partitions)
	} else if count == 0 {
		return fail(refuse(ErrInvalidReplicaAssignment, "The manual partition assignment is empty."))
	}
	if count > room {
		return fail(refuse(ErrPolicyViolation, "Excessively large number of partitions per request."))
	}
	if assignment == nil {
		assignment = assign(c.brokers(), count, int(n.Replication), -1, 0, r.random)
	} else if err := c.checkAssignment(assignment); err != nil {
		return fail(err)
	}
	id := n.ID
	if id == (metadata.ID{}) {
		id = c.newID(r)
	}
	res.ID, res.Partitions, res.Replication = id, int32(count), int16(len(assignment[0]))
	if validateOnly {
		return nil, res
	}

	t := &topic{name: n.Name, id: id, partitions: make([]partition, count)}
	s := &step{topics: []*topic{t}, ops: make([]registry.Op, 0, 3+2*count)}
	s.ops = append(s.ops,
		registry.Create(compat.PathEntity("topics", n.Name), compat.ConfigNode{Config: n.Configs}.Encode(), registry.Persistent),
		registry.Create(compat.PathTopic(n.Name), compat.TopicNode{ID: id, Partitions: assignment}.Encode(), registry.Persistent),
		registry.Create(compat.PathPartitions(n.Name), nil, registry.Persistent))
	for i, replicas := range assignment {
		s.newPartition(c, t, int32(i), replicas, n.LeaderEpoch)
	}
	return s, res
}

// newPartition puts a partition into a topic that the step makes, with its state where a replica
// is online.
func (s *step) newPartition(c *cluster, t *topic, n int32, replicas []int32, epoch int32) {
	k := at{t.name, n}
	p := partition{replicas: replicas, leader: NoLeader, leaderEpoch: epoch, version: -1}
	if next, ok, _ := c.settle(k, &p, false); ok {
		next.controllerEpoch = c.epoch
		s.ops = append(s.ops, stateOps(k, &next)[1:]...) // the parent of all is there
		next.version, next.changed = 0, c.newestEpoch()
		p = next
		s.telling(c, k, p.isr, true)
	}
	s.out.addUpdate(k)
	t.partitions[n] = p
}

func (c *cluster) checkCounts(partitions int32, replicas int) error {
	switch {
	case partitions <= 0:
		return refuse(ErrInvalidPartitions, "Number of partitions must be larger than 0.")
	case partitions > MaxPartitions:
		return refuse(ErrInvalidPartitions, "Number of partitions must not be larger than %d.", MaxPartitions)
	case replicas <= 0:
		return refuse(ErrInvalidReplicationFactor, "Replication factor must be larger than 0.")
	case replicas > len(c.members):
		return refuse(ErrInvalidReplicationFactor, "Replication factor: %d larger than available brokers: %d.", replicas, len(c.members))
	}
	return nil
}

// checkCollision refuses a name that differs from an existing one only by '.' and '_', which
// metric names do not tell apart.
func (c *cluster) checkCollision(name string) error {
	if !strings.ContainsAny(name, "._") {
		return nil
	}
	unified := func(s string) string { return strings.ReplaceAll(s, ".", "_") }
	want := unified(name)
	var colliding []string
	for other := range c.topics {
		if len(other) == len(name) && unified(other) == want {
			colliding = append(colliding, other)
		}
	}
	if len(colliding) == 0 {
		return nil
	}
	slices.Sort(colliding)
	return refuse(ErrInvalidTopic, "Topic '%s' collides with existing topics: %s", name, strings.Join(colliding, ", "))
}

// createPartitions decides to add partitions to a topic (ZkAdminManager.createPartitions).
func (c *cluster) createPartitions(r rules, m MorePartitions, room int, validateOnly bool) (*step, Result) {
	res := Result{Name: m.Name}
	fail := func(err error) (*step, Result) {
		res.Err = err
		return nil, res
	}
	old := c.topics[m.Name]
	if old == nil || old.deleting || len(old.partitions) == 0 {
		return fail(refuse(ErrUnknownTopicOrPartition, "The topic '%s' does not exist.", m.Name))
	}
	for n := range old.partitions {
		if old.partitions[n].moving() {
			return fail(refuse(ErrReassignmentInProgress, "A partition reassignment is in progress for the topic '%s'.", m.Name))
		}
	}
	have := len(old.partitions)
	more := int(m.Count) - have
	switch {
	case more < 0:
		return fail(refuse(ErrInvalidPartitions, "Topic currently has %d partitions, which is higher than the requested %d.", have, m.Count))
	case more == 0:
		return fail(refuse(ErrInvalidPartitions, "Topic already has %d partitions.", have))
	case m.Count > MaxPartitions:
		return fail(refuse(ErrInvalidPartitions, "Number of partitions must not be larger than %d.", MaxPartitions))
	case more > room:
		return fail(refuse(ErrPolicyViolation, "Excessively large number of partitions per request."))
	}
	first := old.partitions[0].replicas
	assignment := m.Assignment
	if assignment != nil {
		if err := c.checkMore(assignment, more, have, first); err != nil {
			return fail(err)
		}
	} else {
		brokers := c.brokers()
		if len(first) > len(brokers) {
			return fail(refuse(ErrInvalidReplicationFactor, "Replication factor: %d larger than available brokers: %d.", len(first), len(brokers)))
		}
		start := 0
		if len(first) > 0 {
			start = max(0, slices.IndexFunc(brokers, func(b metadata.Broker) bool { return b.ID >= first[0] }))
		}
		assignment = assign(brokers, more, len(first), start, have, r.random)
	}
	res.ID, res.Partitions, res.Replication = old.id, m.Count, int16(len(first))
	if validateOnly {
		return nil, res
	}
	t := *old
	t.partitions = append(slices.Clone(old.partitions), make([]partition, more)...)
	s := &step{topics: []*topic{&t}}
	for i, replicas := range assignment {
		s.newPartition(c, &t, int32(have+i), replicas, 0)
	}
	s.ops = append([]registry.Op{
		registry.Set(compat.PathTopic(t.name), t.node().Encode(), t.version),
		registry.Create(compat.PathPartitions(t.name), nil, registry.Persistent),
	}, s.ops...)
	t.version++
	return s, res
}

// checkMore holds the rules for the replicas of added partitions.
func (c *cluster) checkMore(assignment [][]int32, more, have int, first []int32) error {
	var unknown []int32
	for _, replicas := range assignment {
		for _, id := range replicas {
			if c.members[id] == nil && !slices.Contains(unknown, id) {
				unknown = append(unknown, id)
			}
		}
	}
	if len(unknown) > 0 {
		return refuse(ErrInvalidReplicaAssignment, "Unknown broker(s) in replica assignment: %s.", joinIDs(unknown))
	}
	if len(assignment) != more {
		return refuse(ErrInvalidReplicaAssignment, "Increasing the number of partitions by %d but %d assignments provided.", more, len(assignment))
	}
	for i, replicas := range assignment {
		switch {
		case len(replicas) == 0:
			return refuse(ErrInvalidReplicaAssignment, "Cannot have replication factor of 0 for partition id %d.", have+i)
		case !inAssignment(replicas, replicas):
			return refuse(ErrInvalidReplicaAssignment, "Duplicate brokers not allowed in replica assignment: %s for partition id %d.", joinIDs(replicas), have+i)
		case len(replicas) != len(first):
			return refuse(ErrInvalidReplicaAssignment, "Inconsistent replication factor between partitions, partition 0 has %d while partitions [%d] have replication factors [%d], respectively.", len(first), have+i, len(replicas))
		}
	}
	return nil
}

// node is the topic's node with its assignment as it is.
func (t *topic) node() compat.TopicNode {
	n := compat.TopicNode{ID: t.id, Partitions: make([][]int32, len(t.partitions))}
	for i := range t.partitions {
		p := &t.partitions[i]
		n.Partitions[i] = p.replicas
		if len(p.adding) > 0 {
			if n.Adding == nil {
				n.Adding = map[int32][]int32{}
			}
			n.Adding[int32(i)] = p.adding
		}
		if len(p.removing) > 0 {
			if n.Removing == nil {
				n.Removing = map[int32][]int32{}
			}
			n.Removing[int32(i)] = p.removing
		}
	}
	return n
}

// markDeleted decides that topics go: a marker in the tree, all brokers forget the topic, those
// that have a replica delete it. What is marked already gets no second marker. The topics' nodes
// go with deletionsDone.
func (c *cluster) markDeleted(names []string, mark bool) *step {
	s := &step{}
	for _, name := range names {
		old := c.topics[name]
		if old == nil || old.deleting {
			continue
		}
		if mark {
			s.ops = append(s.ops, registry.Create(compat.PathDeleteTopic(name), nil, registry.Persistent))
		}
		t := *old
		t.deleting, t.pending = true, t.replicas()
		s.topics = append(s.topics, &t)
		s.out.going = append(s.out.going, &t)
		s.stopAll(&t, nil)
	}
	return s
}

func (t *topic) replicas() map[replicaOf]struct{} {
	all := map[replicaOf]struct{}{}
	t.each(func(k at, p *partition) {
		for _, id := range p.replicas {
			all[replicaOf{k.n, id}] = struct{}{}
		}
	})
	return all
}

// stopAll asks the brokers (nil: all) for the deletion of what is still pending.
func (s *step) stopAll(t *topic, brokers []int32) {
	for r := range t.pending {
		if brokers == nil || slices.Contains(brokers, r.broker) {
			s.out.addStop(r.broker, StopPartition{Topic: t.name, Partition: r.n, LeaderEpoch: EpochGoing, Delete: true})
		}
	}
}

// resumeDeletions asks the brokers (nil: all) again for what they have not confirmed.
func (c *cluster) resumeDeletions(s *step, brokers []int32) {
	for name := range c.going {
		s.stopAll(c.topics[name], brokers)
	}
}

// deletionsDone decides that deleted topics of which no replica is left leave the tree, in the
// order in which Kafka's TopicDeletionManager removes the nodes.
func (c *cluster) deletionsDone() *step {
	s := &step{}
	for name := range c.going {
		if len(c.topics[name].pending) == 0 {
			s.gone = append(s.gone, name)
		}
	}
	slices.Sort(s.gone)
	for _, name := range s.gone {
		c.topics[name].each(func(k at, p *partition) {
			s.ops = append(s.ops,
				registry.Delete(compat.PathState(name, k.n), registry.AnyVersion),
				registry.Delete(compat.PathPartition(name, k.n), registry.AnyVersion))
		})
		s.ops = append(s.ops,
			registry.Delete(compat.PathPartitions(name), registry.AnyVersion),
			registry.Delete(compat.PathTopic(name), registry.AnyVersion),
			registry.Delete(compat.PathEntity("topics", name), registry.AnyVersion),
			registry.Delete(compat.PathDeleteTopic(name), registry.AnyVersion))
	}
	return s
}
