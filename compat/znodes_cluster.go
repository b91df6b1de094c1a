package compat

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Endpoint is one listener in a broker's registration. An empty host is written as such: the
// address by which a client reached the broker.
type Endpoint struct {
	Listener, Protocol, Host string
	Port                     int32
}

// FeatureRange is what a broker supports of a feature.
type FeatureRange struct{ Min, Max int16 }

// BrokerNode is the data of /brokers/ids/N, written in version 5. Timestamp is in ms. Rack is
// empty where there is none.
type BrokerNode struct {
	Endpoints []Endpoint
	Rack      string
	JMXPort   int32
	Timestamp int64
	Features  map[string]FeatureRange
}

type brokerWire struct {
	Version   int                         `json:"version"`
	Host      *string                     `json:"host"`
	Port      int32                       `json:"port"`
	JMXPort   int32                       `json:"jmx_port"`
	Timestamp looseInt                    `json:"timestamp"`
	Endpoints []string                    `json:"endpoints"`
	Rack      *string                     `json:"rack"`
	Protocols map[string]string           `json:"listener_security_protocol_map"`
	Features  map[string]map[string]int16 `json:"features"`
}

// Encode writes version 5. Host and port, which clients of 0.8 read, are those of the first
// PLAINTEXT endpoint, null and -1 without one.
func (n BrokerNode) Encode() []byte {
	b := []byte(`{"features":{`)
	names := make([]string, 0, len(n.Features))
	for name := range n.Features {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, encodeZnode(name)...)
		b = fmt.Appendf(b, `:{"min_version":%d,"max_version":%d}`, n.Features[name].Min, n.Features[name].Max)
	}
	b = append(b, `},"listener_security_protocol_map":{`...)
	host, port := []byte("null"), int32(-1)
	for i, e := range n.Endpoints {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, encodeZnode(e.Listener)...)
		b = append(b, ':')
		b = append(b, encodeZnode(e.Protocol)...)
		if port < 0 && e.Protocol == "PLAINTEXT" {
			host, port = encodeZnode(e.Host), e.Port
		}
	}
	b = append(b, `},"endpoints":[`...)
	for i, e := range n.Endpoints {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, encodeZnode(e.Listener+"://"+net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))))...)
	}
	b = fmt.Appendf(b, `],"jmx_port":%d,"port":%d,"host":%s,"version":5`, n.JMXPort, port, host)
	if n.Rack != "" {
		b = append(append(b, `,"rack":`...), encodeZnode(n.Rack)...)
	}
	return fmt.Appendf(b, `,"timestamp":"%d"}`, n.Timestamp)
}

// DecodeBroker reads a registration of version 1 (host and port: listener PLAINTEXT) to 5.
func DecodeBroker(data []byte) (BrokerNode, error) {
	w, err := decodeZnode("broker", data, func(w *brokerWire) int { return w.Version }, 1, 1<<30)
	if err != nil {
		return BrokerNode{}, err
	}
	n := BrokerNode{JMXPort: w.JMXPort, Timestamp: int64(w.Timestamp)}
	if w.Rack != nil {
		n.Rack = *w.Rack
	}
	if w.Version == 1 {
		if w.Host == nil {
			return BrokerNode{}, znodeError("broker", data, errors.New("no host"))
		}
		n.Endpoints = []Endpoint{{"PLAINTEXT", "PLAINTEXT", *w.Host, w.Port}}
		return n, nil
	}
	for _, s := range w.Endpoints {
		listener, address, ok := strings.Cut(s, "://")
		if !ok {
			return BrokerNode{}, znodeError("broker", data, fmt.Errorf("endpoint %q", s))
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return BrokerNode{}, znodeError("broker", data, err)
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return BrokerNode{}, znodeError("broker", data, err)
		}
		protocol := listener // versions 2 and 3: the listener's name is the protocol
		if w.Protocols != nil {
			if protocol, ok = w.Protocols[listener]; !ok {
				return BrokerNode{}, znodeError("broker", data, fmt.Errorf("no protocol of listener %q", listener))
			}
		}
		n.Endpoints = append(n.Endpoints, Endpoint{listener, protocol, host, int32(number)})
	}
	for name, bounds := range w.Features {
		if n.Features == nil {
			n.Features = map[string]FeatureRange{}
		}
		n.Features[name] = FeatureRange{bounds["min_version"], bounds["max_version"]}
	}
	return n, nil
}

// TopicNode is the data of /brokers/topics/T, written in version 3. Partitions are by number;
// one that the node does not name has no replicas. Adding and Removing are by partition.
type TopicNode struct {
	ID               [16]byte // zero: none, then version 3 without topic_id
	Partitions       [][]int32
	Adding, Removing map[int32][]int32
}

type topicWire struct {
	Version    int                `json:"version"`
	Partitions map[string][]int32 `json:"partitions"`
	TopicID    string             `json:"topic_id"`
	Adding     map[string][]int32 `json:"adding_replicas"`
	Removing   map[string][]int32 `json:"removing_replicas"`
}

func (n TopicNode) Encode() []byte {
	b := append(make([]byte, 0, 120+16*len(n.Partitions)), `{"partitions":{`...)
	first := true
	for p, replicas := range n.Partitions {
		if replicas != nil {
			b = appendReplicas(b, &first, int32(p), replicas)
		}
	}
	b = append(b, '}')
	if n.ID != ([16]byte{}) {
		b = append(b, `,"topic_id":"`...)
		b = base64.RawURLEncoding.AppendEncode(b, n.ID[:])
		b = append(b, '"')
	}
	for _, part := range []struct {
		name string
		by   map[int32][]int32
	}{{"adding_replicas", n.Adding}, {"removing_replicas", n.Removing}} {
		b = append(append(append(b, `,"`...), part.name...), `":{`...)
		numbers := make([]int32, 0, len(part.by))
		for p, replicas := range part.by {
			if len(replicas) > 0 {
				numbers = append(numbers, p)
			}
		}
		slices.Sort(numbers)
		first := true
		for _, p := range numbers {
			b = appendReplicas(b, &first, p, part.by[p])
		}
		b = append(b, '}')
	}
	return append(b, `,"version":3}`...)
}

func appendReplicas(b []byte, first *bool, p int32, replicas []int32) []byte {
	if !*first {
		b = append(b, ',')
	}
	*first = false
	b = append(b, '"')
	b = strconv.AppendInt(b, int64(p), 10)
	b = append(b, `":[`...)
	return append(appendInts(b, replicas), ']')
}

func appendInts(b []byte, ints []int32) []byte {
	for i, n := range ints {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return b
}

// maxZnodePartition bounds the numbers that a node may name, so that a false one cannot make a
// reader allocate; a node of 1 MB has room for fewer.
const maxZnodePartition = 1 << 20

// DecodeTopic reads an assignment of version 1 to 3.
func DecodeTopic(data []byte) (TopicNode, error) {
	w, err := decodeZnode("topic", data, func(w *topicWire) int { return w.Version }, 1, 3)
	if err != nil {
		return TopicNode{}, err
	}
	var n TopicNode
	if w.TopicID != "" {
		id, err := base64.RawURLEncoding.DecodeString(w.TopicID)
		if err != nil || len(id) != len(n.ID) {
			return TopicNode{}, znodeError("topic", data, fmt.Errorf("topic_id %q", w.TopicID))
		}
		n.ID = [16]byte(id)
	}
	most := int32(-1)
	number := func(s string) (int32, error) {
		p, err := strconv.ParseInt(s, 10, 32)
		if err != nil || p < 0 || p > maxZnodePartition {
			return 0, znodeError("topic", data, fmt.Errorf("partition %q", s))
		}
		return int32(p), nil
	}
	for s := range w.Partitions {
		p, err := number(s)
		if err != nil {
			return TopicNode{}, err
		}
		most = max(most, p)
	}
	n.Partitions = make([][]int32, most+1)
	for s, replicas := range w.Partitions {
		p, _ := number(s)
		n.Partitions[p] = replicas
	}
	for _, part := range []struct {
		from map[string][]int32
		to   *map[int32][]int32
	}{{w.Adding, &n.Adding}, {w.Removing, &n.Removing}} {
		for s, replicas := range part.from {
			p, err := number(s)
			if err != nil {
				return TopicNode{}, err
			}
			if *part.to == nil {
				*part.to = map[int32][]int32{}
			}
			(*part.to)[p] = replicas
		}
	}
	return n, nil
}

// StateNode is the data of /brokers/topics/T/partitions/P/state. Leader is -1 where there is
// none; Recovery is leader_recovery_state, written where it is not 0 (recovered).
type StateNode struct {
	ControllerEpoch, Leader, LeaderEpoch int32
	ISR                                  []int32
	Recovery                             int8
}

func (n StateNode) Encode() []byte {
	b := append(make([]byte, 0, 96), `{"controller_epoch":`...)
	b = strconv.AppendInt(b, int64(n.ControllerEpoch), 10)
	b = append(b, `,"leader":`...)
	b = strconv.AppendInt(b, int64(n.Leader), 10)
	b = append(b, `,"version":1,"leader_epoch":`...)
	b = strconv.AppendInt(b, int64(n.LeaderEpoch), 10)
	b = append(b, `,"isr":[`...)
	b = append(appendInts(b, n.ISR), ']')
	if n.Recovery != 0 {
		b = append(b, `,"leader_recovery_state":`...)
		b = strconv.AppendInt(b, int64(n.Recovery), 10)
	}
	return append(b, '}')
}

type stateWire struct {
	Version         int     `json:"version"`
	ControllerEpoch int32   `json:"controller_epoch"`
	Leader          *int32  `json:"leader"`
	LeaderEpoch     int32   `json:"leader_epoch"`
	ISR             []int32 `json:"isr"`
	Recovery        int8    `json:"leader_recovery_state"`
}

// DecodeState reads a partition's state. The form that Kafka 3.9 and Encode write is read
// without encoding/json: a controller that takes over reads one for every partition.
func DecodeState(data []byte) (StateNode, error) {
	if n, ok := quickState(data); ok {
		return n, nil
	}
	w, err := decodeZnode("partition state", data, func(w *stateWire) int { return w.Version }, 1, 1)
	if err == nil && (w.Leader == nil || w.ISR == nil) {
		err = znodeError("partition state", data, errors.New("no leader or isr"))
	}
	if err != nil {
		return StateNode{}, err
	}
	return StateNode{w.ControllerEpoch, *w.Leader, w.LeaderEpoch, w.ISR, w.Recovery}, nil
}

func quickState(b []byte) (n StateNode, ok bool) {
	ok = true
	word := func(s string) {
		if rest, found := bytes.CutPrefix(b, []byte(s)); found && ok {
			b = rest
		} else {
			ok = false
		}
	}
	number := func() int32 {
		i := 0
		if len(b) > 0 && b[0] == '-' {
			i = 1
		}
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		if i > 1 && (b[0] == '0' || b[0] == '-' && b[1] == '0') {
			ok = false // JSON has no leading zeros
		}
		v, err := strconv.ParseInt(string(b[:i]), 10, 32)
		if err != nil {
			ok = false
		}
		b = b[i:]
		return int32(v)
	}
	word(`{"controller_epoch":`)
	n.ControllerEpoch = number()
	word(`,"leader":`)
	n.Leader = number()
	word(`,"version":1,"leader_epoch":`)
	n.LeaderEpoch = number()
	word(`,"isr":[`)
	for n.ISR = []int32{}; ok && len(b) > 0 && b[0] != ']'; {
		if len(n.ISR) > 0 {
			word(",")
		}
		n.ISR = append(n.ISR, number())
	}
	word(`]}`)
	return n, ok && len(b) == 0
}

// PartitionRef names one partition in the nodes below; Replicas only in a reassignment.
type PartitionRef struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Replicas  []int32 `json:"replicas,omitempty"`
}

// PartitionsNode is the data of /isr_change_notification/isr_change_N, of
// /admin/preferred_replica_election and of /admin/reassign_partitions: some partitions.
type PartitionsNode struct{ Partitions []PartitionRef }

type partitionsWire struct {
	Version    int            `json:"version"`
	Partitions []PartitionRef `json:"partitions"`
}

func (n PartitionsNode) Encode() []byte {
	if n.Partitions == nil {
		n.Partitions = []PartitionRef{}
	}
	return encodeZnode(partitionsWire{1, n.Partitions})
}

// DecodePartitions reads such a node.
func DecodePartitions(data []byte) (PartitionsNode, error) {
	w, err := decodeZnode("partitions", data, func(w *partitionsWire) int { return w.Version }, 1, 1)
	return PartitionsNode{w.Partitions}, err
}

// LogDirEventNode is the data of /log_dir_event_notification/log_dir_event_N: a log directory of
// a broker has failed.
type LogDirEventNode struct{ Broker int32 }

type logDirEventWire struct {
	Version int    `json:"version"`
	Broker  *int32 `json:"broker"`
	Event   int    `json:"event"`
}

func (n LogDirEventNode) Encode() []byte {
	return fmt.Appendf(nil, `{"version":1,"broker":%d,"event":1}`, n.Broker)
}

// DecodeLogDirEvent reads such a node.
func DecodeLogDirEvent(data []byte) (LogDirEventNode, error) {
	w, err := decodeZnode("log directory event", data, func(w *logDirEventWire) int { return w.Version }, 1, 1)
	if err == nil && w.Broker == nil {
		err = znodeError("log directory event", data, errors.New("no broker"))
	}
	if err != nil {
		return LogDirEventNode{}, err
	}
	return LogDirEventNode{*w.Broker}, nil
}
