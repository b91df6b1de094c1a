// Package broker wires one running broker out of its rooms: New, Run, Close. It decides nothing
// but the order in which they start and stop.
//
// A start goes from what is on disk to what others see: settings, directories, registry, logs,
// then the sockets are bound, the controller registers the broker and makes it leader, and only
// when all of that holds are connections accepted. A stop goes the other way: no more requests,
// then the coordinators, the replicas, the registration, the logs with their checkpoints.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"ottla/broker/api"
	"ottla/broker/auth"
	"ottla/broker/config"
	"ottla/broker/controller"
	"ottla/broker/follow"
	"ottla/broker/metadata"
	"ottla/broker/metrics"
	"ottla/broker/quota"
	"ottla/broker/registry"
	"ottla/broker/remote"
	"ottla/broker/replica"
	"ottla/broker/server"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"
	"ottla/log"
	"ottla/log/vfs"
	"ottla/protocol"

	"github.com/prometheus/client_golang/prometheus"
)

// registryFile is the embedded registry's file in metadata.log.dir, or in the first log directory.
const registryFile = registry.FileName

// trimAfter is how long after its start a broker gives back the memory that only the start needed.
const trimAfter = time.Second

// Modes of a broker, as the ready line names them.
const (
	ModeEmbedded = "embedded"
	ModeMemory   = "in-memory"
	ModeCluster  = "cluster" // on ZooKeeper, or on a registry that several brokers of a process share
)

// Options are what a broker is made of.
type Options struct {
	Settings map[string]string // static settings by Kafka's names
	InMemory bool              // nothing on disk: logs and registry are gone at Close
	HTTP     string            // address of /metrics, /healthz, /readyz; empty: none
	Logger   *slog.Logger      // nil: nothing is logged
	Level    *slog.LevelVar    // the logger's level, if it can be changed at run time
	Version  string
	Now      func() time.Time // nil: time.Now
	Ready    func(Ready)      // called once, when requests are served

	fs     vfs.FS  // of the logs, for tests; nil: the system's, or memory
	member *member // of a cluster in one process; nil: none
}

// Ready says where and how a broker serves.
type Ready struct {
	Addresses []string // one a socket: NAME://host:port
	DataDir   string   // empty in memory
	Mode      string
}

// Broker is one broker.
type Broker struct {
	opts   Options
	log    *slog.Logger
	config *config.Store
	meta   *metadata.Holder

	tree       registry.Tree
	logs       *log.Manager
	follower   *follow.Follower
	replicas   *replica.Manager
	groups     *group.Coordinator
	txns       *txn.Coordinator
	features   atomic.Pointer[features]
	api        *api.API
	controller *controller.Controller
	own        *controller.Own // this broker as controllers reach it
	server     *server.Server
	http       *metrics.Server // nil: none
	state      atomic.Int32    // stateStarting and on

	ways    *remote.Options                 // to other brokers; nil: this one is alone
	asks    *remote.Controller              // nil: this one is alone
	members *remote.Members                 // nil: this one is alone
	hosting atomic.Pointer[replica.Manager] // nil: the start has not come so far
	lost    chan error                      // holds one: a log directory that the broker cannot do without has failed
	unclean chan struct{}                   // holds one: unclean.leader.election.enable was switched on somewhere
	close   sync.Once
	fs      vfs.FS
	adopted map[string][16]byte // ids of the topics that takeOver has made; nil: it had nothing to do
}

// New opens everything that a broker has, becomes leader of its partitions and binds its sockets;
// Run serves. An error names what is wrong with which setting, directory or address.
func New(o Options) (_ *Broker, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	b := &Broker{opts: o, log: o.Logger, meta: metadata.NewHolder(), lost: make(chan error, 1), unclean: make(chan struct{}, 1)}
	b.setState(stateStarting)
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	reg := prometheus.NewRegistry()
	fs := vfs.OS()
	if o.InMemory {
		fs = vfs.NewMemory()
	}
	if o.fs != nil {
		fs = o.fs
	}
	b.fs = fs

	dirs, err := b.openDirs(fs)
	if err != nil {
		return nil, err
	}
	b.serveHTTP(reg)
	settings := b.config.Broker()
	var clusterID string
	if err = b.openRegistry(settings); err == nil {
		clusterID, err = registry.ClusterID(b.tree, dirs.ClusterID())
	}
	if err == nil {
		if b.clustered() {
			settings, err = b.joinCluster(dirs)
		} else if err = b.takeOver(fs, dirs, settings, clusterID); err == nil { // before anything reads the registry
			err = b.identity(dirs, settings)
		}
	}
	if err == nil { // before the logs: dynamic settings may be theirs
		b.follower = follow.New(b.followOptions())
		err = b.follower.Load()
	}
	if err == nil {
		b.logs, err = log.OpenManager(logOptions(b, fs, dirs, clusterID, reg))
	}
	if err != nil {
		dirs.Close()
		return nil, err
	}
	b.meta.Store(&metadata.Picture{ClusterID: clusterID, Controller: -1, Topics: map[string]*metadata.Topic{}, ByID: map[metadata.ID]*metadata.Topic{}})
	if err := b.loadLogs(); err != nil {
		return nil, err
	}
	if err := b.strangers(); err != nil {
		return nil, err
	}
	b.replicas = replica.New(b.inCluster(replica.Options{
		BrokerID: settings.ID, Logs: b.logs, Meta: b.meta,
		MinISR:     func(topic string) int { return int(b.config.Topic(topic).MinInsyncReplicas) },
		LogOptions: func(topic string) *log.Options { return &b.config.Topic(topic).Log },
		LateTxn:    ms(settings.TransactionMaxTimeoutMs) + 5*time.Minute, // ProducerStateManager.LATE_TRANSACTION_BUFFER_MS
		Watch:      []replica.Watcher{watcher{b}},
		Again:      b.lookAgain,
		Now:        o.Now, Logger: b.log, Registerer: reg,
	}))
	b.hosting.Store(b.replicas)
	if err := b.dirsLeft(); err != nil { // of what failed before; dirFailed sees the rest
		return nil, err
	}
	b.groups = group.New(groupConfig(b, reg))
	ids := api.NewProducerIDs(func(ctx context.Context) (int64, int64, error) { return b.controller.AllocateProducerIDs(ctx) })
	b.txns = txn.New(txnConfig(b, ids, reg))
	made := api.API{
		Logger: b.log, Now: o.Now, BrokerID: settings.ID, Meta: b.meta, Config: b.config, Logs: b.logs, Replicas: b.replicas, Groups: b.groups, Txns: b.txns,
		FetchSessions: api.NewFetchSessions(int(settings.MaxIncrementalFetchSessionCacheSlots), reg),
		ProducerIDs:   ids,
		Features:      b.finalized,
		Control:       b.newController(settings, reg),
		Tree:          b.tree,
		Authorizer:    auth.AllowAll{}, Quota: quota.Unlimited{}, Metrics: api.NewMetrics(reg),
	}
	if b.clustered() {
		made.Own, made.Maker, made.Enroller = b.own, b.asks, enroller{b}
	}
	if b.api, err = api.New(made); err != nil {
		return nil, err
	}
	b.server, err = server.Listen(serverOptions(b, func(c protocol.Conn) server.Session { return b.api.Open(c) }, reg))
	if err != nil {
		return nil, err
	}
	if !b.clustered() { // else they are followed
		if err := b.loadFeatures(); err != nil { // before coordinators load and write
			return nil, err
		}
	}
	if err := b.controller.Start(context.Background()); err != nil {
		return nil, err
	}
	if !b.clustered() && b.features.Load().epoch < 0 { // the start has made the node
		if err := b.loadFeatures(); err != nil {
			return nil, err
		}
	}
	if err := b.follower.Load(); err != nil { // sets the watches on nodes that the start has made
		return nil, err
	}
	reg.MustRegister(&picture{b: b})
	return b, nil
}

// serveHTTP serves metrics and health, from before the logs are loaded, which may take long after a
// crash. A port that is taken is no reason not to start.
func (b *Broker) serveHTTP(reg *prometheus.Registry) {
	if b.opts.HTTP == "" {
		return
	}
	var err error
	if b.http, err = metrics.Serve(b.opts.HTTP, reg, b.log); err != nil {
		b.log.Warn("metrics and health are not served", "addr", b.opts.HTTP, "err", err)
		return
	}
	if _, port, _ := net.SplitHostPort(b.opts.HTTP); port == "0" {
		b.log.Info("metrics and health are served", "addr", b.http.Addr().String())
	}
}

// openDirs reads the settings and locks the log directories. A directory says which broker it
// is of, which counts where no setting does.
func (b *Broker) openDirs(fs vfs.FS) (*log.Dirs, error) {
	var err error
	if b.config, err = config.New(config.Options{Settings: b.opts.Settings, Logger: b.log, Level: b.opts.Level}); err != nil {
		return nil, err
	}
	dirs, err := log.LockDirs(fs, b.config.Broker().LogDirs)
	if err != nil {
		return nil, err
	}
	if id := dirs.BrokerID(); id >= 0 && !b.config.Broker().IDSet && id != b.config.Broker().ID {
		if err := b.takeID(id); err != nil {
			dirs.Close()
			return nil, err
		}
	}
	return dirs, nil
}

// takeID makes an id that no setting has this broker's.
func (b *Broker) takeID(id int32) (err error) {
	settings := maps.Clone(b.opts.Settings)
	if settings == nil {
		settings = map[string]string{}
	}
	delete(settings, "broker.id") // -1: there is none
	settings["node.id"] = fmt.Sprint(id)
	b.config, err = config.New(config.Options{Settings: settings, Logger: b.log, Level: b.opts.Level})
	return err
}

func (b *Broker) openRegistry(settings *config.Broker) (err error) {
	switch {
	case b.opts.member != nil:
		b.tree = b.opts.member.tree
		return nil
	case settings.ZooKeeperConnect != "":
		return b.openZooKeeper(settings)
	case b.opts.InMemory:
		b.tree = registry.OpenMemory()
		return nil
	}
	place := registryDir(settings)
	if err := registryElsewhere(place, settings.LogDirs); err != nil {
		return err
	}
	b.tree, err = registry.OpenFile(filepath.Join(place, registryFile))
	return err
}

// errElsewhere: a new registry would take the place of one that is there, for another order of the same log
// directories.
var errElsewhere = errors.New("the registry is in another directory")

// registryElsewhere finds a registry in a log directory that is not the place for it, which has none.
func registryElsewhere(place string, dirs []string) error {
	if _, err := os.Stat(filepath.Join(place, registryFile)); !errors.Is(err, os.ErrNotExist) {
		return nil // it is there, or opening it says what is wrong
	}
	for _, d := range dirs {
		if _, err := os.Stat(filepath.Join(d, registryFile)); err == nil {
			return fmt.Errorf("%w: %s is in %s, and would be made anew in %s; name that directory first in log.dirs, or in metadata.log.dir, or move the file", errElsewhere, registryFile, d, place)
		}
	}
	return nil
}

// registryDir is where the embedded registry lies.
func registryDir(settings *config.Broker) string {
	if settings.MetadataLogDir != "" {
		return settings.MetadataLogDir
	}
	return settings.LogDirs[0]
}

// Addrs are the sockets that the broker listens on.
func (b *Broker) Addrs() []server.Bound { return b.server.Addrs() }

// HTTPAddr is where metrics and health are served, nil if they are not.
func (b *Broker) HTTPAddr() net.Addr {
	if b.http == nil {
		return nil
	}
	return b.http.Addr()
}

// Run serves until ctx ends or something fails that the broker cannot do without, and then
// closes it. It returns nil after the former.
func (b *Broker) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Requests end before what they need: the rooms run on a context of their own.
	rooms, stopRooms := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRooms()
	var inner, outer sync.WaitGroup
	run := func(wg *sync.WaitGroup, name string, c context.Context, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(c); err != nil && c.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	run(&inner, "controller", rooms, b.controller.Run)
	run(&inner, "registry", rooms, b.follower.Run)
	serving, stopServing := context.WithCancel(rooms)
	defer stopServing()
	if b.clustered() {
		run(&inner, "replicas", rooms, b.replicas.Run)
	} else if err := b.orphans(ctx); err != nil {
		cancel(err)
	}
	if ctx.Err() == nil { // else there is nothing to serve
		run(&inner, "logs", rooms, b.settle)
		run(&inner, "topics", rooms, b.forgetTopics)
		run(&inner, "elections", rooms, b.electUnclean)
		run(&inner, "watchdog", rooms, b.watchLoading)
		run(&outer, "server", serving, b.server.Run)
		b.setState(stateRunning)
		if b.opts.Ready != nil {
			b.opts.Ready(b.ready())
		}
	}
	trim := time.NewTimer(trimAfter)
	defer trim.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case err := <-b.lost:
			cancel(err)
		case <-trim.C:
			debug.FreeOSMemory() // what the start has allocated
			if err := trimBinary(); err != nil {
				b.log.Debug("memory of the start not given back", "err", err)
			}
		}
	}
	cause := context.Cause(ctx)
	b.setState(stateShuttingDown)
	b.leave(rooms)
	stopServing()
	outer.Wait()
	b.txns.Close()
	b.groups.Close()
	b.replicas.Close()
	stopRooms()
	inner.Wait()
	if errors.Is(cause, context.Canceled) {
		cause = nil
	}
	return errors.Join(cause, b.Close())
}

// setState says what the broker is doing, to metrics and to health checks.
func (b *Broker) setState(state int32) {
	b.state.Store(state)
	if b.http != nil {
		b.http.SetReady(state == stateRunning)
	}
}

func (b *Broker) ready() Ready {
	r := Ready{Mode: ModeMemory}
	if !b.opts.InMemory {
		r.Mode, r.DataDir = ModeEmbedded, b.config.Broker().LogDirs[0]
	}
	if b.clustered() {
		r.Mode = ModeCluster
	}
	for _, a := range b.server.Addrs() {
		r.Addresses = append(r.Addresses, a.Listener+"://"+a.Addr.String())
	}
	return r
}

// Close gives up everything, whether or not the broker ran. Its error is what could not be
// written in the end.
func (b *Broker) Close() (err error) {
	b.close.Do(func() {
		if b.server != nil {
			b.server.Close()
		}
		if b.txns != nil {
			b.txns.Close()
		}
		if b.groups != nil {
			b.groups.Close()
		}
		if b.replicas != nil {
			b.replicas.Close()
		}
		if b.asks != nil {
			b.asks.Close()
			b.members.Close()
		}
		if b.tree != nil {
			err = errors.Join(err, b.tree.Close())
		}
		if b.logs != nil {
			err = errors.Join(err, b.logs.Close())
		}
		if b.http != nil {
			b.http.Close()
		}
	})
	return err
}
