package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"ottla/broker/config"
	"ottla/broker/controller"
	"ottla/broker/metadata"
	"ottla/broker/registry"
	"ottla/broker/replica"
)

func settingsOf(t *testing.T, set map[string]string) *config.Store {
	t.Helper()
	c, err := config.New(config.Options{Settings: set})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestReplicaSettings: what followers and leaders go by is what the settings say.
func TestReplicaSettings(t *testing.T) {
	b := &Broker{log: slog.New(slog.DiscardHandler), config: settingsOf(t, map[string]string{
		"zookeeper.connect": "zk", "num.replica.fetchers": "3", "replica.fetch.backoff.ms": "11", "replica.fetch.max.bytes": "12", "replica.fetch.min.bytes": "13",
		"replica.fetch.response.max.bytes": "14", "replica.fetch.wait.max.ms": "15", "replica.lag.time.max.ms": "16", "replica.socket.timeout.ms": "17",
	})}
	o := b.inCluster(replica.Options{})
	want := replica.PullRules{MaxWait: 15 * time.Millisecond, MinBytes: 13, MaxBytes: 14, PartMaxBytes: 12, Backoff: 11 * time.Millisecond}
	if o.Pull != want || o.LagMax != 16*time.Millisecond || o.Fetchers() != 3 {
		t.Errorf("got %+v, lag %v, %d fetchers", o.Pull, o.LagMax, o.Fetchers())
	}
	if w := b.waysOf(b.config.Broker()); w.Timeout != 17*time.Millisecond {
		t.Errorf("socket timeout %v", w.Timeout)
	}
}

// TestZooKeeperSettings: the session is what the settings say; the time for a connection is that of the
// session unless it is set.
func TestZooKeeperSettings(t *testing.T) {
	for _, x := range []struct {
		set  map[string]string
		want registry.ZooKeeperOptions
	}{
		{map[string]string{"zookeeper.connect": "a:1,b:2/x"}, registry.ZooKeeperOptions{Connect: "a:1,b:2/x", SessionTimeout: 18 * time.Second, Patience: 18 * time.Second, MakeChroot: true, InFlight: 10}},
		{map[string]string{"zookeeper.connect": "a", "zookeeper.session.timeout.ms": "6000", "zookeeper.connection.timeout.ms": "7000", "zookeeper.max.in.flight.requests": "3"},
			registry.ZooKeeperOptions{Connect: "a", SessionTimeout: 6 * time.Second, Patience: 7 * time.Second, MakeChroot: true, InFlight: 3}},
	} {
		got := zooKeeperOptions(settingsOf(t, x.set).Broker())
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", x.want) {
			t.Errorf("%v: %+v", x.set, got)
		}
	}
}

// TestLeaving: a broker that stops hands over as often and as fast as the settings say.
func TestLeaving(t *testing.T) {
	for _, x := range []struct {
		set   map[string]string
		fails int // so often there is something left
		tries int
		takes time.Duration
	}{
		{map[string]string{"controlled.shutdown.enable": "false"}, 9, 0, 0},
		{nil, 0, 1, 0},
		{nil, 2, 3, 10 * time.Second},
		{nil, 9, 4, 15 * time.Second},
		{map[string]string{"controlled.shutdown.max.retries": "1", "controlled.shutdown.retry.backoff.ms": "70"}, 9, 2, 70 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &Broker{log: slog.New(slog.DiscardHandler), config: settingsOf(t, x.set)}
			tries, begun := 0, time.Now()
			b.leaveBy(t.Context(), func(context.Context) (int, error) {
				tries++
				switch {
				case tries > x.fails:
					return 0, nil
				case tries%2 == 0:
					return 0, errors.New("no controller")
				}
				return 5, nil
			})
			if took := time.Since(begun); tries != x.tries || took != x.takes {
				t.Errorf("%v, %d fail: %d tries in %v", x.set, x.fails, tries, took)
			}
		})
	}
}

// TestBrokerIDs: a broker without an id gets one above those that are set by hand, keeps it, and none of
// those may be set by hand.
func TestBrokerIDs(t *testing.T) {
	root := registry.NewMemory(nil)
	defer root.Close()
	start := func(dir string, set map[string]string) (int32, error) {
		all := map[string]string{"log.dirs": dir, "listeners": "PLAINTEXT://127.0.0.1:0"}
		for name, value := range set {
			all[name] = value
		}
		b, err := New(Options{Settings: all, member: &member{tree: root.Session()}})
		if err != nil {
			return -1, err
		}
		defer b.Close()
		return b.config.Broker().ID, nil
	}
	first, second := t.TempDir(), t.TempDir()
	for _, x := range []struct {
		dir  string
		set  map[string]string
		want int32
		err  error
	}{
		{first, nil, 1001, nil},
		{second, map[string]string{"broker.id": "-1"}, 1002, nil},
		{first, nil, 1001, nil},
		{t.TempDir(), map[string]string{"reserved.broker.max.id": "5"}, 8, nil},
		{t.TempDir(), map[string]string{"broker.id": "1000"}, 1000, nil},
		{t.TempDir(), map[string]string{"broker.id": "1001"}, -1, errReserved},
		{t.TempDir(), map[string]string{"broker.id": "1007", "broker.id.generation.enable": "false"}, 1007, nil},
	} {
		if id, err := start(x.dir, x.set); id != x.want || !errors.Is(err, x.err) {
			t.Errorf("%v: id %d, %v", x.set, id, err)
		}
	}
}

// TestRebalanceSettings: leadership goes back as often, and from as far, as the settings say, or not at all.
func TestRebalanceSettings(t *testing.T) {
	for _, x := range []struct {
		set  map[string]string
		want *controller.Rebalance
	}{
		{nil, &controller.Rebalance{Every: 300 * time.Second, Percent: 10}},
		{map[string]string{"leader.imbalance.check.interval.seconds": "7", "leader.imbalance.per.broker.percentage": "8"}, &controller.Rebalance{Every: 7 * time.Second, Percent: 8}},
		{map[string]string{"auto.leader.rebalance.enable": "false"}, nil},
	} {
		b := &Broker{config: settingsOf(t, x.set), meta: metadata.NewHolder()}
		var o controller.Options
		b.controlCluster(&o, b.config.Broker())
		if (o.Rebalance == nil) != (x.want == nil) || x.want != nil && *o.Rebalance != *x.want {
			t.Errorf("%v: %+v", x.set, o.Rebalance)
		}
	}
}

// TestInterBrokerListener: other brokers are reached by the listener that the settings say.
func TestInterBrokerListener(t *testing.T) {
	other := []metadata.Broker{{ID: 2, Endpoints: []metadata.Endpoint{{Listener: "PLAINTEXT", Host: "a", Port: 1}, {Listener: "CLIENT", Host: "b", Port: 2}, {Listener: "INTERNAL", Host: "c", Port: 3}}}}
	for _, x := range []struct{ setting, value, want string }{
		{"inter.broker.listener.name", "INTERNAL", "c:3"},
		{"inter.broker.listener.name", "CLIENT", "b:2"},
		{"security.inter.broker.protocol", "PLAINTEXT", "a:1"},
	} {
		b := &Broker{config: settingsOf(t, map[string]string{x.setting: x.value, "listeners": "CLIENT://h:1,INTERNAL://h:2,PLAINTEXT://h:3",
			"listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT"})}
		ways := b.waysOf(b.config.Broker())
		ways.Book.Know(other)
		if at, err := ways.Book.Of(2); err != nil || at != x.want {
			t.Errorf("%s=%s: %s, %v", x.setting, x.value, at, err)
		}
	}
}
