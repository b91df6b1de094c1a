package registry

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"

	"ottla/compat"
)

// What a broker's joining can end with besides the tree's errors.
var (
	ErrBrokerID  = errors.New("broker id in use")
	ErrClusterID = errors.New("another cluster's id")
)

// NewClusterID is a random one in Kafka's form (org.apache.kafka.common.Uuid.randomUuid: a
// version 4 UUID, none that begins with a dash).
func NewClusterID() string {
	for {
		id := RandomUUID()
		if s := base64.RawURLEncoding.EncodeToString(id[:]); s[0] != '-' {
			return s
		}
	}
}

// RandomUUID is a version 4 UUID.
func RandomUUID() (id [16]byte) {
	rand.Read(id[:])
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// ClusterID gives the tree's cluster id, which it makes of want (empty: a random one) where there
// is none yet. A want that differs from what is there is ErrClusterID, and nothing is written.
func ClusterID(t Tree, want string) (string, error) {
	for {
		data, _, err := t.Get(compat.PathClusterID, nil)
		if err == nil {
			n, err := compat.DecodeClusterID(data)
			if err != nil {
				return "", fmt.Errorf("%s: %w", compat.PathClusterID, err)
			}
			if want != "" && want != n.ID {
				return "", fmt.Errorf("%w: the registry is of cluster %s, the data directory of %s", ErrClusterID, n.ID, want)
			}
			return n.ID, nil
		}
		if !errors.Is(err, ErrNoNode) {
			return "", err
		}
		if want == "" {
			want = NewClusterID()
		}
		ops, err := missing(t, []string{compat.PathCluster})
		if err != nil {
			return "", err
		}
		ops = append(ops, Create(compat.PathClusterID, compat.ClusterIDNode{ID: want}.Encode(), Persistent))
		if _, err = t.Multi(ops...); err == nil {
			return want, nil
		}
		if !errors.Is(err, ErrNodeExists) {
			return "", err
		}
		want = "" // another broker was faster, and its id holds
	}
}

// missing gives the ops that make those of the paths that do not exist; parents stand before
// children.
func missing(t Tree, paths []string) ([]Op, error) {
	nodes, err := t.GetAll(paths, nil)
	if err != nil {
		return nil, err
	}
	var ops []Op
	for _, n := range nodes {
		if errors.Is(n.Err, ErrNoNode) {
			ops = append(ops, Create(n.Path, nil, Persistent))
		} else if n.Err != nil {
			return nil, n.Err
		}
	}
	return ops, nil
}

// Join registers a broker and makes the persistent nodes that are missing, all in one
// transaction, as kafka.zk.KafkaZkClient.registerBroker: created empty, then set, so that the
// first readable registration has version 1. It answers the broker's epoch, the czxid of its
// node, which rises with every registration. A node of the same id that another session owns is
// ErrBrokerID; one of this session is replaced.
func Join(t Tree, id int32, node compat.BrokerNode) (epoch int64, err error) {
	path := compat.PathBroker(id)
	for {
		ops, err := missing(t, compat.PersistentPaths)
		if err != nil {
			return 0, err
		}
		switch st, err := t.Exists(path, nil); {
		case err == nil && st.EphemeralOwner != t.Session():
			return 0, fmt.Errorf("%w: %d is registered by session %#x", ErrBrokerID, id, st.EphemeralOwner)
		case err == nil:
			ops = append(ops, Delete(path, AnyVersion))
		case !errors.Is(err, ErrNoNode):
			return 0, err
		}
		ops = append(ops, Create(path, nil, Ephemeral), Set(path, node.Encode(), 0))
		results, err := t.Multi(ops...)
		if err == nil {
			return results[len(results)-1].Stat.Czxid, nil
		}
		// Another broker makes the same persistent nodes at the same time, or takes the id.
		op, ok := errors.AsType[*OpError](err)
		switch {
		case !ok || !errors.Is(err, ErrNodeExists):
			return 0, err
		case op.Op.Path == path:
			return 0, fmt.Errorf("%w: %d", ErrBrokerID, id)
		}
	}
}

// NextBrokerID gives out a broker id above reserved, one that nobody had before: the version of
// /brokers/seqid rises with each (KafkaZkClient.generateBrokerId).
func NextBrokerID(t Tree, reserved int32) (int32, error) {
	for {
		st, err := t.Set(compat.PathBrokerSeqID, nil, AnyVersion)
		if err == nil {
			return reserved + st.Version, nil
		}
		if !errors.Is(err, ErrNoNode) {
			return 0, err
		}
		ops, err := missing(t, []string{compat.PathBrokers, compat.PathBrokerSeqID})
		if err != nil {
			return 0, err
		}
		if _, err := t.Multi(ops...); err != nil && !errors.Is(err, ErrNodeExists) {
			return 0, err
		}
	}
}
