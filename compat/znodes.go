package compat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The paths of Kafka 3.9's tree (kafka.zk.ZkData). Outsiders rely on them: Kafka's brokers and
// tools, the consumers of 0.8, operators' scripts.
const (
	PathCluster           = "/cluster"
	PathClusterID         = "/cluster/id"
	PathController        = "/controller"
	PathControllerEpoch   = "/controller_epoch"
	PathBrokers           = "/brokers"
	PathBrokerIDs         = "/brokers/ids"
	PathBrokerSeqID       = "/brokers/seqid"
	PathTopics            = "/brokers/topics"
	PathConfig            = "/config"
	PathConfigChanges     = "/config/changes"
	PathAdmin             = "/admin"
	PathDeleteTopics      = "/admin/delete_topics"
	PathReassign          = "/admin/reassign_partitions"
	PathPreferredElection = "/admin/preferred_replica_election"
	PathISRChanges        = "/isr_change_notification"
	PathLogDirEvents      = "/log_dir_event_notification"
	PathProducerIDs       = "/latest_producer_id_block"
	PathFeature           = "/feature"
	PathConsumers         = "/consumers"

	PrefixConfigChange = "config_change_"
	PrefixISRChange    = "isr_change_"
	PrefixLogDirEvent  = "log_dir_event_"

	// DefaultEntity stands where a configuration is the default of its kind.
	DefaultEntity = "<default>"
)

// PersistentPaths are the nodes that a broker makes before anything else, in the order in which
// 3.9.1 makes them, every parent before its children. Their data is null.
var PersistentPaths = []string{
	PathConsumers, PathBrokers, PathBrokerIDs, PathTopics, PathConfig, PathConfigChanges, PathAdmin,
	PathDeleteTopics, PathBrokerSeqID, PathISRChanges, PathProducerIDs, PathLogDirEvents,
	"/config/topics", "/config/clients", "/config/users", "/config/brokers", "/config/ips",
}

// PathBroker is the registration of a broker.
func PathBroker(id int32) string { return PathBrokerIDs + "/" + strconv.Itoa(int(id)) }

// PathTopic holds a topic's assignment.
func PathTopic(topic string) string { return PathTopics + "/" + topic }

// PathPartitions is the parent of a topic's partitions.
func PathPartitions(topic string) string { return PathTopics + "/" + topic + "/partitions" }

// PathPartition is the parent of a partition's state.
func PathPartition(topic string, p int32) string {
	return PathTopics + "/" + topic + "/partitions/" + strconv.Itoa(int(p))
}

// PathState holds a partition's leader and in-sync set.
func PathState(topic string, p int32) string { return PathPartition(topic, p) + "/state" }

// PathDeleteTopic marks a topic for deletion.
func PathDeleteTopic(topic string) string { return PathDeleteTopics + "/" + topic }

// PathEntity holds the configuration of one entity: kind is topics, brokers, clients, users, ips
// or groups; name is sanitized (see Sanitize) and may have parts (users/alice/clients/app1).
func PathEntity(kind, name string) string { return PathConfig + "/" + kind + "/" + name }

// Sanitize makes a name fit for a path, as org.apache.kafka.common.utils.Sanitizer: the URL
// encoding of forms, with + as %20 and * as %2A.
func Sanitize(name string) string {
	safe := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
	}
	plain := true
	for i := range len(name) {
		plain = plain && safe(name[i])
	}
	if plain {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		if safe(name[i]) {
			b.WriteByte(name[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", name[i])
		}
	}
	return b.String()
}

// Desanitize is the inverse of Sanitize; what is no encoding stays as it is.
func Desanitize(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '+':
			b.WriteByte(' ')
		case s[i] == '%' && i+2 < len(s):
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// ErrZnode is data that Kafka would not have written there.
var ErrZnode = errors.New("malformed znode")

func znodeError(kind string, data []byte, err error) error {
	const most = 200 // of foreign bytes in an error's text
	if len(data) > most {
		data = data[:most]
	}
	return fmt.Errorf("%w: %s %q: %w", ErrZnode, kind, data, err)
}

// decodeZnode reads JSON into the wire form W of a node, whose version must be within bounds.
func decodeZnode[W any](kind string, data []byte, version func(*W) int, least, most int) (W, error) {
	var w W
	if err := json.Unmarshal(data, &w); err != nil {
		return w, znodeError(kind, data, err)
	}
	if v := version(&w); v < least || v > most {
		return w, znodeError(kind, data, fmt.Errorf("version %d is not within %d to %d", v, least, most))
	}
	return w, nil
}

// encodeZnode writes JSON without HTML escapes; w holds nothing that could fail.
func encodeZnode(w any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(w); err != nil {
		panic(err) // a wire form of this file that cannot be JSON
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

// ClusterIDNode is the data of /cluster/id: 22 characters of URL-safe base64.
type ClusterIDNode struct{ ID string }

type clusterIDWire struct {
	Version looseInt `json:"version"`
	ID      string   `json:"id"`
}

func (n ClusterIDNode) Encode() []byte {
	return []byte(`{"version":"1","id":` + string(encodeZnode(n.ID)) + `}`)
}

// DecodeClusterID reads /cluster/id.
func DecodeClusterID(data []byte) (ClusterIDNode, error) {
	w, err := decodeZnode("cluster id", data, func(w *clusterIDWire) int { return int(w.Version) }, 1, 1)
	if err == nil && w.ID == "" {
		err = znodeError("cluster id", data, errors.New("no id"))
	}
	return ClusterIDNode{w.ID}, err
}

// looseInt is a number that some writers put into quotes.
type looseInt int64

func (n *looseInt) UnmarshalJSON(b []byte) error {
	if len(b) > 1 && b[0] == '"' {
		b = b[1 : len(b)-1]
	}
	v, err := strconv.ParseInt(string(b), 10, 64)
	*n = looseInt(v)
	return err
}

// ControllerNode is the data of /controller. Timestamp is in ms.
type ControllerNode struct {
	BrokerID  int32
	Timestamp int64
}

type controllerWire struct {
	Version    int      `json:"version"`
	BrokerID   *int32   `json:"brokerid"`
	Timestamp  looseInt `json:"timestamp"`
	KRaftEpoch int      `json:"kraftControllerEpoch"`
}

func (n ControllerNode) Encode() []byte {
	return fmt.Appendf(nil, `{"version":2,"brokerid":%d,"timestamp":"%d","kraftControllerEpoch":-1}`, n.BrokerID, n.Timestamp)
}

// DecodeController reads /controller, versions 1 and 2.
func DecodeController(data []byte) (ControllerNode, error) {
	w, err := decodeZnode("controller", data, func(w *controllerWire) int { return w.Version }, 1, 1<<30)
	if err == nil && w.BrokerID == nil {
		err = znodeError("controller", data, errors.New("no brokerid"))
	}
	if err != nil {
		return ControllerNode{}, err
	}
	return ControllerNode{*w.BrokerID, int64(w.Timestamp)}, nil
}

// EncodeControllerEpoch is the data of /controller_epoch, plain decimal text.
func EncodeControllerEpoch(epoch int32) []byte { return strconv.AppendInt(nil, int64(epoch), 10) }

// DecodeControllerEpoch reads /controller_epoch.
func DecodeControllerEpoch(data []byte) (int32, error) {
	n, err := strconv.ParseInt(string(data), 10, 32)
	if err != nil || n < 0 {
		return 0, znodeError("controller epoch", data, errors.New("not a number"))
	}
	return int32(n), nil
}

// ConfigNode is the data of /config/KIND/NAME.
type ConfigNode struct{ Config map[string]string }

type configWire struct {
	Version int                         `json:"version"`
	Config  *map[string]json.RawMessage `json:"config"`
}

func (n ConfigNode) Encode() []byte {
	names := make([]string, 0, len(n.Config))
	for name := range n.Config {
		names = append(names, name)
	}
	slices.Sort(names)
	b := []byte(`{"version":1,"config":{`)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, encodeZnode(name)...)
		b = append(b, ':')
		b = append(b, encodeZnode(n.Config[name])...)
	}
	return append(b, "}}"...)
}

// DecodeConfig reads a configuration; null or no data is an empty one, as for Kafka
// (AdminZkClient.fetchEntityConfig). Values are strings; numbers and truth values are taken as
// their text.
func DecodeConfig(data []byte) (ConfigNode, error) {
	n := ConfigNode{map[string]string{}}
	if len(data) == 0 {
		return n, nil
	}
	w, err := decodeZnode("config", data, func(w *configWire) int { return w.Version }, 1, 1)
	if err == nil && w.Config == nil {
		err = znodeError("config", data, errors.New("no config"))
	}
	if err != nil {
		return n, err
	}
	for name, raw := range *w.Config {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			s = string(raw)
		}
		n.Config[name] = s
	}
	return n, nil
}

// ConfigChangeNode is the data of /config/changes/config_change_N: which entity changed, as
// KIND/NAME below /config.
type ConfigChangeNode struct{ Entity string }

type configChangeWire struct {
	Version    int    `json:"version"`
	EntityPath string `json:"entity_path"`
	EntityType string `json:"entity_type"` // version 1
	EntityName string `json:"entity_name"`
}

func (n ConfigChangeNode) Encode() []byte {
	return []byte(`{"version":2,"entity_path":` + string(encodeZnode(n.Entity)) + `}`)
}

// DecodeConfigChange reads a notification of version 1 or 2, or the one of Kafka 0.8: the name of
// a topic, as a JSON text.
func DecodeConfigChange(data []byte) (ConfigChangeNode, error) {
	var topic string
	if len(data) > 0 && data[0] == '"' && json.Unmarshal(data, &topic) == nil && topic != "" {
		return ConfigChangeNode{"topics/" + topic}, nil
	}
	w, err := decodeZnode("config change", data, func(w *configChangeWire) int { return w.Version }, 1, 2)
	if err != nil {
		return ConfigChangeNode{}, err
	}
	if w.Version == 1 {
		w.EntityPath = w.EntityType + "/" + w.EntityName
	}
	kind, name, ok := strings.Cut(w.EntityPath, "/")
	if !ok || kind == "" || name == "" {
		return ConfigChangeNode{}, znodeError("config change", data, errors.New("no entity"))
	}
	return ConfigChangeNode{w.EntityPath}, nil
}

// ProducerBlockNode is the data of /latest_producer_id_block: the block [Start, End] handed out
// last, and to whom.
type ProducerBlockNode struct {
	Broker     int32
	Start, End int64
}

type producerBlockWire struct {
	Version int       `json:"version"`
	Broker  int32     `json:"broker"`
	Start   *looseInt `json:"block_start"`
	End     *looseInt `json:"block_end"`
}

// Encode writes null for the block before the first.
func (n ProducerBlockNode) Encode() []byte {
	if n.End < 0 {
		return nil
	}
	return fmt.Appendf(nil, `{"version":1,"broker":%d,"block_start":"%d","block_end":"%d"}`, n.Broker, n.Start, n.End)
}

// DecodeProducerBlock reads /latest_producer_id_block; null data is the block that ends at -1.
func DecodeProducerBlock(data []byte) (ProducerBlockNode, error) {
	if len(data) == 0 {
		return ProducerBlockNode{Broker: -1, Start: -1, End: -1}, nil
	}
	w, err := decodeZnode("producer id block", data, func(w *producerBlockWire) int { return w.Version }, 1, 1)
	if err == nil && (w.Start == nil || w.End == nil || *w.End < *w.Start || *w.Start < 0) {
		err = znodeError("producer id block", data, errors.New("no block"))
	}
	if err != nil {
		return ProducerBlockNode{}, err
	}
	return ProducerBlockNode{w.Broker, int64(*w.Start), int64(*w.End)}, nil
}

// FeatureNode is the data of /feature: the finalized levels. Enabled is status 1.
type FeatureNode struct {
	Enabled bool
	Levels  map[string]int16
}

type featureWire struct {
	Version  int                         `json:"version"`
	Status   *int                        `json:"status"`
	Features map[string]map[string]int16 `json:"features"`
}

func (n FeatureNode) Encode() []byte {
	names := make([]string, 0, len(n.Levels))
	for name := range n.Levels {
		names = append(names, name)
	}
	slices.Sort(names)
	b := []byte(`{"features":{`)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, encodeZnode(name)...)
		b = fmt.Appendf(b, `:{"max_version_level":%d}`, n.Levels[name])
	}
	status := 0
	if n.Enabled {
		status = 1
	}
	return fmt.Appendf(b, `},"version":2,"status":%d}`, status)
}

// DecodeFeature reads /feature, versions 1 and 2.
func DecodeFeature(data []byte) (FeatureNode, error) {
	w, err := decodeZnode("feature", data, func(w *featureWire) int { return w.Version }, 1, 2)
	if err == nil && (w.Status == nil || *w.Status < 0 || *w.Status > 1) {
		err = znodeError("feature", data, errors.New("no status"))
	}
	if err != nil {
		return FeatureNode{}, err
	}
	n := FeatureNode{*w.Status == 1, map[string]int16{}}
	for name, levels := range w.Features {
		level, ok := levels["max_version_level"]
		if !ok || level < 1 {
			return FeatureNode{}, znodeError("feature", data, fmt.Errorf("no level of %s", name))
		}
		n.Levels[name] = level
	}
	return n, nil
}
