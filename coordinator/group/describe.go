package group

import (
	"slices"
	"strings"

	"ottla/coordinator"
)

// Listed is one group of ListGroups.
type Listed struct {
	Group, ProtocolType, State, Type string
}

// What ListGroups calls kinds of groups (KIP-848).
const (
	typeClassic  = "classic"
	typeConsumer = "consumer"
)

// List answers with the groups in one of the states and of one of the types ([]Listed); an
// empty filter lets all pass. Case does not matter.
func (m *Machine) List(states, types []string, to *coordinator.Ticket) coordinator.Effects {
	has := func(filter []string, s string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(strings.TrimSpace(f), s) })
	}
	out := []Listed{}
	for _, g := range m.sorted() {
		l := Listed{g.id, g.protocolType, g.state.String(), typeClassic}
		if g.consumer != nil {
			l = Listed{g.id, consumerProtocol, g.consumer.state(), typeConsumer}
		}
		if has(states, l.State) && has(types, l.Type) {
			out = append(out, l)
		}
	}
	return reply(to, out, nil)
}

// Described is one group of DescribeGroups. Protocol and the members' Metadata are only told
// of a stable group.
type Described struct {
	Group, State, ProtocolType, Protocol string
	Members                              []DescribedMember
	Err                                  error
}

// DescribedMember is one member of a Described.
type DescribedMember struct {
	MemberID   string
	InstanceID *string
	Client     Client
	Metadata   []byte
	Assignment []byte
}

// Describe answers with a Described; ErrGroupNotFound, in state Dead, for a group that is not
// there.
func (m *Machine) Describe(id string, to *coordinator.Ticket) coordinator.Effects {
	g := m.groups[id]
	switch {
	case g == nil:
		return reply(to, Described{Group: id, State: Dead.String(), Err: notFound(id)}, nil)
	case g.consumer != nil:
		return reply(to, Described{Group: id, State: Dead.String(), Err: because(ErrGroupNotFound, "Group %s is not a classic group.", id)}, nil)
	}
	d := Described{Group: id, State: g.state.String(), ProtocolType: g.protocolType}
	if g.state == Stable && g.protocol != nil {
		d.Protocol = *g.protocol
	}
	for _, mb := range g.order {
		e := DescribedMember{MemberID: mb.id, InstanceID: mb.instance, Client: mb.client, Assignment: mb.assignment}
		if g.state == Stable {
			e.Metadata = mb.metadata(g.protocol)
		}
		d.Members = append(d.Members, e)
	}
	return reply(to, d, nil)
}

// Summary is what metrics tell of a group.
type Summary struct {
	Group   string
	State   string
	Type    string // classic or consumer
	Members int
	Offsets map[string]map[int32]int64 // by topic and partition
}

// Summarize answers with a Summary of every group ([]Summary).
func (m *Machine) Summarize(to *coordinator.Ticket) coordinator.Effects {
	out := make([]Summary, 0, len(m.groups))
	for _, g := range m.sorted() {
		s := Summary{Group: g.id, State: g.state.String(), Type: typeClassic, Members: len(g.order), Offsets: map[string]map[int32]int64{}}
		if g.consumer != nil {
			s.State, s.Type, s.Members = g.consumer.state(), typeConsumer, len(g.consumer.members)
		}
		for topic, partitions := range g.offsets {
			s.Offsets[topic] = make(map[int32]int64, len(partitions))
			for p, o := range partitions {
				s.Offsets[topic][p] = o.at
			}
		}
		out = append(out, s)
	}
	return reply(to, out, nil)
}
