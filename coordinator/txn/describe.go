package txn

import (
	"regexp"
	"slices"

	"ottla/coordinator"
)

// Described is one transactional id.
type Described struct {
	ID         string
	State      State
	Producer   Producer
	Timeout    int32 // ms
	Started    int64 // ms since 1970; -1: there was no transaction yet
	Partitions []Partition
}

// Describe answers with a Described, or ErrNotFound.
func (m *Machine) Describe(id string, to *coordinator.Ticket) coordinator.Effects {
	e := m.ids[id]
	switch {
	case id == "":
		return reply(to, nil, ErrInvalidID)
	case e == nil || e.epoch < 0:
		return reply(to, nil, ErrNotFound)
	}
	return reply(to, Described{id, e.state, Producer{e.producer, e.epoch}, e.timeout, e.started, e.partitions}, nil)
}

// Filter says which transactional ids to list. What is empty does not filter.
type Filter struct {
	States    []string
	Producers []int64
	Longer    int64  // ms: transactions that began longer ago; below 0: all
	Pattern   string // of the whole transactional id (RE2)
}

// Listed is one transactional id in a list.
type Listed struct {
	ID       string
	Producer int64
	State    State
}

// compiled is a Filter that is ready to be asked.
type compiled struct {
	Filter
	states  []State
	pattern *regexp.Regexp
}

// compile also gives the states that nobody knows. ErrInvalidPattern: the pattern is none.
func (f Filter) compile() (c compiled, unknown []string, err error) {
	c.Filter = f
	for _, name := range f.States {
		s, known := stateOf(name)
		if !known {
			unknown = append(unknown, name)
		}
		c.states = append(c.states, s)
	}
	if f.Pattern != "" {
		if c.pattern, err = regexp.Compile(`^(?:` + f.Pattern + `)$`); err != nil {
			return c, unknown, ErrInvalidPattern
		}
	}
	return c, unknown, nil
}

func (c *compiled) has(now int64, e *entry) bool {
	return e.epoch >= 0 &&
		(len(c.states) == 0 || slices.Contains(c.states, e.state)) &&
		(len(c.Producers) == 0 || slices.Contains(c.Producers, e.producer)) &&
		(c.Longer < 0 || now-e.started > c.Longer) &&
		(c.pattern == nil || c.pattern.MatchString(e.id))
}

// list answers with []Listed.
func (m *Machine) list(now coordinator.Instant, c *compiled, to *coordinator.Ticket) coordinator.Effects {
	all := []Listed{}
	for _, e := range m.sorted() {
		if c.has(now.Wall, e) {
			all = append(all, Listed{e.id, e.producer, e.state})
		}
	}
	return reply(to, all, nil)
}
