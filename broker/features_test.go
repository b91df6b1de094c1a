package broker

import (
	"errors"
	"maps"
	"testing"

	"ottla/broker/registry"
	"ottla/compat"
)

// TestFeatures: what was agreed on stays, and what is off stays off, also over a start; what cannot
// be off gets a level.
func TestFeatures(t *testing.T) {
	const mv, tv, gv = compat.MetadataVersion, compat.TransactionVersion, compat.GroupVersion
	for name, x := range map[string]struct {
		node  *compat.FeatureNode
		want  map[string]int16
		epoch int64
		err   error
	}{
		"no node yet":                {nil, nil, -1, nil},
		"a node of a Kafka 3.9":      {&compat.FeatureNode{Enabled: true}, map[string]int16{mv: 33}, 1, nil},
		"not enabled":                {&compat.FeatureNode{Levels: map[string]int16{tv: 2}}, map[string]int16{mv: 33}, 1, nil},
		"levels agreed on":           {&compat.FeatureNode{Enabled: true, Levels: map[string]int16{mv: 25, tv: 1, gv: 1}}, map[string]int16{mv: 25, tv: 1, gv: 1}, 0, nil},
		"metadata of before 3.3-IV3": {&compat.FeatureNode{Enabled: true, Levels: map[string]int16{mv: 1}}, map[string]int16{mv: 7}, 1, nil},
		"one is off":                 {&compat.FeatureNode{Enabled: true, Levels: map[string]int16{mv: 33, tv: 2}}, map[string]int16{mv: 33, tv: 2}, 0, nil},
		"an unknown feature":         {&compat.FeatureNode{Enabled: true, Levels: map[string]int16{mv: 33, "x": 7}}, map[string]int16{mv: 33, "x": 7}, 0, nil},
		"a level of later":           {&compat.FeatureNode{Enabled: true, Levels: map[string]int16{mv: 33, tv: 3}}, nil, 0, errFeatureLevel},
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
		for start := range 2 {
			if err := b.loadFeatures(); !errors.Is(err, x.err) {
				t.Fatalf("%s: %v", name, err)
			}
			if x.err != nil {
				break
			}
			if levels, epoch := b.finalized(); !maps.Equal(levels, x.want) || epoch != x.epoch {
				t.Errorf("%s, start %d: %v, epoch %d, want %v and %d", name, start, levels, epoch, x.want, x.epoch)
			}
		}
		if err := b.tree.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSetFeatures: newer levels count, however they come.
func TestSetFeatures(t *testing.T) {
	b := &Broker{}
	b.features.Store(&features{nil, 3})
	for _, x := range []struct {
		level int16
		epoch int64
		want  int16
	}{{1, 4, 1}, {2, 6, 2}, {1, 5, 2}, {1, 6, 2}, {0, 7, 0}} {
		b.setFeatures(map[string]int16{compat.TransactionVersion: x.level}, x.epoch)
		if got := b.feature(compat.TransactionVersion); got != x.want {
			t.Errorf("after level %d of epoch %d: %d, want %d", x.level, x.epoch, got, x.want)
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
