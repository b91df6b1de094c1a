// Package controller decides for the cluster: who leads a partition, what topics there are. It
// runs in every broker, and is active in the one that holds /controller.
//
// One goroutine has the state and handles one event at a time: a call of this broker's API, a
// change in the tree, an answer of a broker. An event becomes a step by a pure function
// (decide.go, topics.go), the step's writes are one multi fenced by the controller's epoch, and
// only when that has succeeded is the state changed and are brokers told. The own broker is told
// by a call in the same goroutine, so that what a call of the API has decided holds in this
// broker when the call returns; other brokers have an ordered queue each.
//
// There are no locks but the senders'. The order of writes on disk and of requests follows from
// the one goroutine.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/broker/metadata"
	"ottla/broker/registry"
	"ottla/compat"
)

// Options is all that a controller is made from.
type Options struct {
	Tree     registry.Tree
	BrokerID int32
	// Registration is what the broker is registered as; asked for at Start and after a lost
	// session. Its timestamp is filled in.
	Registration func() compat.BrokerNode
	Own          Broker                     // this broker
	Dial         func(metadata.Broker) Line // other brokers; nil: there are none to reach

	// JoinPatience is how long Start waits for a registration of this broker's id to end that another
	// session owns: as a rule one of this broker's, before it was killed. 0: not at all.
	JoinPatience time.Duration

	// ClusterID is what the tree must have after a session has expired; empty: anything.
	ClusterID string
	// Rebalance gives leadership back to preferred replicas from time to time; nil: nobody does.
	Rebalance *Rebalance

	// Elected hears who the controller is, -1: nobody, whenever that changes. It must not wait. Nil: nobody
	// does.
	Elected func(id int32)

	Defaults func() (partitions int32, replication int16)
	Unclean  func(topic string) bool // unclean.leader.election.enable of a topic; nil: false
	// Applied waits until this broker acts on a change of configuration, named by its node below
	// /config/changes (config_change_0000000007). Nil: nothing waits.
	Applied func(ctx context.Context, change string) error
	// Features are finalized where the cluster has no feature node yet.
	Features map[string]int16
	// NoFeatures says that none can be finalized: a Kafka 3.9 in the cluster would end.
	NoFeatures bool
	// Finalized hears of levels that this controller has changed, and their epoch, before the call
	// that changed them returns. Nil: nobody does.
	Finalized func(levels map[string]int16, epoch int64)

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
	Random     func(n int) int // uniform in [0,n); nil: math/rand
	NewID      func() [16]byte // of a topic; nil: registry.RandomUUID
}

// Controller is one broker's. Start, then Run; calls wait until Run runs.
type Controller struct {
	o       Options
	tree    registry.Tree
	log     *slog.Logger
	metrics *metrics

	calls   chan func()
	answers chan answer
	stopped chan struct{} // closed when Run has ended
	watcher *registry.Watcher

	brokerEpoch atomic.Int64
	leader      atomic.Int32 // who the controller is, -1: nobody

	// What follows belongs to the goroutine of Start and then of Run.
	state   *cluster // nil: not active
	out     outbox
	senders map[int32]*sender
	waiting map[string][]chan error // deletions, by topic
	ctx     context.Context         // of Run; ends the senders
	left    []string                // nodes with wishes that were there before the state
	reload  bool                    // the state may differ from the tree
	expired bool                    // the session has, and there is no new registration yet
}

// New makes a controller that does nothing yet.
func New(o Options) *Controller {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.IntN
	}
	if o.NewID == nil {
		o.NewID = registry.RandomUUID
	}
	if o.Unclean == nil {
		o.Unclean = func(string) bool { return false }
	}
	if o.Defaults == nil {
		o.Defaults = func() (int32, int16) { return 1, 1 }
	}
	c := &Controller{
		o: o, tree: o.Tree, log: o.Logger.With("room", "controller"), metrics: newMetrics(o.Registerer),
		calls: make(chan func()), answers: make(chan answer), stopped: make(chan struct{}),
		watcher: registry.NewWatcher(), senders: map[int32]*sender{}, waiting: map[string][]chan error{},
	}
	c.brokerEpoch.Store(-1)
	c.leader.Store(-1)
	return c
}

// BrokerEpoch is the epoch of this broker's registration, -1 before Start.
func (c *Controller) BrokerEpoch() int64 { return c.brokerEpoch.Load() }

// Leader is the id of the broker whose controller is active, as far as is known here; -1: none.
func (c *Controller) Leader() int32 { return c.leader.Load() }

// setLeader notes who the controller is.
func (c *Controller) setLeader(id int32) {
	if c.leader.Swap(id) != id && c.o.Elected != nil {
		c.o.Elected(id)
	}
}

// Active tells whether this is the active controller.
func (c *Controller) Active() bool { return c.leader.Load() == c.o.BrokerID }

func (c *Controller) rules() rules {
	partitions, replicas := c.o.Defaults()
	return rules{unclean: c.o.Unclean, partitions: partitions, replicas: replicas, random: c.o.Random, newID: c.o.NewID}
}

// Run handles events until ctx ends (then nil), or the registry fails for good. It starts after
// Start has succeeded and ends every goroutine of the controller.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	c.ctx = ctx
	defer func() {
		cancel()
		for _, s := range c.senders { // those of Start have another context
			s.stop()
		}
		close(c.stopped)
		c.metrics.active.Set(0)
	}()
	balance := time.NewTimer(firstRebalance)
	defer balance.Stop()
	if c.o.Rebalance == nil {
		balance.Stop()
	}
	for {
		if c.state != nil && len(c.left) > 0 {
			if err := c.changes(ctx, nil); err != nil && ctx.Err() == nil {
				c.log.Error("what others have asked for is not done", "err", err)
			}
		}
		var err error
		select {
		case <-ctx.Done():
			return nil
		case f := <-c.calls:
			f()
		case a := <-c.answers:
			c.handle(a)
			err = c.flush(ctx)
		case <-balance.C:
			if err = c.rebalance(); err == nil {
				err = c.flush(ctx)
			}
			balance.Reset(c.o.Rebalance.Every)
		case <-c.watcher.Wake():
			err = c.changes(ctx, c.watcher.Take())
		}
		if c.reload && err == nil {
			err = c.reloadAll(ctx)
		}
		if errors.Is(err, registry.ErrStorage) || errors.Is(err, registry.ErrClosed) || errors.Is(err, registry.ErrClusterID) {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("controller: %w", err)
		}
		if err != nil && ctx.Err() == nil {
			c.reload = true // the next event starts from the tree: it is told of when the connection is back
			c.log.Error("event not handled", "err", err)
		}
	}
}

// do runs f on the controller's goroutine and waits for it.
func (c *Controller) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case c.calls <- func() { f(); close(done) }:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.stopped:
		return ErrStopped
	}
	<-done // the goroutine has taken it and calls it to its end
	return nil
}

// active runs f as do, if this is the active controller. What f has decided is told to brokers
// before active returns.
func (c *Controller) active(ctx context.Context, f func() error) error {
	result := ErrNotController
	err := c.do(ctx, func() {
		if c.state == nil {
			return
		}
		result = f()
		if err := c.flush(ctx); err != nil && result == nil {
			result = err
		}
	})
	switch {
	case errors.Is(err, ErrStopped):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrTimedOut, err)
	}
	return result
}

// write does a step: its multi, and if that succeeds its changes. The requests wait for flush.
func (c *Controller) write(t registry.Tree, s *step) error {
	if err := c.multi(t, s.ops); err != nil {
		return err
	}
	c.state.apply(s)
	c.out.merge(&s.out)
	c.metrics.unclean.Add(int64(s.unclean))
	c.tell(s.gone, nil)
	return nil
}

// tell ends the waiting for the deletion of topics.
func (c *Controller) tell(names []string, err error) {
	for _, name := range names {
		for _, done := range c.waiting[name] {
			done <- err
		}
		delete(c.waiting, name)
	}
}

// multi writes ops fenced by the controller's epoch. An op that makes a persistent node which is
// there already, and one that deletes what is gone, has no work to do: other members, an earlier
// controller that was interrupted, may have done it. If a limit of the tree splits the ops, the
// later parts may be missing after a failure; the state is then loaded again.
func (c *Controller) multi(t registry.Tree, ops []registry.Op) error {
	check := registry.Check(compat.PathControllerEpoch, c.state.epochVersion)
	for len(ops) > 0 {
		part, rest := split(ops, t.MultiLimit())
		_, err := t.Multi(append([]registry.Op{check}, part...)...)
		if err == nil {
			ops = rest
			continue
		}
		failed, ok := errors.AsType[*registry.OpError](err)
		switch {
		case !ok:
			c.reload = true // the outcome is unknown
			return err
		case failed.Index == 0:
			c.resign("another controller was elected")
			return ErrNotController
		}
		i := failed.Index - 1
		switch op := &ops[i]; {
		case op.Kind == registry.OpCreate && op.Mode == registry.Persistent && op.Data == nil && errors.Is(err, registry.ErrNodeExists),
			op.Kind == registry.OpDelete && errors.Is(err, registry.ErrNoNode):
			ops = append(append([]registry.Op{}, ops[:i]...), ops[i+1:]...)
		case isConfig(op.Path) && errors.Is(err, registry.ErrNodeExists):
			ops = append([]registry.Op{}, ops...)
			ops[i] = registry.Set(op.Path, op.Data, registry.AnyVersion)
		case op.Kind == registry.OpDelete && errors.Is(err, registry.ErrNotEmpty):
			below, err := subtree(t, op.Path)
			if err != nil {
				return err
			}
			ops = append(append(append([]registry.Op{}, ops[:i]...), below...), ops[i:]...)
		default:
			c.reload = true
			return err
		}
	}
	return nil
}

// split cuts ops where they reach the tree's limit; 0: none.
func split(ops []registry.Op, limit int) (part, rest []registry.Op) {
	const overhead = 64 // of one op on the wire
	size := 0
	for i := range ops {
		size += len(ops[i].Path) + len(ops[i].Data) + overhead
		if limit > 0 && size > limit && i > 0 {
			return ops[:i], ops[i:]
		}
	}
	return ops, nil
}

func isConfig(path string) bool {
	return len(path) > len(compat.PathConfig) && path[:len(compat.PathConfig)+1] == compat.PathConfig+"/"
}

// subtree gives the ops that delete everything below a node.
func subtree(t registry.Tree, path string) (ops []registry.Op, err error) {
	names, _, err := t.Children(path, nil)
	if errors.Is(err, registry.ErrNoNode) {
		return nil, nil
	}
	for _, name := range names {
		below, err := subtree(t, path+"/"+name)
		if err != nil {
			return nil, err
		}
		ops = append(append(ops, below...), registry.Delete(path+"/"+name, registry.AnyVersion))
	}
	return ops, err
}

// resign gives up the state; the broker goes on as a member, and looks who is the controller now.
func (c *Controller) resign(why string) {
	if c.state == nil {
		return
	}
	c.log.Info("resigned as controller", "epoch", c.state.epoch, "why", why)
	c.state, c.out, c.reload = nil, outbox{}, true
	c.setLeader(-1)
	for id, s := range c.senders {
		s.stop()
		delete(c.senders, id)
	}
	c.tell(slices.Collect(maps.Keys(c.waiting)), ErrNotController)
	c.metrics.show(nil)
}

// flush tells the brokers what has been decided. The own broker's answers may lead to more.
func (c *Controller) flush(ctx context.Context) error {
	for c.state != nil {
		out := c.out
		c.out = outbox{}
		letters := c.state.letters(&out)
		for _, l := range letters {
			if l.to != c.o.BrokerID {
				c.post(l)
				continue
			}
			c.handle(c.deliver(ctx, l))
			if c.state == nil {
				return ErrNotController
			}
		}
		if s := c.state.deletionsDone(); len(s.gone) > 0 {
			if err := c.write(c.tree, s); err != nil {
				return err
			}
		}
		if len(letters) == 0 {
			c.metrics.show(c.state)
			return nil
		}
	}
	return nil
}

// deliver calls the own broker.
func (c *Controller) deliver(ctx context.Context, l letter) (a answer) {
	ctx = context.WithoutCancel(ctx) // what is written has to be told
	a.from, a.epoch = l.to, l.epoch
	if l.lead != nil {
		var err error
		if a.lead, err = c.o.Own.LeaderAndIsr(ctx, l.lead); err != nil {
			c.log.Error("own broker refused LeaderAndIsr", "err", err)
		} else {
			a.led, a.asked = true, l.lead.Partitions
		}
	}
	if l.update != nil {
		if err := c.o.Own.UpdateMetadata(ctx, l.update); err != nil {
			c.log.Error("own broker refused UpdateMetadata", "err", err)
		}
	}
	if l.stop != nil {
		var err error
		if a.stop, err = c.o.Own.StopReplica(ctx, l.stop); err != nil {
			c.log.Error("own broker refused StopReplica", "err", err)
		} else {
			a.stopped = l.stop.Partitions
		}
	}
	return a
}

// handle takes a broker's answer into the state: replicas that are gone, replicas whose log
// directory has failed (KafkaController.processLeaderAndIsrResponseReceived).
func (c *Controller) handle(a answer) {
	if c.state == nil {
		return
	}
	m := c.state.members[a.from]
	if m == nil || m.Epoch != a.epoch {
		return // of an earlier life of the broker
	}
	failed := map[at]error{}
	for _, e := range a.stop {
		failed[at{e.Topic, e.Partition}] = e.Err
	}
	for _, s := range a.stopped {
		k := at{s.Topic, s.Partition}
		if err := failed[k]; err != nil {
			c.log.Warn("replica not stopped", "broker", a.from, "topic", s.Topic, "partition", s.Partition, "err", err)
		} else if t := c.state.topics[s.Topic]; t != nil && t.deleting && s.Delete {
			delete(t.pending, replicaOf{s.Partition, a.from})
		}
	}
	if !a.led {
		return
	}
	clear(failed)
	for _, e := range a.lead {
		failed[at{e.Topic, e.Partition}] = e.Err
	}
	var worse, better []at
	for i := range a.asked {
		k := at{a.asked[i].Topic, a.asked[i].Partition}
		err := failed[k]
		_, was := m.offline[k]
		switch {
		case errors.Is(err, ErrReplicaStorage) && !was:
			if m.offline == nil {
				m.offline = map[at]struct{}{}
			}
			m.offline[k] = struct{}{}
			worse = append(worse, k)
		case err == nil && was:
			delete(m.offline, k)
			better = append(better, k)
		case errors.Is(err, ErrStaleControllerEpoch): // it has heard of this state before
		case err != nil && !errors.Is(err, ErrReplicaStorage):
			c.log.Warn("replica not taken", "broker", a.from, "topic", k.topic, "partition", k.n, "err", err)
		}
	}
	if len(worse) > 0 {
		c.log.Warn("replicas offline", "broker", a.from, "partitions", len(worse))
	}
	if len(worse)+len(better) > 0 {
		if err := c.write(c.tree, c.state.replicasChanged(c.rules(), append(worse, better...))); err != nil {
			c.log.Error("offline replicas not written", "err", err)
		}
	}
}
