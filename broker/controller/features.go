package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"ottla/broker/registry"
	"ottla/compat"
)

// FeatureChange is in which direction the level of a feature may go; the values are the wire's
// (FeatureUpdate.UpgradeType). Any other value is refused.
type FeatureChange int8

// The directions.
const (
	Upgrade         FeatureChange = 1
	SafeDowngrade   FeatureChange = 2
	UnsafeDowngrade FeatureChange = 3
)

// FeatureUpdate asks for a level of a feature; level 0 is off.
type FeatureUpdate struct {
	Name   string
	Level  int16
	Change FeatureChange
}

// UpdateFeatures finalizes levels, all or none of them; of updates of one feature the last counts.
// With validateOnly it only says whether it would. An update that is not allowed is
// ErrInvalidUpdateVersion. When it returns, this broker acts on the levels. They are written also
// if they are what they were, which raises the epoch, as in Kafka.
func (c *Controller) UpdateFeatures(ctx context.Context, updates []FeatureUpdate, validateOnly bool) error {
	return c.active(ctx, func() error {
		for {
			err := c.updateFeatures(updates, validateOnly)
			if !errors.Is(err, registry.ErrBadVersion) || ctx.Err() != nil { // else somebody was faster
				return err
			}
		}
	})
}

func (c *Controller) updateFeatures(updates []FeatureUpdate, validateOnly bool) error {
	node, version, err := c.featureNode()
	if err != nil {
		return err
	}
	if c.o.NoFeatures && len(updates) > 0 {
		return refuse(ErrInvalidUpdateVersion, "Invalid update version %d for feature %s. %s", updates[0].Level, updates[0].Name, unsupported(fmt.Sprintf("Local controller %d", c.o.BrokerID), updates[0].Level, 0, 0))
	}
	levels, err := c.state.finalize(node.Levels, updates)
	if err != nil || validateOnly || len(updates) == 0 {
		return err
	}
	data := compat.FeatureNode{Enabled: true, Levels: levels}.Encode()
	if err := c.multi(c.tree, []registry.Op{registry.Set(compat.PathFeature, data, version)}); err != nil {
		return err
	}
	c.log.Info("feature levels changed", "from", node.Levels, "to", levels)
	if c.o.Finalized != nil {
		c.o.Finalized(levels, int64(version)+1)
	}
	return nil
}

// featureNode reads the levels and the version of their node. Levels that are not enabled (status
// 0, of Kafka 2.7 with an older inter.broker.protocol.version) are none.
func (c *Controller) featureNode() (n compat.FeatureNode, version int32, err error) {
	data, st, err := c.tree.Get(compat.PathFeature, nil)
	if err != nil {
		return n, 0, fmt.Errorf("read feature levels: %w", err)
	}
	if n, err = compat.DecodeFeature(data); err != nil {
		return n, 0, fmt.Errorf("%s: %w", compat.PathFeature, err)
	}
	if !n.Enabled {
		n.Levels = nil
	}
	return n, st.Version, nil
}

// finalize gives the levels after some updates (FeatureControlManager.updateFeatures).
func (c *cluster) finalize(levels map[string]int16, updates []FeatureUpdate) (map[string]int16, error) {
	last := make(map[string]FeatureUpdate, len(updates))
	for _, u := range updates {
		last[u.Name] = u
	}
	after := maps.Clone(levels)
	if after == nil {
		after = map[string]int16{}
	}
	for i := range updates {
		u := last[updates[i].Name]
		if err := c.checkFeature(levels[u.Name], u); err != nil {
			return nil, err
		}
		if after[u.Name] = u.Level; u.Level == 0 {
			delete(after, u.Name)
		}
	}
	return after, nil
}

// checkFeature tells whether a feature may get from a level to another one.
func (c *cluster) checkFeature(from int16, u FeatureUpdate) error {
	refused := func(format string, args ...any) error {
		return refuse(ErrInvalidUpdateVersion, "Invalid update version %d for feature %s. %s", u.Level, u.Name, fmt.Sprintf(format, args...))
	}
	if u.Change < Upgrade || u.Change > UnsafeDowngrade {
		return refused("The controller does not support the given upgrade type.")
	}
	if u.Level < 0 {
		return refused("A feature version cannot be less than 0.")
	}
	f, known := compat.FindFeature(u.Name)
	if why := unsupported(fmt.Sprintf("Local controller %d", c.self), u.Level, f.Min, f.Max); why != "" {
		return refused("%s", why)
	}
	for _, id := range c.ids() {
		if id == c.self {
			continue
		}
		supports := c.members[id].features[u.Name]
		if why := unsupported(fmt.Sprintf("Broker %d", id), u.Level, supports.Min, supports.Max); why != "" {
			return refused("%s", why)
		}
	}
	switch {
	case !known:
		return refused("Feature %s not found.", u.Name)
	case u.Level < from && u.Change == Upgrade:
		return refused("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
	case u.Level > from && u.Change != Upgrade:
		return refused("Can't downgrade to a newer version.")
	case u.Name == compat.MetadataVersion && u.Level < from && compat.MetadataChanged(from, u.Level):
		why := "Refusing to perform the requested downgrade because it might delete metadata information."
		if u.Change == UnsafeDowngrade {
			why = "Unsafe metadata downgrade is not supported in this version."
		}
		return refuse(ErrInvalidUpdateVersion, "Unsupported metadata.version downgrade from %d to %d. %s", from, u.Level, why)
	}
	return nil
}

// unsupported says why a level is out of somebody's range, "" if it is not
// (QuorumFeatures.reasonNotSupported). A range of 0 to 0 is of a feature that is not known.
func unsupported(who string, level, low, high int16) string {
	switch {
	case low <= level && level <= high:
		return ""
	case high == 0:
		return who + " does not support this feature."
	case low == high:
		return fmt.Sprintf("%s only supports versions %d", who, low)
	}
	return fmt.Sprintf("%s only supports versions %d-%d", who, low, high)
}
