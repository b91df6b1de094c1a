package registry

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A request that waits while the session expires must not be done in the next one.
func TestZooKeeperFencesWritesByTheSession(t *testing.T) {
	z := newZKServer(t)
	a, b := z.session(""), z.session("")
	defer a.Close()
	defer b.Close()
	must(b.Create("/eph", nil, Persistent))(t)
	w := NewWatcher()
	must(a.Exists("/eph", w))(t)
	first := a.Session()

	for _, when := range []struct {
		name  string
		fault zkFault // of the request: it was sent before the connection was lost
	}{{"not sent", zkNoFault}, {"request lost", zkLoseRequest}, {"answer lost", zkLoseAnswer}} {
		t.Run(when.name, func(t *testing.T) {
			session, made := a.Session(), z.sessionsMade()
			var once sync.Once
			reached := make(chan struct{})
			if when.fault == zkNoFault {
				z.setDown(true)
				awaitKind(t, w, Disconnected)
				close(reached)
			} else {
				z.failing(func(kind int32) (f zkFault) {
					if kind == zkMulti {
						once.Do(func() {
							f = when.fault
							z.mu.Lock()
							z.down = true
							z.mu.Unlock()
							close(reached)
						})
					}
					return f
				})
			}
			result := make(chan error, 1)
			go func() {
				_, err := a.Create("/eph/x", []byte("of the first"), Ephemeral)
				result <- err
			}()
			<-reached
			z.failing(nil)
			z.expire(session)
			z.setDown(false)
			if err := <-result; !errors.Is(err, ErrSessionExpired) {
				t.Errorf("the write ended with %v", err)
			}
			_, err := a.Exists("/eph", nil)
			wantErr(t, err, ErrSessionExpired)
			if err := a.Renew(); err != nil {
				t.Fatal(err)
			}
			if st, err := a.Exists("/eph/x", nil); !errors.Is(err, ErrNoNode) {
				t.Errorf("the write was done in another session: %+v, %v", st, err)
			}
			if a.Session() == session {
				t.Error("the new session is the old one")
			}
			if n := z.sessionsMade() - made; n != 1 { // the library does not make one by itself
				t.Errorf("%d sessions were made", n)
			}
			w.Take()
			must(a.Exists("/eph", w))(t)
		})
	}
	if a.Session() == first {
		t.Error("no new session")
	}
}

func awaitKind(t *testing.T, w *Watcher, kind EventKind) {
	t.Helper()
	for timeout := time.After(10 * time.Second); ; {
		select {
		case <-w.Wake():
		case <-timeout:
			t.Fatalf("no event %s", kind)
		}
		if slices.ContainsFunc(w.Take(), func(e Event) bool { return e.Kind == kind }) {
			return
		}
	}
}

// Watches outlast a connection: what has changed meanwhile is told, once, also where answers to
// requests that were waiting come first.
func TestZooKeeperWatchesOutlastTheConnection(t *testing.T) {
	z := newZKServer(t)
	a, b := z.session("/w"), under{z.root.Session(), "/w"}
	defer a.Close()
	const n = 50
	var paths []string
	for i := range n {
		paths = append(paths, fmt.Sprintf("/n%d", i))
		must(a.Create(paths[i], nil, Persistent))(t)
	}
	w := NewWatcher()
	must(a.GetAll(paths, w))(t)
	must(a.GetAll(paths, w))(t) // takes part in the watches that are there
	_, err := a.Exists("/later", w)
	wantErr(t, err, ErrNoNode)
	if _, _, err := a.Children("/", w); err != nil {
		t.Fatal(err)
	}
	z.setDown(true)
	awaitKind(t, w, Disconnected)
	var reads sync.WaitGroup
	for range 20 { // their answers carry zxids that are beyond the changes
		reads.Go(func() {
			if _, err := a.Exists("/", nil); err != nil {
				t.Error(err)
			}
		})
	}
	var want []string
	for i, p := range paths {
		if i%2 == 0 {
			must(b.Set(p, []byte("changed"), 0))(t)
			want = append(want, "changed "+p)
		}
	}
	must(b.Create("/later", nil, Persistent))(t)
	want = append(want, "created /later", "children changed /", "connected ")
	z.setDown(false)
	reads.Wait()
	got := awaitEvents(t, w, len(want))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	must(b.Set(paths[0], nil, 1))(t) // it has fired
	must(b.Set(paths[1], nil, 0))(t)
	if got, want := awaitEvents(t, w, 1), []string{"changed " + paths[1]}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

// The place from which a server looks for changes is the one at which the client connected.
func TestZooKeeperWirePatchesThePlace(t *testing.T) {
	var sent bytes.Buffer
	c := &zkWire{Conn: recorder{Buffer: &sent}}
	hello := binary.BigEndian.AppendUint64(make([]byte, zkConnectZxid, 64), 7)
	c.Write(hello)
	watches := binary.BigEndian.AppendUint64([]byte{0, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0, zkSetWatches}, 99)
	c.Write(watches)
	other := binary.BigEndian.AppendUint64([]byte{0, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0, zkGetData}, 99)
	c.Write(other)
	want := slices.Concat(hello, binary.BigEndian.AppendUint64(slices.Clone(watches[:zkWatchesZxid]), 7), other)
	if !bytes.Equal(sent.Bytes(), want) {
		t.Errorf("sent %x\nwant %x", sent.Bytes(), want)
	}
}

type recorder struct {
	net.Conn
	*bytes.Buffer
}

func (r recorder) Write(p []byte) (int, error)     { return r.Buffer.Write(p) }
func (r recorder) Read(p []byte) (int, error)      { return r.Buffer.Read(p) }
func (r recorder) SetReadDeadline(time.Time) error { return nil }

func TestZooKeeperConnectStrings(t *testing.T) {
	for s, want := range map[string]struct {
		hosts  []string
		chroot string
	}{
		"a":                   {[]string{"a:2181"}, ""},
		"a:1":                 {[]string{"a:1"}, ""},
		"a:1,b, c:3/kafka/x":  {[]string{"a:1", "b:2181", "c:3"}, "/kafka/x"},
		"a:1/":                {[]string{"a:1"}, ""},
		"[::1]:4,::1/k":       {[]string{"[::1]:4", "[::1]:2181"}, "/k"},
		"127.0.0.1:2181/k/":   {[]string{"127.0.0.1:2181"}, "/k"},
		"zk-0.zk.svc:2181/ä1": {[]string{"zk-0.zk.svc:2181"}, "/ä1"},
	} {
		hosts, chroot, err := parseConnect(s)
		if err != nil || !reflect.DeepEqual(hosts, want.hosts) || chroot != want.chroot {
			t.Errorf("%s: %v %q %v, want %v", s, hosts, chroot, err, want)
		}
	}
	for _, s := range []string{"", ",", "a:1,", "a:x", "a:70000", ":2181", "/kafka", "a:1//x", "a:1/x/../y", "a b:1"} {
		if hosts, chroot, err := parseConnect(s); !errors.Is(err, ErrBadPath) {
			t.Errorf("%q: %v %q %v, want an error", s, hosts, chroot, err)
		}
	}
}

func TestZooKeeperRefusesWhatIsTooLong(t *testing.T) {
	z := newZKServer(t)
	a := z.session("")
	defer a.Close()
	_, err := a.Create("/big", make([]byte, JuteMaxBuffer), Persistent)
	wantErr(t, err, ErrTooLarge)
	if !strings.Contains(err.Error(), "/big") {
		t.Errorf("%v does not name the node", err)
	}
	must(a.Create("/big", make([]byte, a.MultiLimit()-200), Persistent))(t) // it goes on, and takes what it says
}

func TestZooKeeperWithoutServer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	_, err = OpenZooKeeper(ZooKeeperOptions{Connect: address, Patience: 50 * time.Millisecond})
	wantErr(t, err, ErrConnectionLoss)
	if !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v does not say what is wrong", err)
	}
}

// A server that accepts and says nothing is left for another one after a session timeout.
func TestZooKeeperSilentServer(t *testing.T) {
	z := newZKServer(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	o := z.connect("")
	o.Connect += "," + o.Connect                                       // two servers, so that the second one is tried at once
	o.SessionTimeout, o.Patience = 600*time.Millisecond, 2*time.Second // the library alone would wait for 4 s
	first := true
	o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
		if first {
			first, address = false, silent.Addr().String()
		}
		return z.dial(ctx, address)
	}
	tree := must(OpenZooKeeper(o))(t)
	tree.Close()
}

// A connection that comes and goes does not fill the queue of who does not take.
func TestWatcherKeepsTheLastState(t *testing.T) {
	w := NewWatcher()
	w.add(Event{Kind: NodeChanged, Path: "/a"})
	for range 10 {
		w.addState(Event{Kind: Disconnected})
		w.addState(Event{Kind: Connected})
	}
	w.addState(Event{Kind: Expired})
	w.addState(Event{Kind: Connected})
	if got, want := w.Take(), []Event{{Kind: NodeChanged, Path: "/a"}, {Kind: Connected}, {Kind: Expired}, {Kind: Connected}}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

// A call gives up after Patience, and the next one works when the server is there again.
func TestZooKeeperPatience(t *testing.T) {
	z := newZKServer(t)
	o := z.connect("")
	o.Patience = 100 * time.Millisecond
	tree := must(OpenZooKeeper(o))(t)
	defer tree.Close()
	w := NewWatcher()
	must(tree.Exists("/", w))(t)
	z.setDown(true)
	awaitKind(t, w, Disconnected)
	_, err := tree.Exists("/", nil)
	wantErr(t, err, ErrConnectionLoss)
	_, err = tree.Create("/x", nil, Persistent)
	wantErr(t, err, ErrConnectionLoss)
	z.setDown(false)
	awaitKind(t, w, Connected)
	must(tree.Create("/x", nil, Persistent))(t)
}

// Renew without a server is tried again by who hears Expired.
func TestZooKeeperRenewWithoutServer(t *testing.T) {
	z := newZKServer(t)
	o := z.connect("")
	o.Patience = 100 * time.Millisecond
	tree := must(OpenZooKeeper(o))(t)
	defer tree.Close()
	w := NewWatcher()
	must(tree.Exists("/", w))(t)
	z.expire(tree.Session())
	awaitKind(t, w, Expired)
	z.setDown(true)
	wantErr(t, tree.Renew(), ErrConnectionLoss)
	awaitKind(t, w, Expired)
	z.setDown(false)
	if err := tree.Renew(); err != nil {
		t.Fatal(err)
	}
	awaitKind(t, w, Connected)
	must(tree.Exists("/", nil))(t)
}

func TestZooKeeperCloseLeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	z := newZKServer(t)
	for _, down := range []bool{false, true} {
		a := z.session("")
		w := NewWatcher()
		must(a.Exists("/", w))(t)
		if down {
			z.setDown(true)
			awaitKind(t, w, Disconnected)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		awaitKind(t, w, Lost)
		z.setDown(false)
	}
	z.mu.Lock()
	n := len(z.sessions)
	z.mu.Unlock()
	if n != 1 { // the one that could not be told
		t.Errorf("%d sessions left", n)
	}
	z.mu.Lock()
	z.closed = true
	z.mu.Unlock()
	z.ln.Close()
	z.drop()
	z.wg.Wait()
	goleak.VerifyNone(t, before)
}
