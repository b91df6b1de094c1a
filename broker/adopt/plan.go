package adopt

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ottla/compat"
	"ottla/log/vfs"
)

// Node is a node of the registry to write; nil data makes one that only has children.
type Node struct {
	Path string
	Data []byte
}

// Plan is how a registry says what an image does, in the shapes of Kafka 3.9.
type Plan struct {
	Nodes []Node // parents before children

	Topics, Partitions, Empty     int                 // Empty: of the partitions those without a log here
	Settings, Users, ACLs, Quotas int                 // entities that have settings; users with passwords; entries; clients
	IDs                           map[string][16]byte // of the topics, by name
	Lost                          []string            // what a registry has no place for, in words
	Elsewhere                     []string            // topics with partitions that had no replica on this broker, sorted
	Newer                         []string            // topics whose logs have been led in later epochs than the metadata know of, sorted
}

// Plan makes the nodes for a broker that is alone: it becomes the only replica of every partition
// and leads it, in a leader epoch above those that its log knows. Dirs are the log directories;
// features are the levels that this broker knows of, by name, and the highest of each.
func (i *Image) Plan(fsys vfs.FS, dirs []string, self int32, features map[string]int16) *Plan {
	p := &Plan{IDs: maps.Clone(i.names)}
	for _, path := range compat.PersistentPaths {
		if path != compat.PathProducerIDs {
			p.add(path, nil)
		}
	}
	i.planTopics(p, fsys, dirs, self)
	i.planConfigs(p)
	i.planACLs(p)
	const block = 1000 // ProducerIdsBlock
	p.add(compat.PathProducerIDs, compat.ProducerBlockNode{Broker: self, Start: max(0, i.producer-block), End: i.producer - 1}.Encode())
	levels := map[string]int16{}
	for name, most := range features {
		if level := i.features[name]; level > 0 {
			levels[name] = min(level, most)
		}
	}
	p.add(compat.PathFeature, compat.FeatureNode{Enabled: true, Levels: levels}.Encode())
	if n := len(i.tokens); n > 0 {
		p.lose("%d delegation tokens, whose keys are made of a secret", n)
	}
	return p
}

func (p *Plan) add(path string, data []byte) { p.Nodes = append(p.Nodes, Node{path, data}) }

func (p *Plan) lose(format string, args ...any) {
	p.Lost = append(p.Lost, fmt.Sprintf(format, args...))
}

func (i *Image) planTopics(p *Plan, fsys vfs.FS, dirs []string, self int32) {
	for _, name := range slices.Sorted(maps.Keys(i.names)) {
		t := i.topics[i.names[name]]
		node := compat.TopicNode{ID: t.id, Partitions: make([][]int32, len(t.partitions))}
		var states []Node
		elsewhere, newer := false, false
		for n := range int32(len(t.partitions)) {
			part := t.partitions[n]
			node.Partitions[n] = []int32{self}
			epoch, found := part.epoch, false
			for _, d := range dirs {
				dir := filepath.Join(d, name+"-"+strconv.Itoa(int(n)))
				if _, err := fsys.Stat(dir); err == nil {
					last := lastEpoch(fsys, dir)
					newer = newer || last > part.epoch
					epoch, found = max(epoch, last), true
				}
			}
			if !found {
				p.Empty++
				elsewhere = elsewhere || !slices.Contains(part.replicas, self)
			}
			states = append(states,
				Node{compat.PathPartition(name, n), nil},
				Node{compat.PathState(name, n), compat.StateNode{Leader: -1, LeaderEpoch: epoch, ISR: []int32{self}}.Encode()})
		}
		if elsewhere {
			p.Elsewhere = append(p.Elsewhere, name)
		}
		if newer {
			p.Newer = append(p.Newer, name)
		}
		p.Topics++
		p.Partitions += len(t.partitions)
		p.add(compat.PathEntity("topics", name), compat.ConfigNode{Config: i.configs[resource{kindTopic, name}]}.Encode())
		p.add(compat.PathTopic(name), node.Encode())
		p.add(compat.PathPartitions(name), nil)
		p.Nodes = append(p.Nodes, states...)
	}
}

// planConfigs makes the nodes below /config but those of topics. Users have their passwords and
// their quotas in one.
func (i *Image) planConfigs(p *Plan) {
	configs := map[string]map[string]string{} // by path
	parents := map[string]bool{}
	for r, values := range i.configs {
		path := ""
		switch {
		case r.kind == kindTopic:
			if _, ok := i.names[r.name]; !ok {
				continue // of a topic that is not there any more
			}
			p.Settings++
			continue
		case r.kind == kindBroker && r.name == "":
			path = compat.PathEntity("brokers", compat.DefaultEntity)
		case r.kind == kindBroker:
			path = compat.PathEntity("brokers", r.name)
		case r.kind == kindGroup:
			path = compat.PathEntity("groups", compat.Sanitize(r.name))
		case r.kind == kindClientMetrics:
			path = compat.PathEntity("client-metrics", compat.Sanitize(r.name))
		default:
			p.lose("settings of %q, a resource of type %d", r.name, r.kind)
			continue
		}
		p.Settings++
		configs[path] = values
	}
	for user, credentials := range i.scram {
		path := compat.PathEntity("users", compat.Sanitize(user))
		for code, c := range credentials {
			name := compat.ScramMechanism(code)
			if name == "" {
				p.lose("a password of user %q, of mechanism %d", user, code)
				continue
			}
			put(configs, path, name, c.Encode())
		}
		p.Users++
	}
	for c, values := range i.quotas {
		part := func(has bool, name string) *string {
			if !has {
				return nil
			}
			return &name
		}
		path, ok := compat.PathQuota(part(c.hasUser, c.user), part(c.hasClient, c.client), part(c.hasIP, c.ip))
		if !ok || c.unknown != "" {
			p.lose("quotas of a %s client", c.unknown)
			continue
		}
		p.Quotas++
		for name, v := range values {
			put(configs, path, name, compat.QuotaValue(name, v))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(configs)) {
		parts := strings.Split(path, "/") // "", config, KIND, NAME, or users/NAME/clients/NAME
		for n := 3; n < len(parts); n++ {
			above := strings.Join(parts[:n], "/")
			if !parents[above] && configs[above] == nil && !slices.Contains(compat.PersistentPaths, above) {
				parents[above] = true
				p.add(above, nil)
			}
		}
		p.add(path, compat.ConfigNode{Config: configs[path]}.Encode())
	}
}

func (i *Image) planACLs(p *Plan) {
	if len(i.acls) == 0 {
		return
	}
	nodes := map[string][]compat.ACL{}
	for _, a := range i.acls {
		path, ok := compat.PathACL(a.resource, a.pattern, a.name)
		if !ok || !a.known {
			p.lose("an ACL of %s on %q", a.entry.Principal, a.name)
			continue
		}
		p.ACLs++
		nodes[path] = append(nodes[path], a.entry)
	}
	for _, path := range compat.ACLPaths() {
		p.add(path, nil)
	}
	for _, path := range slices.Sorted(maps.Keys(nodes)) {
		p.add(path, compat.ACLNode{ACLs: nodes[path]}.Encode())
	}
}
