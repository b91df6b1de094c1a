// Package follow takes over into this broker what changes in the registry: configurations and
// finalized features. Changes of topics and leaders come through the controller's requests.
//
// One goroutine runs Run; Load comes before it. Topics and Forget may be called from any
// goroutine; one lock orders what the Applier hears.
package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ottla/broker/registry"
	"ottla/compat"
)

// Applier takes configurations, whole ones each time. Kind is the node below /config: topics,
// brokers, clients, users, ips, groups. Name is the node's name below that, sanitized; of a
// user's client alice/clients/app1. No values: the entity has none, or is gone. Calls come one
// at a time.
type Applier interface {
	ApplyConfig(kind, name string, values map[string]string)
}

// Options is what a Follower is made from.
type Options struct {
	Tree    registry.Tree
	Applier Applier
	// Features hears the finalized levels and their epoch, the data version of /feature. Nil:
	// they are not followed.
	Features func(levels map[string]int16, epoch int64)
	Logger   *slog.Logger
	Now      func() time.Time
}

// Follower follows the registry.
type Follower struct {
	o       Options
	log     *slog.Logger
	watcher *registry.Watcher

	mu      sync.Mutex    // held while the Applier is called
	applied int64         // guarded by mu: sequence number of the last notification that was handled
	moved   chan struct{} // guarded by mu: closed when applied grows
	failed  error         // guarded by mu: why nothing is followed any more
	loaded  bool          // guarded by mu: the Applier has been given what there was
}

// changeExpiry is how long a notification is kept for brokers that read it late
// (kafka.common.ZkNodeChangeNotificationListener: 15 minutes).
const changeExpiry = 15 * time.Minute

// ErrStopped ends the waiting for a change after Run has ended.
var ErrStopped = errors.New("the registry is not followed any more")

// New makes a Follower that has read nothing.
func New(o Options) *Follower {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Follower{o: o, log: o.Logger.With("room", "follow"), watcher: registry.NewWatcher(), applied: -1, moved: make(chan struct{})}
}

// Load reads everything and sets the watches. A tree without the nodes, of a broker that has not
// joined yet, has nothing to read: then Load is called again after that. Another Load, as after a
// lost session, applies empty configurations too, which may have been others. Notifications are looked
// at before the configurations, so that those which are made in between are handled by Run.
func (f *Follower) Load() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	names, _, err := f.o.Tree.Children(compat.PathConfigChanges, f.watcher)
	if err != nil && !errors.Is(err, registry.ErrNoNode) {
		return fmt.Errorf("follow: %w", err)
	}
	last := int64(-1)
	for _, name := range names {
		if n, ok := sequence(name); ok {
			last = max(last, n)
		}
	}
	kinds, err := f.children(compat.PathConfig)
	if err != nil {
		return err
	}
	var entities []string
	for _, kind := range kinds {
		if kind == "changes" {
			continue
		}
		below, err := f.children(compat.PathConfig + "/" + kind)
		if err != nil {
			return err
		}
		for _, name := range below {
			entities = append(entities, kind+"/"+name)
			if kind != "users" {
				continue
			}
			clients, err := f.children(compat.PathEntity(kind, name+"/clients"))
			if err != nil {
				return err
			}
			for _, client := range clients {
				entities = append(entities, kind+"/"+name+"/clients/"+client)
			}
		}
	}
	if err := f.readLocked(entities, f.loaded); err != nil {
		return err
	}
	f.loaded = true
	if err := f.features(); err != nil {
		return err
	}
	f.reachedLocked(last)
	return nil
}

func (f *Follower) children(path string) ([]string, error) {
	names, _, err := f.o.Tree.Children(path, nil)
	if errors.Is(err, registry.ErrNoNode) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("follow: %w", err)
	}
	return names, nil
}

// readLocked reads entities, KIND/NAME each, and applies them; empty ones only where the Applier
// may have something of them.
func (f *Follower) readLocked(entities []string, empty bool) error {
	paths := make([]string, len(entities))
	for i, e := range entities {
		paths[i] = compat.PathConfig + "/" + e
	}
	nodes, err := f.o.Tree.GetAll(paths, nil)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	for i, n := range nodes {
		config := compat.ConfigNode{}
		if n.Err == nil {
			if config, err = compat.DecodeConfig(n.Data); err != nil {
				f.log.Error("configuration ignored", "path", n.Path, "err", err)
				continue
			}
		}
		if empty || len(config.Config) > 0 {
			kind, name, _ := strings.Cut(entities[i], "/")
			f.o.Applier.ApplyConfig(kind, name, config.Config)
		}
	}
	return nil
}

func (f *Follower) features() error {
	if f.o.Features == nil {
		return nil
	}
	data, st, err := f.o.Tree.Get(compat.PathFeature, f.watcher)
	if errors.Is(err, registry.ErrNoNode) {
		_, err = f.o.Tree.Exists(compat.PathFeature, f.watcher)
		if err == nil {
			return f.features() // it has just come
		}
		f.o.Features(nil, -1)
		if errors.Is(err, registry.ErrNoNode) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	n, err := compat.DecodeFeature(data)
	if err != nil {
		f.log.Error("features ignored", "path", compat.PathFeature, "err", err)
		return nil
	}
	if !n.Enabled {
		n.Levels = nil
	}
	f.o.Features(n.Levels, int64(st.Version))
	return nil
}

// sequence is the number at the end of a notification's name.
func sequence(name string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, compat.PrefixConfigChange)
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, ok && err == nil
}

func (f *Follower) reachedLocked(n int64) {
	if n > f.applied {
		f.applied = n
		close(f.moved)
		f.moved = make(chan struct{})
	}
}

// Run follows changes until ctx ends (then nil) or the registry fails for good.
func (f *Follower) Run(ctx context.Context) (err error) {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.failed = ErrStopped
		close(f.moved)
		f.moved = make(chan struct{})
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.watcher.Wake():
		}
		var changes, features, all bool
		for _, e := range f.watcher.Take() {
			switch {
			case e.Kind == registry.Lost:
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("follow: %w", registry.ErrClosed)
			case e.Kind == registry.Connected:
				all = true
			case e.Path == compat.PathConfigChanges:
				changes = true
			case e.Path == compat.PathFeature:
				features = true
			}
		}
		switch {
		case all:
			err = f.Load()
		case changes:
			err = f.changes()
			fallthrough
		default:
			if features && err == nil {
				err = f.features()
			}
		}
		if errors.Is(err, registry.ErrStorage) || errors.Is(err, registry.ErrClosed) {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if err != nil { // the session: it is followed again when it is connected
			f.log.Error("change not followed", "err", err)
		}
	}
}

// changes handles the notifications that are new, and deletes old ones as every broker does.
func (f *Follower) changes() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	names, _, err := f.o.Tree.Children(compat.PathConfigChanges, f.watcher)
	if err != nil {
		return err
	}
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = compat.PathConfigChanges + "/" + name
	}
	nodes, err := f.o.Tree.GetAll(paths, nil)
	if err != nil {
		return err
	}
	var entities []string
	last := f.applied
	old := f.o.Now().Add(-changeExpiry).UnixMilli()
	for i, n := range nodes {
		number, ok := sequence(names[i])
		if n.Err != nil || !ok {
			continue
		}
		if number > f.applied {
			last = max(last, number)
			change, err := compat.DecodeConfigChange(n.Data)
			if err == nil {
				err = registry.CheckPath(compat.PathConfig + "/" + change.Entity)
			}
			if err != nil {
				f.log.Error("notification ignored", "path", n.Path, "err", err)
			} else if !slices.Contains(entities, change.Entity) {
				entities = append(entities, change.Entity)
			}
		}
	}
	if err := f.readLocked(entities, true); err != nil {
		return err
	}
	f.reachedLocked(last)
	return f.o.Tree.Group(func(t registry.Tree) error {
		for _, n := range nodes {
			if n.Err == nil && n.Stat.Ctime < old {
				if err := t.Delete(n.Path, registry.AnyVersion); err != nil && !errors.Is(err, registry.ErrNoNode) {
					return err
				}
			}
		}
		return nil
	})
}

// Applied waits until a notification, by its name (config_change_0000000007), has been handled
// by Run. Errors: ErrStopped, or the context's.
func (f *Follower) Applied(ctx context.Context, change string) error {
	n, ok := sequence(change)
	if !ok {
		return fmt.Errorf("%w: notification %q", registry.ErrBadPath, change)
	}
	for {
		f.mu.Lock()
		applied, moved, failed := f.applied, f.moved, f.failed
		f.mu.Unlock()
		switch {
		case applied >= n:
			return nil
		case failed != nil:
			return failed
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Topics reads the configurations of topics at once, before this broker makes their logs: the
// creation of a topic has no notification (LogManager.fetchLogConfig).
func (f *Follower) Topics(names ...string) error {
	entities := make([]string, len(names))
	for i, name := range names {
		entities[i] = "topics/" + name
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readLocked(entities, true)
}

// Forget drops the configurations of topics that are gone.
func (f *Follower) Forget(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		f.o.Applier.ApplyConfig("topics", name, nil)
	}
}
