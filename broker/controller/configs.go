package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"ottla/broker/registry"
	"ottla/compat"
)

// ConfigOf reads the stored configuration of an entity; empty where there is none. Kind is the
// node below /config (topics, brokers, clients, users, ips, groups), name is sanitized
// (compat.Sanitize, compat.DefaultEntity; users may have the form alice/clients/app1).
func (c *Controller) ConfigOf(kind, name string) (map[string]string, error) {
	set, _, err := c.readConfig(kind, name)
	return set, err
}

func (c *Controller) readConfig(kind, name string) (map[string]string, int32, error) {
	path := compat.PathEntity(kind, name)
	data, st, err := c.tree.Get(path, nil)
	if errors.Is(err, registry.ErrNoNode) {
		return map[string]string{}, -1, nil
	} else if err != nil {
		return nil, 0, err
	}
	n, err := compat.DecodeConfig(data)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	return n.Config, st.Version, nil
}

// AlterConfig replaces the whole configuration of an entity, which the caller has checked.
func (c *Controller) AlterConfig(ctx context.Context, kind, name string, set map[string]string) error {
	return c.UpdateConfig(ctx, kind, name, func(map[string]string) (map[string]string, error) { return set, nil })
}

// UpdateConfig replaces the configuration of an entity by what f makes of it; f may be called
// again when another writer was faster, and its error ends it. The change and its notification
// below /config/changes are one transaction. When it returns, this broker acts on the change.
// Any broker may do it (AdminZkClient.changeEntityConfig); a topic must exist.
func (c *Controller) UpdateConfig(ctx context.Context, kind, name string, f func(map[string]string) (map[string]string, error)) error {
	for {
		before, version, err := c.readConfig(kind, name)
		if err != nil {
			return err
		}
		if kind == "topics" {
			if _, err := c.tree.Exists(compat.PathTopic(name), nil); errors.Is(err, registry.ErrNoNode) {
				return refuse(ErrUnknownTopicOrPartition, "The topic '%s' does not exist.", name)
			} else if err != nil {
				return err
			}
		}
		after, err := f(maps.Clone(before))
		if err != nil {
			return err
		}
		path, data := compat.PathEntity(kind, name), compat.ConfigNode{Config: after}.Encode()
		var ops []registry.Op
		if version >= 0 {
			ops = append(ops, registry.Set(path, data, version))
		} else {
			if ops, err = parents(c.tree, path); err != nil {
				return err
			}
			ops = append(ops, registry.Create(path, data, registry.Persistent))
		}
		ops = append(ops, registry.Create(compat.PathConfigChanges+"/"+compat.PrefixConfigChange,
			compat.ConfigChangeNode{Entity: kind + "/" + name}.Encode(), registry.Persistent|registry.Sequence))
		results, err := c.tree.Multi(ops...)
		switch {
		case err == nil:
			if c.o.Applied == nil {
				return nil
			}
			made := results[len(results)-1].Path
			return c.o.Applied(ctx, made[strings.LastIndexByte(made, '/')+1:])
		case errors.Is(err, registry.ErrBadVersion), errors.Is(err, registry.ErrNodeExists), errors.Is(err, registry.ErrNoNode):
			if ctx.Err() != nil {
				return fmt.Errorf("%w: %w", ErrTimedOut, context.Cause(ctx))
			}
		default:
			return err
		}
	}
}

// parents gives the ops that make the missing nodes above a path.
func parents(t registry.Tree, path string) (ops []registry.Op, err error) {
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		if _, err := t.Exists(path[:i], nil); errors.Is(err, registry.ErrNoNode) {
			ops = append(ops, registry.Create(path[:i], nil, registry.Persistent))
		} else if err != nil {
			return nil, err
		}
	}
	return ops, nil
}

// ConfiguredEntities names the entities of a kind that have a node, ascending.
func (c *Controller) ConfiguredEntities(kind string) ([]string, error) {
	names, _, err := c.tree.Children(compat.PathConfig+"/"+kind, nil)
	if errors.Is(err, registry.ErrNoNode) {
		return nil, nil
	}
	return names, err
}
