package log

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/magiconair/properties"
)

// meta is the content of meta.properties. Version 0 is that of a broker on ZooKeeper
// (broker.id), version 1 that of KRaft (node.id, and directory.id, which is the directory's
// own). What else stands there is kept.
type meta struct {
	props   *properties.Properties // nil: there is no file
	version int
	id      int32 // -1: not said
	cluster string
}

// parseMeta reads a meta.properties as Kafka's MetaProperties does.
func parseMeta(data []byte) (meta, error) {
	loader := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
	p, err := loader.LoadBytes(data)
	if err != nil {
		return meta{}, err
	}
	p.WriteSeparator = "="
	m := meta{props: p, id: -1}
	if v, ok := p.Get("version"); ok {
		if m.version, err = strconv.Atoi(v); err != nil || m.version < 0 || m.version > 1 {
			return meta{}, fmt.Errorf("unknown version %q", v)
		}
	}
	name := [...]string{"broker.id", "node.id"}[m.version]
	id, ok := p.Get(name)
	if ok {
		n, err := strconv.ParseInt(id, 10, 32)
		if err != nil {
			return meta{}, fmt.Errorf("%s is no number: %q", name, id)
		}
		m.id = int32(n)
	}
	m.cluster, _ = p.Get("cluster.id")
	if m.version == 1 && (m.cluster == "" || !ok) {
		return meta{}, fmt.Errorf("version 1 without cluster.id or node.id")
	}
	return m, nil
}

// with says whether the file has to be written for a broker, and is the content it then has.
// A broker or cluster of another id is an error that names both.
func (m meta) with(broker int32, cluster string) (changed meta, write bool, err error) {
	if m.id >= 0 && broker >= 0 && m.id != broker {
		return m, false, fmt.Errorf("it belongs to broker %d, this is broker %d", m.id, broker)
	}
	if m.cluster != "" && cluster != "" && m.cluster != cluster {
		return m, false, fmt.Errorf("it belongs to cluster %s, this is cluster %s", m.cluster, cluster)
	}
	if m.props != nil && (m.id >= 0 || broker < 0) && (m.cluster != "" || cluster == "") {
		return m, false, nil
	}
	p := properties.NewProperties()
	p.DisableExpansion, p.WriteSeparator = true, "="
	if m.props != nil {
		for _, k := range m.props.Keys() {
			v, _ := m.props.Get(k)
			p.Set(k, v)
		}
	}
	if broker >= 0 {
		p.Set([...]string{"broker.id", "node.id"}[m.version], strconv.Itoa(int(broker)))
		m.id = broker
	}
	p.Set("version", strconv.Itoa(m.version))
	if cluster != "" {
		p.Set("cluster.id", cluster)
		m.cluster = cluster
	}
	m.props = p
	return m, true, nil
}

// format is the text as java.util.Properties stores it: an empty comment, the date, the pairs.
func (m meta) format(now time.Time) []byte {
	var b bytes.Buffer
	b.WriteString("#\n#" + now.UTC().Format("Mon Jan 02 15:04:05 UTC 2006") + "\n")
	m.props.Write(&b, properties.ISO_8859_1)
	return b.Bytes()
}
