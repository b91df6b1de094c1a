package broker

import (
	"errors"
	"fmt"
	"maps"

	"ottla/broker/registry"
	"ottla/compat"
)

// features are the levels that the cluster has agreed on. A value is not changed once it is
// handed out.
type features struct {
	levels map[string]int16
	epoch  int64 // version of the node; -1: there is none yet
}

// newestFeatures are the highest levels of all that is built: what a new cluster begins with.
func newestFeatures() map[string]int16 {
	levels := map[string]int16{}
	for _, f := range compat.Features {
		levels[f.Name] = f.Max
	}
	return levels
}

// errFeatureLevel: the levels of the cluster are of an ottla that is newer than this one.
var errFeatureLevel = errors.New("a feature has a level that is not known here")

// loadFeatures reads the levels, which stay as they are: what is off was switched off, or is of a
// Kafka that did not have it, and goes on by UpdateFeatures. Only what cannot be off is given a
// level, which writes the node.
func (b *Broker) loadFeatures() error {
	data, st, err := b.tree.Get(compat.PathFeature, nil)
	if errors.Is(err, registry.ErrNoNode) {
		b.features.Store(&features{epoch: -1})
		return nil
	}
	if err != nil {
		return fmt.Errorf("read feature levels: %w", err)
	}
	n, err := compat.DecodeFeature(data)
	if err != nil {
		return fmt.Errorf("%s: %w", compat.PathFeature, err)
	}
	levels := maps.Clone(n.Levels)
	if !n.Enabled { // as of a Kafka 2.7 with an older inter.broker.protocol.version
		levels = map[string]int16{}
	}
	for _, f := range compat.Features {
		switch level, has := levels[f.Name]; {
		case level > f.Max:
			return fmt.Errorf("%s: %w: %s is at %d, the highest one is %d", compat.PathFeature, errFeatureLevel, f.Name, level, f.Max)
		case !has && f.Min > 0:
			levels[f.Name] = f.Max
		case level < f.Min:
			levels[f.Name] = f.Min
		}
	}
	epoch := int64(st.Version)
	if !n.Enabled || !maps.Equal(levels, n.Levels) {
		st, err := b.tree.Set(compat.PathFeature, compat.FeatureNode{Enabled: true, Levels: levels}.Encode(), st.Version)
		if err != nil {
			return fmt.Errorf("write feature levels: %w", err)
		}
		epoch = int64(st.Version)
	}
	b.features.Store(&features{levels, epoch})
	return nil
}

// setFeatures hears of other levels. They may come twice, and late ones after newer ones.
func (b *Broker) setFeatures(levels map[string]int16, epoch int64) {
	for {
		now := b.features.Load()
		if epoch <= now.epoch || b.features.CompareAndSwap(now, &features{levels, epoch}) {
			return
		}
	}
}

// feature is the finalized level of a feature, 0 where there is none.
func (b *Broker) feature(name string) int16 { return b.features.Load().levels[name] }

// finalized is what ApiVersions tells of the levels.
func (b *Broker) finalized() (levels map[string]int16, epoch int64) {
	f := b.features.Load()
	return f.levels, f.epoch
}
