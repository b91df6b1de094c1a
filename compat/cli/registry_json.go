package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"ottla/broker/registry"
	"ottla/compat"
)

// treeNode is one node that is carried from tree to tree.
type treeNode struct {
	path string
	data []byte // nil: null
	from string // where it was read, for errors: a line of a file, or empty
}

// jsonNode is a node as a line of JSON has it: data that is UTF-8 as text, other data as base64,
// null data as neither. A bigger line than jsonLine holds no node.
type jsonNode struct {
	Path   string  `json:"path"`
	Mode   string  `json:"mode"`
	Data   *string `json:"data,omitempty"`
	Base64 *[]byte `json:"base64,omitempty"`
}

const (
	jsonMode = "persistent"
	jsonLine = 8 * registry.JuteMaxBuffer // every byte of a node's data as an escape, and more
)

// writeNodes writes one object a line, in the order in which they are given.
func writeNodes(w io.Writer, nodes []treeNode) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	for i := range nodes {
		n := &nodes[i]
		out := jsonNode{Path: n.path, Mode: jsonMode}
		if text := string(n.data); n.data != nil && utf8.Valid(n.data) {
			out.Data = &text
		} else if n.data != nil {
			out.Base64 = &n.data
		}
		if err := e.Encode(out); err != nil {
			return err
		}
	}
	return b.Flush()
}

// readNodes reads what writeNodes writes, and refuses everything else with the number of its line.
func readNodes(r io.Reader) ([]treeNode, error) {
	var nodes []treeNode
	seen := map[string]int{}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), jsonLine)
	number := 0
	for lines.Scan() {
		number++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		n, err := readNode(lines.Bytes())
		if err == nil && seen[n.path] > 0 {
			err = fmt.Errorf("%s stands in line %d already", n.path, seen[n.path])
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		seen[n.path] = number
		n.from = fmt.Sprintf("line %d: ", number)
		nodes = append(nodes, n)
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: longer than %d bytes", number+1, jsonLine)
	} else if lines.Err() != nil {
		return nil, fmt.Errorf("line %d: %w", number+1, lines.Err())
	}
	if len(nodes) == 0 {
		return nil, errors.New("there is no node in it")
	}
	sortNodes(nodes)
	return nodes, nil
}

func readNode(line []byte) (treeNode, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var in jsonNode
	if err := d.Decode(&in); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the line is cut off")
		}
		return treeNode{}, fmt.Errorf("no node: %w", err)
	}
	if d.More() {
		return treeNode{}, errors.New("something stands behind the node")
	}
	n := treeNode{path: in.Path}
	switch {
	case in.Data != nil && in.Base64 != nil:
		return n, fmt.Errorf("%s: data and base64 exclude each other", in.Path)
	case in.Data != nil:
		n.data = []byte(*in.Data)
	case in.Base64 != nil:
		n.data = append([]byte{}, *in.Base64...)
	}
	if err := registry.CheckPath(n.path); err != nil {
		return n, err
	}
	if in.Mode != jsonMode {
		return n, fmt.Errorf("%s: mode %q; allowed is %s", in.Path, in.Mode, jsonMode)
	}
	if place(n.path) != placeCarried {
		return n, fmt.Errorf("%s is none of the nodes that are carried", n.path)
	}
	if err := checkNode(n); err != nil {
		return n, err
	}
	return n, nil
}

// checkNode refuses data that Kafka would not have written there, and would not start with.
func checkNode(n treeNode) error {
	if size := len(n.path) + len(n.data); size > registry.JuteMaxBuffer {
		return fmt.Errorf("%s has %d bytes; a ZooKeeper takes at most %d (jute.maxbuffer)", n.path, size, registry.JuteMaxBuffer)
	}
	var err error
	part := strings.Split(n.path[1:], "/")
	switch {
	case n.path == compat.PathClusterID:
		_, err = compat.DecodeClusterID(n.data)
	case n.path == compat.PathControllerEpoch:
		_, err = compat.DecodeControllerEpoch(n.data)
	case n.path == compat.PathProducerIDs:
		_, err = compat.DecodeProducerBlock(n.data)
	case n.path == compat.PathFeature:
		_, err = compat.DecodeFeature(n.data)
	case len(part) == 3 && strings.HasPrefix(n.path, compat.PathTopics+"/"):
		_, err = compat.DecodeTopic(n.data)
	case len(part) == 6 && strings.HasPrefix(n.path, compat.PathTopics+"/") && part[5] == "state":
		_, err = compat.DecodeState(n.data)
	case len(part) >= 3 && part[0] == "config" && part[len(part)-1] != "clients":
		var c compat.ConfigNode
		if c, err = compat.DecodeConfig(n.data); err == nil && part[1] != "topics" && part[1] != "brokers" {
			err = checkQuotas(c.Config)
		}
	case len(part) == 3 && part[0] == "kafka-acl", len(part) == 4 && part[0] == "kafka-acl-extended":
		_, err = compat.DecodeACLs(n.data)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", n.path, err)
	}
	return nil
}

// checkQuotas refuses numbers at which a Kafka 3.9 ends (kafka.server.QuotaConfigHandler,
// IpConfigHandler).
func checkQuotas(config map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(config)) {
		var err error
		switch name {
		case "producer_byte_rate", "consumer_byte_rate":
			_, err = strconv.ParseInt(config[name], 10, 64)
		case "connection_creation_rate":
			_, err = strconv.ParseInt(config[name], 10, 32)
		case "request_percentage", "controller_mutation_rate":
			_, err = strconv.ParseFloat(config[name], 64)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
