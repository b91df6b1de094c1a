package config

import (
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ottla/compat"
)

// Kinds of entities that have settings, by their names in the registry.
const (
	Topics        = "topics"
	Brokers       = "brokers"
	Groups        = "groups"
	ClientMetrics = "client-metrics"
)

// DefaultName is the name under which the registry keeps what all brokers have.
const DefaultName = compat.DefaultEntity

// Options are what a Store is made of.
type Options struct {
	// Settings are the static ones: the properties file and what the command line sets over
	// it, by name. The Store keeps the map.
	Settings map[string]string
	Logger   *slog.Logger   // nil: nothing is logged
	Level    *slog.LevelVar // the level of the log, which DescribeConfigs shows as the logger root; nil: a level of its own
}

// Store holds the settings in force.
//
// Of a broker's settings the dynamic ones for this broker come first, then the dynamic ones for
// all brokers, the static ones, the defaults. Of a topic's its own come first.
type Store struct {
	log    *slog.Logger
	level  *slog.LevelVar
	static map[string]string // immutable

	current atomic.Pointer[snapshot]
	topics  sync.Map // topic name -> *override; topics without settings of their own have none
	others  sync.Map // entity{kind, name} -> map[string]string, for groups and client metrics

	mu      sync.Mutex    // held by ApplyConfig
	changed chan struct{} // guarded by mu; closed when current is replaced
}

// snapshot is one state of the broker's settings; nothing in it is changed.
type snapshot struct {
	broker                  *Broker
	topic                   *Topic            // of topics without settings of their own
	settings                map[string]string // what is set, dynamic over static
	dynamic, dynamicDefault map[string]string
}

// override is what one topic has of its own.
type override struct {
	values map[string]string
	topic  *Topic
}

type entity struct{ kind, name string }

// New checks the static settings and makes the store. The error names the first broken
// setting, its value and what is allowed. Settings without a row are kept, shown by
// DescribeConfigs and named in one log line.
func New(o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Level == nil {
		o.Level = new(slog.LevelVar)
	}
	s := &Store{log: o.Logger, level: o.Level, static: withID(o.Settings), changed: make(chan struct{})}
	n, err := s.build(nil, nil)
	if err != nil {
		return nil, err
	}
	s.current.Store(n)
	if unknown := s.unknown(); len(unknown) > 0 {
		s.log.Warn("settings that ottla does not know have no effect", "names", strings.Join(unknown, ", "))
	}
	return s, nil
}

// withID gives the id both its names if it has one (KafkaConfig.populateSynonyms).
func withID(settings map[string]string) map[string]string {
	node, ok := settings["node.id"]
	broker, ok2 := settings["broker.id"]
	unset := strings.HasPrefix(trim(broker), "-")
	switch {
	case ok && (!ok2 || unset):
		settings = maps.Clone(settings)
		settings["broker.id"] = node
	case !ok && ok2 && !unset:
		settings = maps.Clone(settings)
		settings["node.id"] = broker
	}
	return settings
}

// unknown are the static settings without a row.
func (s *Store) unknown() []string {
	var names []string
	for name := range s.static {
		if findBrokerOrListener(name) == nil && name != "allow.everyone.if.no.acl.found" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// build makes the snapshot that the static and these dynamic settings give.
func (s *Store) build(dynamicDefault, dynamic map[string]string) (*snapshot, error) {
	settings := s.static
	if len(dynamicDefault)+len(dynamic) > 0 {
		settings = maps.Clone(s.static)
		if settings == nil {
			settings = map[string]string{}
		}
		overlay(settings, dynamicDefault)
		overlay(settings, dynamic)
	}
	b, err := buildBroker(settings)
	if err != nil {
		return nil, err
	}
	t, err := buildTopic(settings, nil)
	if err != nil {
		return nil, err
	}
	if err := checkDefaults(settings, t); err != nil {
		return nil, err
	}
	return &snapshot{b, t, settings, dynamic, dynamicDefault}, nil
}

// overlay sets values over what is there. A setting pushes out its synonyms below it, so that a
// dynamic log.retention.ms counts against any static one (DynamicBrokerConfig.overrideProps).
func overlay(settings, over map[string]string) {
	for name := range over {
		for _, synonym := range brokerSynonyms(name) {
			delete(settings, synonym)
		}
	}
	maps.Copy(settings, over)
}

// Broker returns what is in force for the broker.
func (s *Store) Broker() *Broker { return s.current.Load().broker }

// Next returns what is in force for the broker and a channel that is closed when something
// else is.
func (s *Store) Next() (*Broker, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.Load().broker, s.changed
}

// Topic returns what is in force for a topic, whether or not there is a topic of that name.
func (s *Store) Topic(name string) *Topic {
	if o, ok := s.topics.Load(name); ok {
		return o.(*override).topic
	}
	return s.current.Load().topic
}

// Apply takes the settings of one entity from the registry; they replace those that it had.
// Kind is one of Topics, Brokers, Groups and ClientMetrics, other kinds are not the Store's;
// name is the name of the registry's node (NodeName). Values that a setting does not take are
// logged and left out: they were let in by another broker, and the rest has to go on.
func (s *Store) Apply(kind, name string, values map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name = entityName(kind, name)
	switch kind {
	case Topics:
		s.applyTopicLocked(name, values)
	case Brokers:
		s.applyBrokerLocked(name, values)
	case Groups, ClientMetrics:
		values = s.valid(kind, name, values, func(k, v string) error { return s.checkEntityValue(kind, k, v) })
		if len(values) == 0 {
			s.others.Delete(entity{kind, name})
		} else {
			s.others.Store(entity{kind, name}, values)
		}
	}
}

func (s *Store) applyTopicLocked(name string, values map[string]string) {
	values = s.valid(Topics, name, values, checkTopicValue)
	if len(values) == 0 {
		s.topics.Delete(name)
		return
	}
	t, err := buildTopic(s.current.Load().settings, values)
	if err != nil {
		s.log.Error("the settings of a topic contradict each other", "topic", name, "err", err)
		if t == nil {
			return
		}
	}
	s.topics.Store(name, &override{values, t})
}

func (s *Store) applyBrokerLocked(name string, values map[string]string) {
	old := s.current.Load()
	dynamic, dynamicDefault := old.dynamic, old.dynamicDefault
	switch name {
	case "", DefaultName:
		dynamicDefault = s.valid(Brokers, name, values, func(k, v string) error { return checkDynamic(map[string]string{k: v}, false) })
	case strconv.Itoa(int(old.broker.ID)):
		dynamic = s.valid(Brokers, name, values, func(k, v string) error { return checkDynamic(map[string]string{k: v}, true) })
	default:
		return // another broker's
	}
	n, err := s.build(dynamicDefault, dynamic)
	if err != nil {
		s.log.Error("the dynamic settings of the broker contradict each other and are left as they were", "broker", name, "err", err)
		return
	}
	s.current.Store(n)
	s.topics.Range(func(key, value any) bool {
		o := value.(*override)
		if t, _ := buildTopic(n.settings, o.values); t != nil {
			s.topics.Store(key, &override{o.values, t})
		}
		return true
	})
	close(s.changed)
	s.changed = make(chan struct{})
}

// valid leaves out the values that check refuses. It always makes a map of its own.
func (s *Store) valid(kind, name string, values map[string]string, check func(name, value string) error) map[string]string {
	kept := make(map[string]string, len(values))
	for k, v := range values {
		if err := check(k, v); err != nil {
			s.log.Error("a setting in the registry is not valid and is ignored", "kind", kind, "name", name, "setting", k, "err", err)
			continue
		}
		kept[k] = v
	}
	return kept
}

// NodeName is the name of the registry's node for the settings of an entity: sanitized, and
// DefaultName where no broker is named.
func NodeName(kind, name string) string {
	if kind == Brokers && name == "" {
		return DefaultName
	}
	if kind == Groups || kind == ClientMetrics {
		return compat.Sanitize(name)
	}
	return name
}

// entityName is the reverse of NodeName.
func entityName(kind, node string) string {
	if kind == Groups || kind == ClientMetrics {
		return compat.Desanitize(node)
	}
	return node
}

// Names returns the groups or the client metrics subscriptions that have settings, sorted.
func (s *Store) Names(kind string) []string {
	var names []string
	s.others.Range(func(key, _ any) bool {
		if e := key.(entity); e.kind == kind {
			names = append(names, e.name)
		}
		return true
	})
	slices.Sort(names)
	return names
}

// own returns the settings that an entity has of its own.
func (s *Store) own(kind, name string) map[string]string {
	if kind == Topics {
		if o, ok := s.topics.Load(name); ok {
			return o.(*override).values
		}
		return nil
	}
	v, _ := s.others.Load(entity{kind, name})
	m, _ := v.(map[string]string)
	return m
}

// ConsumerGroup returns a group's own consumer.session.timeout.ms and
// consumer.heartbeat.interval.ms; 0 where it has none.
func (s *Store) ConsumerGroup(name string) (session, heartbeat time.Duration) {
	values := s.own(Groups, name)
	if len(values) == 0 {
		return 0, 0
	}
	b := s.Broker()
	number := func(setting string, least, most int64) time.Duration {
		n, err := strconv.ParseInt(trim(values[setting]), 10, 32)
		if err != nil {
			return 0
		}
		return time.Duration(max(least, min(n, most))) * time.Millisecond // the bounds may be newer than the value
	}
	return number("consumer.session.timeout.ms", b.GroupConsumerMinSessionTimeoutMs, b.GroupConsumerMaxSessionTimeoutMs),
		number("consumer.heartbeat.interval.ms", b.GroupConsumerMinHeartbeatIntervalMs, b.GroupConsumerMaxHeartbeatIntervalMs)
}
