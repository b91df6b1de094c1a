package broker

import (
	"errors"
	"fmt"

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

// loadFeatures reads the levels. This broker is alone on its root, so there is nobody who could
// not follow: what it has learnt since the root was made is agreed on at once.
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
	raised := false
	for name, level := range newestFeatures() {
		if _, has := n.Levels[name]; !has {
			n.Levels[name], raised = level, true
		}
	}
	epoch := int64(st.Version)
	if raised {
		st, err := b.tree.Set(compat.PathFeature, n.Encode(), st.Version)
		if err != nil {
			return fmt.Errorf("raise feature levels: %w", err)
		}
		epoch = int64(st.Version)
	}
	b.features.Store(&features{n.Levels, epoch})
	return nil
}

// feature is the finalized level of a feature, 0 where there is none.
func (b *Broker) feature(name string) int16 { return b.features.Load().levels[name] }

// finalized is what ApiVersions tells of the levels.
func (b *Broker) finalized() (levels map[string]int16, epoch int64) {
	f := b.features.Load()
	return f.levels, f.epoch
}
