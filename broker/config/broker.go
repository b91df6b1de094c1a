package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"ottla/coordinator/group"
)

// Broker is what is in force for the whole broker. It is never changed once it is handed out.
// Fields are named after their settings; numbers of any width are int64, times are in
// milliseconds unless the setting's name says otherwise, sizes are in bytes.
type Broker struct {
	ID         int32
	IDSet      bool // false: nobody set an id, and the one in a data directory may be taken
	BrokerRack string

	Listeners           []Listener // to open; without the KRaft controller's
	Advertised          []Listener // to tell clients
	InterBrokerListener string

	LogDirs        []string
	MetadataLogDir string // empty: the first of LogDirs

	// The cluster.
	ZooKeeperConnect                 string // empty: this broker is alone, with a registry of its own
	ZooKeeperConnectionTimeoutMs     int64
	ZooKeeperSessionTimeoutMs        int64
	ZooKeeperMaxInFlightRequests     int64
	BrokerIDGenerationEnable         bool
	ReservedBrokerMaxID              int64
	ControlledShutdownEnable         bool
	ControlledShutdownMaxRetries     int64
	ControlledShutdownRetryBackoffMs int64
	NumReplicaFetchers               int64
	ReplicaFetchBackoffMs            int64
	ReplicaFetchMaxBytes             int64
	ReplicaFetchMinBytes             int64
	ReplicaFetchResponseMaxBytes     int64
	ReplicaFetchWaitMaxMs            int64
	ReplicaLagTimeMaxMs              int64
	ReplicaSocketTimeoutMs           int64

	AutoLeaderRebalanceEnable           bool
	LeaderImbalanceCheckIntervalSeconds int64
	LeaderImbalancePerBrokerPercentage  int64

	// Connections and requests.
	MaxConnections                       int64
	MaxConnectionsPerIP                  int64
	MaxConnectionsPerIPOverrides         map[string]int64 // by host name or address; nil where there are none
	ConnectionsMaxIdleMs                 int64
	SocketRequestMaxBytes                int64
	SocketSendBufferBytes                int64 // -1: the system's
	SocketReceiveBufferBytes             int64 // -1: the system's
	SocketListenBacklogSize              int64
	QueuedMaxRequestBytes                int64 // -1: no limit
	RequestMaxBytes                      int64 // ottla.request.max.bytes
	FetchMaxBytes                        int64
	MaxIncrementalFetchSessionCacheSlots int64
	MaxRequestPartitionSizeLimit         int64

	// Topics as a whole; the defaults of their settings are Store.Topic's.
	NumPartitions            int64
	DefaultReplicationFactor int64
	AutoCreateTopicsEnable   bool
	DeleteTopicEnable        bool

	// Logs as a whole.
	LogRetentionCheckIntervalMs              int64
	LogFlushSchedulerIntervalMs              int64
	LogFlushOffsetCheckpointIntervalMs       int64
	LogFlushStartOffsetCheckpointIntervalMs  int64
	LogInitialTaskDelayMs                    int64
	ReplicaHighWatermarkCheckpointIntervalMs int64
	NumRecoveryThreadsPerDataDir             int64
	ProducerIDExpirationMs                   int64
	ProducerIDExpirationCheckIntervalMs      int64
	LogCleanerEnable                         bool
	LogCleanerThreads                        int64
	LogCleanerDedupeBufferSize               int64
	LogCleanerIOBufferLoadFactor             float64
	LogCleanerIOBufferSize                   int64
	LogCleanerIOMaxBytesPerSecond            float64
	LogCleanerBackoffMs                      int64

	// Groups and committed offsets.
	GroupInitialRebalanceDelayMs        int64
	GroupMinSessionTimeoutMs            int64
	GroupMaxSessionTimeoutMs            int64
	GroupMaxSize                        int64
	GroupConsumerAssignors              []string
	GroupConsumerHeartbeatIntervalMs    int64
	GroupConsumerSessionTimeoutMs       int64
	GroupConsumerMinHeartbeatIntervalMs int64
	GroupConsumerMaxHeartbeatIntervalMs int64
	GroupConsumerMinSessionTimeoutMs    int64
	GroupConsumerMaxSessionTimeoutMs    int64
	GroupConsumerMaxSize                int64
	GroupConsumerMigrationPolicy        string // in any case
	GroupCoordinatorRebalanceProtocols  []string
	OffsetMetadataMaxBytes              int64
	OffsetsCommitTimeoutMs              int64
	OffsetsRetentionMinutes             int64
	OffsetsRetentionCheckIntervalMs     int64
	OffsetsTopicNumPartitions           int64
	OffsetsTopicReplicationFactor       int64
	OffsetsTopicSegmentBytes            int64
	OffsetsTopicCompressionCodec        int64 // 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd

	// Transactions.
	AddPartitionsToTxnRetryBackoffMaxMs                  int64
	TransactionMaxTimeoutMs                              int64
	TransactionPartitionVerificationEnable               bool
	TransactionRemoveExpiredTransactionCleanupIntervalMs int64
	TransactionStateLogMinISR                            int64
	TransactionStateLogNumPartitions                     int64
	TransactionStateLogReplicationFactor                 int64
	TransactionStateLogSegmentBytes                      int64
	TransactionalIDExpirationMs                          int64

	raw raw
}

// raw are the settings that other fields are made of.
type raw struct {
	listeners, advertised, controllerNames, processRoles  []string
	protocolMap, interBrokerListener, interBrokerProtocol string
	perIP                                                 string
	brokerID, nodeID                                      int64
	logDir, logDirs                                       []string
}

// buildBroker makes the snapshot of settings by name. Every value that is set is checked, also
// where nothing reads it.
func buildBroker(settings map[string]string) (*Broker, error) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if r := findBrokerOrListener(name); r != nil {
			v, err := parse(&r.Row, settings[name])
			if err != nil {
				return nil, err
			}
			if err := refused(&r.Row, v, settings); err != nil {
				return nil, err
			}
		}
	}
	b := &Broker{}
	for _, area := range brokerAreas {
		rows := *area
		for i := range rows {
			if rows[i].Field == nil {
				continue
			}
			value, ok := settings[rows[i].Name]
			if !ok {
				value, ok = rows[i].defaultOf()
			}
			if !ok {
				continue
			}
			v, err := parseType(rows[i].Name, value, rows[i].Type)
			if err != nil {
				return nil, err
			}
			assign(rows[i].Field(b), v)
		}
	}
	set := func(name string) bool { _, ok := settings[name]; return ok }
	if err := b.setID(set); err != nil {
		return nil, err
	}
	if !set("socket.receive.buffer.bytes") {
		// Kafka's default would fix what Linux otherwise fits to each connection. With a window of a tenth
		// of a batch its sender stops and starts, which costs both sides a third of an append.
		b.SocketReceiveBufferBytes = -1
	}
	if err := b.setLogDirs(set); err != nil {
		return nil, err
	}
	if set("process.roles") && len(b.raw.processRoles) > 0 && !slices.Contains(b.raw.processRoles, "broker") {
		return nil, invalidValue("process.roles", strings.Join(b.raw.processRoles, ","),
			"It must contain broker: ottla has no controllers apart from brokers. Allowed are broker and broker,controller")
	}
	if err := b.setListeners(set); err != nil {
		return nil, err
	}
	if err := b.setCluster(settings); err != nil {
		return nil, err
	}
	var err error
	if b.MaxConnectionsPerIPOverrides, err = parsePerIP(b.raw.perIP); err != nil {
		return nil, err
	}
	return b, b.check(settings)
}

// refused reports a value that ottla cannot honour.
func refused(r *Row, v any, settings map[string]string) error {
	if r.Flags&Refused == 0 {
		return nil
	}
	value := format(v)
	if def := r.Default; value == def || value == "" && def == null {
		return nil
	}
	switch r.Name {
	case "authorizer.class.name":
		// Without a way to add ACLs this lets everybody do everything, as ottla does.
		if strings.EqualFold(trim(settings["allow.everyone.if.no.acl.found"]), "true") {
			return nil
		}
		return invalidValue(r.Name, value, r.Why+"; allowed is no value, or allow.everyone.if.no.acl.found=true beside it")
	case "remote.storage.enable":
		return invalidConfig("%s", r.Why)
	}
	allowed := r.Default
	if allowed == null || allowed == "" {
		allowed = "no value"
	}
	return invalidValue(r.Name, value, r.Why+"; allowed is "+allowed)
}

// setID settles the id, which has two names (KafkaConfig.populateSynonyms).
func (b *Broker) setID(set func(string) bool) error {
	node, broker := b.raw.nodeID, b.raw.brokerID
	if broker < -1 {
		return invalidValue("broker.id", strconv.FormatInt(broker, 10), "broker.id must be greater than or equal to -1")
	}
	brokerSet := set("broker.id") && broker >= 0
	switch {
	case set("node.id") && brokerSet && node != broker:
		return invalidValue("node.id", strconv.FormatInt(node, 10), "You must set `node.id` to the same value as `broker.id`.")
	case set("node.id"):
		b.ID, b.IDSet = int32(node), true
	case brokerSet:
		b.ID, b.IDSet = int32(broker), true
	default:
		b.ID = 1
	}
	return nil
}

func (b *Broker) setLogDirs(set func(string) bool) error {
	dirs, name := b.raw.logDirs, "log.dirs"
	if !set(name) {
		dirs, name = b.raw.logDir, "log.dir"
	}
	for _, d := range dirs {
		if d == "" {
			continue
		}
		if slices.Contains(b.LogDirs, d) {
			return invalidValue(name, strings.Join(dirs, ","), "Each directory must be named once, but "+d+" is there twice")
		}
		b.LogDirs = append(b.LogDirs, d)
	}
	if len(b.LogDirs) == 0 {
		return invalidValue(name, strings.Join(dirs, ","), "At least one log directory must be defined via log.dirs or log.dir.")
	}
	return nil
}

// check holds settings against each other (KafkaConfig.validateValues).
func (b *Broker) check(settings map[string]string) error {
	refuse := func(name, reason string) error { return invalidValue(name, settings[name], reason) }
	switch {
	case b.QueuedMaxRequestBytes > 0 && b.QueuedMaxRequestBytes < b.SocketRequestMaxBytes:
		return refuse("queued.max.request.bytes", "queued.max.request.bytes must be larger or equal to socket.request.max.bytes")
	case b.MaxConnectionsPerIP == 0 && len(b.MaxConnectionsPerIPOverrides) == 0:
		return refuse("max.connections.per.ip", "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.")
	case b.OffsetsTopicCompressionCodec < 0 || b.OffsetsTopicCompressionCodec > 4:
		return refuse("offsets.topic.compression.codec", "Unknown compression type id: "+strconv.FormatInt(b.OffsetsTopicCompressionCodec, 10)+"; allowed are 0 to 4")
	}
	for _, name := range b.GroupConsumerAssignors {
		if !group.HasAssignor(name) {
			return refuse("group.consumer.assignors", "Unknown assignor "+name+"; there are uniform, range, roundrobin and block, and classes of Java cannot be run")
		}
	}
	if len(b.GroupConsumerAssignors) == 0 {
		return refuse("group.consumer.assignors", "At least one assignor is needed")
	}
	return nil
}
