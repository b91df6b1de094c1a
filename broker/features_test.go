package broker

import (
	"testing"

	"ottla/broker/registry"
	"ottla/compat"
)

// TestFeatures: a new root begins with the highest levels, one of before a feature gets it, and
// what was agreed on stays.
func TestFeatures(t *testing.T) {
	for name, x := range map[string]struct {
		node  *compat.FeatureNode
		level int16
		epoch int64
	}{
		"no node yet":           {nil, 0, -1},
		"a node of before":      {&compat.FeatureNode{Enabled: true, Levels: map[string]int16{}}, 2, 1},
		"a level agreed on":     {&compat.FeatureNode{Enabled: true, Levels: map[string]int16{compat.TransactionVersion: 1, compat.GroupVersion: 1}}, 1, 0},
		"of a feature unknown ": {&compat.FeatureNode{Enabled: true, Levels: map[string]int16{"x": 7}}, 2, 1},
	} {
		b := &Broker{tree: registry.OpenMemory()}
		if x.node != nil {
			if err := b.tree.Group(func(tree registry.Tree) error {
				_, err := tree.Multi(registry.Create(compat.PathFeature, x.node.Encode(), registry.Persistent))
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.loadFeatures(); err != nil {
			t.Fatal(err)
		}
		levels, epoch := b.finalized()
		if b.feature(compat.TransactionVersion) != x.level || epoch != x.epoch {
			t.Errorf("%s: level %d, epoch %d, want %d and %d", name, levels[compat.TransactionVersion], epoch, x.level, x.epoch)
		}
		if x.node != nil && x.node.Levels["x"] != levels["x"] {
			t.Errorf("%s: levels %v", name, levels)
		}
		if err := b.tree.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNewBrokerAgreesOnEverything: what a broker with nothing on disk tells its clients.
func TestNewBrokerAgreesOnEverything(t *testing.T) {
	b, err := New(Options{InMemory: true, Settings: map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	levels, epoch := b.finalized()
	for _, f := range compat.Features {
		if levels[f.Name] != f.Max {
			t.Errorf("%s: %d, want %d", f.Name, levels[f.Name], f.Max)
		}
	}
	if epoch != 0 {
		t.Errorf("epoch %d", epoch)
	}
}
