// Package config is the table of settings: every setting of a broker, a topic, a group and
// the other entities of Kafka 3.9.1 and 4.4.0 is a row with its type, default, bounds and
// what ottla does with it. The server.properties file, the command line, DescribeConfigs,
// AlterConfigs and `ottla settings` all read this one table.
//
// A Store holds the values that are in force as immutable snapshots: a Broker for the whole
// broker and a Topic for each topic, replaced as a whole by an atomic pointer when a dynamic
// setting changes. Nothing is parsed per request.
package config

import (
	"cmp"
	"slices"
	"strings"
)

// Type is a setting's type as Kafka declares it (org.apache.kafka.common.config.ConfigDef);
// the values are those of DescribeConfigs' config_type.
type Type int8

// The types of settings. Unknown is that of a setting without a row.
const (
	Unknown Type = iota
	Boolean
	String
	Int
	Short
	Long
	Double
	List
	Class
	Password
)

func (t Type) String() string {
	return [...]string{"UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"}[t]
}

// Mode says how a setting can be changed while the broker runs.
type Mode int8

// ReadOnly settings need a restart, PerBroker ones can be set for one broker, ClusterWide
// ones also for all.
const (
	ReadOnly Mode = iota
	PerBroker
	ClusterWide
)

func (m Mode) String() string { return [...]string{"read-only", "per-broker", "cluster-wide"}[m] }

// Flags mark what is particular to a row.
type Flags uint8

const (
	Internal     Flags = 1 << iota // not shown unless set, as in Kafka
	Kafka3                         // 3.9.1 has it, 4.4.0 does not: not shown unless set
	Quota                          // of Kafka's quota settings of brokers: not shown unless set
	Own                            // ottla's own
	Refused                        // any value but the default is an error; Why says the reason
	TopicDefault                   // the default of a topic setting, whose row names it
	Fixed                          // dynamic in Kafka; here it needs a restart
)

// Row is one setting.
type Row struct {
	Name    string
	Type    Type
	Default string // Kafka's, as Kafka prints it; null and required where there is none
	Valid   string // what is allowed, in Kafka's notation; empty: anything of the type
	Mode    Mode
	Flags   Flags
	Why     string // empty: ottla acts on it. Else why it is right to accept it without effect, or to refuse it
	Doc     string
}

// Effect is what ottla does with a setting.
type Effect string

// Acted settings change what ottla does, Accepted ones are kept and shown without effect,
// RefusedEffect ones are an error unless they have their default.
const (
	Acted         Effect = "acted"
	Accepted      Effect = "accepted"
	RefusedEffect Effect = "refused"
)

// Effect says what ottla does with the setting.
func (r *Row) Effect() Effect {
	switch {
	case r.Flags&Refused != 0:
		return RefusedEffect
	case r.Why != "":
		return Accepted
	}
	return Acted
}

// Sensitive reports whether the value is a secret, which is never shown.
func (r *Row) Sensitive() bool { return r.Type == Password }

// brokerRow is a broker setting with the field of Broker that holds its value; nil where
// nothing reads it, or where topics read it (TopicDefault).
type brokerRow struct {
	Row
	Field func(*Broker) any
}

// topicRow is a topic setting. From names the broker settings that give its default,
// separated by commas, the first that is set counting.
type topicRow struct {
	Row
	From  string
	Field func(*Topic) any
}

// groupRow is a group setting; From names the broker setting that gives its default.
type groupRow struct {
	Row
	From string
}

// Defaults that are no values.
const (
	null     = "null"       // there is no value
	required = "(required)" // Kafka 4.4 does not start without one; ottla has its own default
)

// The longer entries of Valid.
const (
	releases  = "release"
	throttled = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
)

// Why a setting is accepted without effect, or refused.
const (
	noTLS           = "it concerns listeners with SSL, and only PLAINTEXT listeners can be opened"
	noSASL          = "it concerns listeners with SASL, and only PLAINTEXT listeners can be opened"
	noTokens        = "delegation tokens need SASL, and only PLAINTEXT listeners can be opened"
	noStoredSecrets = "dynamic settings with passwords concern SSL and SASL listeners, which cannot be opened"
	noTwoPhase      = "it concerns InitProducerId v6 (KIP-939), which is not stable in Kafka 4.4 and not served"
	onTime          = "it happens the moment it is due, without a timer that looks for it"
	noKRaft         = "the registry is one file of this broker; there is no Raft quorum"
	assignedAtOnce  = "an assignment is made with the heartbeat that needs it, at once"
	matchedAtOnce   = "patterns are matched against the topics whenever these have changed"
	noShare         = "it concerns share groups, which are not served"
	noStreams       = "it concerns streams groups, which are not served"
	noTelemetry     = "clients are not asked for their metrics"
	noTiered        = "tiered storage cannot be switched on"
	noQuotas        = "rates of clients are not limited"
	noMoves         = "replicas are not moved between directories"
	oneTimeout      = "other brokers are waited for as replica.socket.timeout.ms says, whatever is asked of them"
	noThrottle      = "replication between brokers is not limited"
	nearest         = "consumers are not sent to a near replica"
	atOnce          = "partitions without a leader are looked at when something has changed"
	onePlane        = "the controller's requests come by the listener between brokers"
	goroutines      = "goroutines are made as they are needed; there are no pools of threads to size"
	oneAtATime      = "each connection has at most one request in work, so none wait for a thread"
	purgatory       = "a request that waits is dropped the moment it is done; nothing has to be purged"
	buffers         = "buffers grow to what a batch needs and go back to a pool"
	linger          = "what arrives while a write is under way goes into the next one, without a timer"
	metrics         = "metrics are read from /metrics; rates are computed by the reader"
	anonymous       = "on a PLAINTEXT listener everybody is User:ANONYMOUS"
	earlyStart      = "listeners open when the broker is ready, which takes milliseconds"
	startup         = "the start takes milliseconds and has no step that waits"
	stable          = "only stable versions are served"
	version         = "all versions of every served request are spoken; there is no other broker to agree with"
	storedV2        = "batches are stored in format v2, as Kafka does since 3.0 whatever this says"
	downconversion  = "consumers of before 0.11 are always served"
	coordinator     = "there is one coordinator, which serves both"
	commitAcks      = "commits always wait for all in-sync replicas, as with -1"

	java        = "it names a Java class, which ottla cannot run"
	authorizer  = "access control is not built; without it everybody may do everything, which this setting forbids"
	providers   = "values are taken as they stand; ${...} is not filled in"
	cordoned    = "directories cannot be taken out of use"
	zkLogin     = "nobody logs in to ZooKeeper, so nodes are open to everybody"
	zkTLS       = "ZooKeeper is spoken to without TLS"
	tiered      = "tiered storage is not built"
	tieredTopic = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)

// brokerAreas are all broker settings, each area sorted by name.
var brokerAreas = [...]*[]brokerRow{
	&networkRows, &brokerRows, &replicaRows, &logRows, &tieredRows, &groupCoordinatorRows, &shareRows,
	&streamsRows, &transactionRows, &kraftRows, &zookeeperRows, &tlsRows, &saslRows,
}

// findBroker returns the row of a broker setting, nil where there is none. There is no map of
// the rows, because it would have to be built at every start.
func findBroker(name string) *brokerRow {
	for _, area := range brokerAreas {
		rows := *area
		if i, ok := slices.BinarySearchFunc(rows, name, func(r brokerRow, n string) int { return cmp.Compare(r.Name, n) }); ok {
			return &rows[i]
		}
	}
	return nil
}

func findTopic(name string) *topicRow {
	if i, ok := slices.BinarySearchFunc(topicRows, name, func(r topicRow, n string) int { return cmp.Compare(r.Name, n) }); ok {
		return &topicRows[i]
	}
	return nil
}

func findGroup(name string) *groupRow {
	if i, ok := slices.BinarySearchFunc(groupRows, name, func(r groupRow, n string) int { return cmp.Compare(r.Name, n) }); ok {
		return &groupRows[i]
	}
	return nil
}

func findClientMetrics(name string) *Row {
	if i, ok := slices.BinarySearchFunc(clientMetricsRows, name, func(r Row, n string) int { return cmp.Compare(r.Name, n) }); ok {
		return &clientMetricsRows[i]
	}
	return nil
}

// findBrokerOrListener returns the row of a broker setting or, for listener.name.X.rest, that
// of the rest. Mechanism settings stand behind the mechanism (listener.name.X.plain.rest).
func findBrokerOrListener(name string) *brokerRow {
	base, ok := listenerBase(name)
	if !ok {
		return findBroker(name)
	}
	return findBroker(base)
}

// listenerBase cuts the prefix off a setting of one listener; ok is false for other settings.
func listenerBase(name string) (base string, ok bool) {
	rest, ok := strings.CutPrefix(name, "listener.name.")
	if !ok {
		return "", false
	}
	_, base, ok = strings.Cut(rest, ".")
	if !ok {
		return "", false
	}
	for _, m := range [...]string{"sasl.jaas.config", "sasl.login.callback.handler.class", "sasl.login.class",
		"sasl.server.callback.handler.class", "connections.max.reauth.ms"} {
		if strings.HasSuffix(base, m) {
			return m, true
		}
	}
	return base, true
}

// ownDefault returns the value that a setting has in ottla when nobody sets it, where that is
// not Kafka's (compat/differences.md has the reasons).
func ownDefault(name string) (value string, ok bool) {
	switch name {
	case "broker.id", "node.id":
		return "1", true
	case "listeners":
		return "PLAINTEXT://localhost:9092", true
	case "log.dir":
		return "./ottla-data", true
	case "controller.listener.names", "process.roles":
		return "", true
	case "log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms":
		return "9223372036854775807", true
	}
	return "", false
}

// defaultOf returns the value of a setting that nobody sets; ok is false for null.
func (r *Row) defaultOf() (value string, ok bool) {
	if v, ok := ownDefault(r.Name); ok {
		return v, true
	}
	return r.Default, r.Default != null && r.Default != required
}

// brokerSynonyms are the settings that mean the same as one, in the order in which they count
// (kafka.server.DynamicBrokerConfig.brokerConfigSynonyms), itself among them.
func brokerSynonyms(name string) []string {
	switch name {
	case "log.roll.ms", "log.roll.hours":
		return []string{"log.roll.ms", "log.roll.hours"}
	case "log.roll.jitter.ms", "log.roll.jitter.hours":
		return []string{"log.roll.jitter.ms", "log.roll.jitter.hours"}
	case "log.flush.interval.ms":
		return []string{"log.flush.interval.ms", "log.flush.scheduler.interval.ms"}
	case "log.retention.ms", "log.retention.minutes", "log.retention.hours":
		return []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"}
	}
	return []string{name}
}
