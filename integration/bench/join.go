package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// classic is a member of a classic group.
type classic struct {
	*wire
	group, id  string
	generation int32
	assigned   []byte
}

// settle joins and syncs, again while the group wants it, until the member has an assignment. As the leader it
// hands one out to each, in the order of the members.
func (m *classic) settle(assignments []string) error {
	for {
		code, err := m.rejoin(assignments)
		if err != nil {
			return err
		}
		switch code {
		case 0:
			return nil
		case kerr.RebalanceInProgress.Code, kerr.IllegalGeneration.Code:
		case kerr.CoordinatorLoadInProgress.Code, kerr.NotCoordinator.Code, kerr.CoordinatorNotAvailable.Code:
			time.Sleep(10 * time.Millisecond)
		default:
			return fmt.Errorf("member of %s: %w", m.group, kerr.ErrorForCode(code))
		}
	}
}

func (m *classic) rejoin(assignments []string) (int16, error) {
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.MemberID, join.ProtocolType = 7, m.group, m.id, "bench"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 45_000, 300_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "own", bytes.Repeat([]byte{1}, 50)
	join.Protocols = append(join.Protocols, p)
	joined, err := answered[*kmsg.JoinGroupResponse](m.wire, join)
	if err != nil {
		return 0, err
	}
	if joined.ErrorCode == kerr.MemberIDRequired.Code {
		m.id, join.MemberID = joined.MemberID, joined.MemberID
		if joined, err = answered[*kmsg.JoinGroupResponse](m.wire, join); err != nil {
			return 0, err
		}
	}
	if joined.ErrorCode != 0 {
		return joined.ErrorCode, nil
	}
	m.id, m.generation = joined.MemberID, joined.Generation
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 5, m.group, m.id, m.generation
	sync.ProtocolType, sync.Protocol = joined.ProtocolType, joined.Protocol
	if joined.LeaderID == m.id {
		for i, is := range joined.Members {
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID = is.MemberID
			a.MemberAssignment = []byte(assignments[min(i, len(assignments)-1)])
			sync.GroupAssignment = append(sync.GroupAssignment, a)
		}
	}
	synced, err := answered[*kmsg.SyncGroupResponse](m.wire, sync)
	if err != nil {
		return 0, err
	}
	m.assigned = synced.MemberAssignment
	return synced.ErrorCode, nil
}

func (m *classic) heartbeat() (int16, error) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 4, m.group, m.id, m.generation
	resp, err := answered[*kmsg.HeartbeatResponse](m.wire, req)
	if err != nil {
		return 0, err
	}
	return resp.ErrorCode, nil
}

// settled follows what many members have, and tells when all have what they keep.
type settled struct {
	begun time.Time
	took  time.Duration // once done is closed
	done  chan struct{} // closed when all are in one epoch and have what is theirs

	mu    sync.Mutex
	epoch []int32 // of each member; 0: none yet, or it lacks something
}

func newSettled(n int) *settled {
	return &settled{begun: time.Now(), epoch: make([]int32, n), done: make(chan struct{})}
}

// is takes in which epoch a member is; whole: it has all that is its share.
func (s *settled) is(member int, epoch int32, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !whole {
		epoch = 0
	}
	s.epoch[member] = epoch
	if s.took > 0 || epoch == 0 || slices.ContainsFunc(s.epoch, func(other int32) bool { return other != epoch }) {
		return
	}
	s.took = time.Since(s.begun)
	close(s.done)
}

// heartbeatEvery is what clients of the classic protocol do by default.
const heartbeatEvery = 3 * time.Second

// classicJoin has many members join one group at one time, and tells when the last has its assignment of a generation
// that has all of them.
func (b *broker) classicJoin(w *wire) (time.Duration, error) {
	n := *members
	const group = "large-classic"
	if err := findCoordinator(w, 0, group); err != nil {
		return 0, err
	}
	assignments := make([]string, n)
	for i := range assignments {
		assignments[i] = fmt.Sprintf("%d", i)
	}
	wires, err := dials(b.addr, n)
	if err != nil {
		return 0, err
	}
	s := newSettled(n)
	err = each(n, func(i int) error {
		m := &classic{wire: wires[i], group: group}
		defer m.close()
		for {
			if err := m.settle(assignments); err != nil {
				return err
			}
			s.is(i, m.generation, len(m.assigned) > 0)
			for {
				select {
				case <-s.done:
					return nil
				case <-time.After(heartbeatEvery):
				}
				code, err := m.heartbeat()
				if err != nil {
					return err
				}
				if code == kerr.RebalanceInProgress.Code || code == kerr.IllegalGeneration.Code {
					break
				}
				if code != 0 {
					return kerr.ErrorForCode(code)
				}
			}
		}
	})
	return s.took, err
}

// dials opens connections, no faster than they are accepted: one that finds the listener's queue full takes a second more.
func dials(addr string, n int) ([]*wire, error) {
	all := make([]*wire, n)
	for i := range all {
		w, err := dial(addr)
		if err == nil {
			err = ask(w.conn)
		}
		if err != nil {
			return nil, err
		}
		all[i] = w
	}
	return all, nil
}

// consumerJoin is the same with the consumer protocol (KIP-848): each member sends heartbeats as Java's does, at
// once after it has taken or given up partitions, else when the interval is over.
func (b *broker) consumerJoin(w *wire) (time.Duration, error) {
	n := *members
	const group = "large-consumer"
	if err := findCoordinator(w, 0, group); err != nil {
		return 0, err
	}
	wires, err := dials(b.addr, n)
	if err != nil {
		return 0, err
	}
	s := newSettled(n)
	err = each(n, func(i int) error {
		w := wires[i]
		defer w.close()
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Version, req.Group, req.MemberID, req.RebalanceTimeoutMillis = 1, group, fmt.Sprintf("member-%d", i), 300_000
		req.SubscribedTopicNames, req.Topics = []string{groupTopic}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		owned := 0
		for {
			resp, err := answered[*kmsg.ConsumerGroupHeartbeatResponse](w, req)
			switch {
			case err != nil:
				return err
			case again(resp.ErrorCode):
				time.Sleep(10 * time.Millisecond)
				continue
			case resp.ErrorCode != 0:
				return errors.Join(kerr.ErrorForCode(resp.ErrorCode), fmt.Errorf("heartbeat of member %d: %v", i, resp.ErrorMessage))
			}
			if resp.MemberID != nil {
				req.MemberID = *resp.MemberID
			}
			req.MemberEpoch, req.RebalanceTimeoutMillis, req.SubscribedTopicNames, req.Topics = resp.MemberEpoch, -1, nil, nil
			wait := time.Duration(resp.HeartbeatIntervalMillis) * time.Millisecond
			if resp.Assignment != nil {
				req.Topics, owned = []kmsg.ConsumerGroupHeartbeatRequestTopic{}, 0
				for _, t := range resp.Assignment.Topics {
					own := kmsg.NewConsumerGroupHeartbeatRequestTopic()
					own.TopicID, own.Partitions = t.TopicID, t.Partitions
					req.Topics = append(req.Topics, own)
					owned += len(t.Partitions)
				}
				wait = 0
			}
			s.is(i, resp.MemberEpoch, owned == 2)
			select {
			case <-s.done:
				return nil
			case <-time.After(wait):
			}
		}
	})
	return s.took, err
}
