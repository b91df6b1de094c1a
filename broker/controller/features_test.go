package controller

import (
	"errors"
	"maps"
	"testing"

	"ottla/broker/registry"
	"ottla/compat"
)

const (
	gv = compat.GroupVersion
	mv = compat.MetadataVersion
	tv = compat.TransactionVersion
)

// TestUpdateFeatures: levels are written all or none, are heard of before the call returns, and
// other writers do not come in between.
func TestUpdateFeatures(t *testing.T) {
	trees(t, func(t *testing.T, tree registry.Tree) {
		b := newBroker(1, tree, nil)
		b.o.Features = map[string]int16{gv: 1, mv: 33, tv: 2}
		var heard map[string]int16
		epoch := int64(-1)
		b.o.Finalized = func(levels map[string]int16, e int64) { heard, epoch = levels, e }
		b.run(t)
		for i, x := range []struct {
			updates  []FeatureUpdate
			validate bool
			err      error
			want     map[string]int16
			epoch    int64
		}{
			{[]FeatureUpdate{{gv, 0, SafeDowngrade}}, true, nil, nil, -1},
			{nil, false, nil, nil, -1},
			{[]FeatureUpdate{{gv, 0, SafeDowngrade}, {tv, 3, Upgrade}}, false, ErrInvalidUpdateVersion, nil, -1},
			{[]FeatureUpdate{{gv, 0, SafeDowngrade}, {tv, 1, UnsafeDowngrade}}, false, nil, map[string]int16{mv: 33, tv: 1}, 1},
			{[]FeatureUpdate{{tv, 1, SafeDowngrade}}, false, nil, map[string]int16{mv: 33, tv: 1}, 2},
			{[]FeatureUpdate{{tv, 0, SafeDowngrade}, {tv, 2, Upgrade}}, false, nil, map[string]int16{mv: 33, tv: 2}, 3},
			{[]FeatureUpdate{{gv, 1, Upgrade}}, false, nil, map[string]int16{gv: 1, mv: 33, tv: 2}, 4},
		} {
			if err := b.UpdateFeatures(t.Context(), x.updates, x.validate); !errors.Is(err, x.err) {
				t.Fatalf("%d: %v", i, err)
			}
			if !maps.Equal(heard, x.want) || epoch != x.epoch {
				t.Errorf("%d: heard %v, epoch %d, want %v and %d", i, heard, epoch, x.want, x.epoch)
			}
			data, st, err := tree.Get(compat.PathFeature, nil)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := compat.DecodeFeature(data); err != nil || x.want != nil && !maps.Equal(n.Levels, x.want) || int64(st.Version) != max(0, x.epoch) {
				t.Errorf("%d: %s, version %d, %v", i, data, st.Version, err)
			}
		}
		if _, err := tree.Set(compat.PathFeature, []byte(`{"features":{"x":{"max_version_level":3}},"version":2,"status":0}`), registry.AnyVersion); err != nil {
			t.Fatal(err)
		}
		if err := b.UpdateFeatures(t.Context(), []FeatureUpdate{{tv, 1, Upgrade}}, false); err != nil || !maps.Equal(heard, map[string]int16{tv: 1}) {
			t.Errorf("levels that were not enabled: %v, %v", heard, err)
		}
	})
}

// TestFinalize: what Kafka says of levels; integration has its answers, recorded. A level must be
// one that every broker can follow.
func TestFinalize(t *testing.T) {
	c := &cluster{self: 1, members: map[int32]*member{
		1: {}, 2: {features: map[string]compat.FeatureRange{gv: {Min: 0, Max: 1}, tv: {Min: 0, Max: 1}, mv: {Min: 33, Max: 33}}},
	}}
	levels := map[string]int16{gv: 1, mv: 31, tv: 0, "x": 1}
	for _, x := range []struct {
		u    FeatureUpdate
		want string
	}{
		{FeatureUpdate{tv, 1, Upgrade}, ""},
		{FeatureUpdate{tv, 2, Upgrade}, "Invalid update version 2 for feature transaction.version. Broker 2 only supports versions 0-1"},
		{FeatureUpdate{tv, 3, Upgrade}, "Invalid update version 3 for feature transaction.version. Local controller 1 only supports versions 0-2"},
		{FeatureUpdate{mv, 32, Upgrade}, "Invalid update version 32 for feature metadata.version. Broker 2 only supports versions 33"},
		{FeatureUpdate{mv, 33, Upgrade}, ""},
		{FeatureUpdate{mv, 33, SafeDowngrade}, "Invalid update version 33 for feature metadata.version. Can't downgrade to a newer version."},
		{FeatureUpdate{gv, 0, Upgrade}, "Invalid update version 0 for feature group.version. Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."},
		{FeatureUpdate{gv, 0, SafeDowngrade}, ""},
		{FeatureUpdate{"x", 0, SafeDowngrade}, "Invalid update version 0 for feature x. Feature x not found."},
		{FeatureUpdate{"x", 1, Upgrade}, "Invalid update version 1 for feature x. Local controller 1 does not support this feature."},
	} {
		after, err := c.finalize(levels, []FeatureUpdate{x.u})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != x.want || err == nil && after[x.u.Name] != x.u.Level {
			t.Errorf("%+v: %q, %v", x.u, got, after)
		}
	}
	c.members[3] = &member{} // as a Kafka 3.9
	if _, err := c.finalize(levels, []FeatureUpdate{{tv, 1, Upgrade}}); err == nil || err.Error() != "Invalid update version 1 for feature transaction.version. Broker 3 does not support this feature." {
		t.Error(err)
	}
	delete(c.members, 2)
	delete(c.members, 3)
	if _, err := c.finalize(levels, []FeatureUpdate{{mv, 30, SafeDowngrade}}); err != nil {
		t.Error(err)
	}
	for change, want := range map[FeatureChange]string{
		SafeDowngrade:   "Unsupported metadata.version downgrade from 31 to 29. Refusing to perform the requested downgrade because it might delete metadata information.",
		UnsafeDowngrade: "Unsupported metadata.version downgrade from 31 to 29. Unsafe metadata downgrade is not supported in this version.",
	} {
		if _, err := c.finalize(levels, []FeatureUpdate{{mv, 29, change}}); err == nil || err.Error() != want {
			t.Error(err)
		}
	}
}
