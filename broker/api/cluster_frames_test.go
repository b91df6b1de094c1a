package api

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"ottla/broker/config"
	"ottla/broker/controller"
	"ottla/compat"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// heard is a broker that keeps what a controller has said last.
type heard struct {
	lead   *controller.LeaderAndIsr
	update *controller.UpdateMetadata
	stop   *controller.StopReplica
	fail   []controller.PartitionError
	err    error
}

func (h *heard) LeaderAndIsr(_ context.Context, r *controller.LeaderAndIsr) ([]controller.PartitionError, error) {
	h.lead = r
	return h.fail, h.err
}

func (h *heard) UpdateMetadata(_ context.Context, r *controller.UpdateMetadata) error {
	h.update = r
	return h.err
}

func (h *heard) StopReplica(_ context.Context, r *controller.StopReplica) ([]controller.PartitionError, error) {
	h.stop = r
	return h.fail, h.err
}

// recorded is the part of a recorded request that all three have.
type recorded struct {
	ControllerID    int32 `json:"controllerId"`
	ControllerEpoch int32 `json:"controllerEpoch"`
	BrokerEpoch     int64 `json:"brokerEpoch"`
	TopicStates     []struct {
		TopicName       string `json:"topicName"`
		PartitionStates []struct {
			Partition       int32   `json:"partitionIndex"`
			Leader          int32   `json:"leader"`
			LeaderEpoch     int32   `json:"leaderEpoch"`
			ISR             []int32 `json:"isr"`
			DeletePartition bool    `json:"deletePartition"`
		} `json:"partitionStates"`
	} `json:"topicStates"`
}

// TestControllersRequests: what the controller of Kafka 3.9.1 says is heard as it was meant. testdata has
// requests that 3.9.1 brokers on ZooKeeper sent each other, with what Kafka's own code reads in them.
func TestControllersRequests(t *testing.T) {
	f, err := os.Open("testdata/inter-broker-3.9.1.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := &heard{}
	s := bare(clusterRoutes()...)
	s.Own = h
	if s.Config, err = config.New(config.Options{}); err != nil {
		t.Fatal(err)
	}
	seen := 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			API     string   `json:"api"`
			Request string   `json:"request"`
			Decoded recorded `json:"decoded"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		frame, _ := hex.DecodeString(line.Request)
		*h = heard{}
		var fence controller.Fence
		var got []controller.PartitionState
		switch line.API {
		case compat.LeaderAndIsr.Name, compat.UpdateMetadata.Name, compat.StopReplica.Name:
		default:
			continue
		}
		if _, err := peerOf(s).Handle(t.Context(), frame); err != nil {
			t.Fatalf("%s: %v", line.API, err)
		}
		switch {
		case h.lead != nil:
			fence, got = h.lead.Fence, h.lead.Partitions
		case h.update != nil:
			fence, got = h.update.Fence, h.update.Partitions
		case h.stop != nil:
			fence = h.stop.Fence
			for _, p := range h.stop.Partitions {
				got = append(got, controller.PartitionState{Topic: p.Topic, Partition: p.Partition, LeaderEpoch: p.LeaderEpoch, New: p.Delete})
			}
		}
		want := line.Decoded
		if fence.ControllerID != want.ControllerID || fence.ControllerEpoch != want.ControllerEpoch || fence.BrokerEpoch != want.BrokerEpoch {
			t.Errorf("%s: fence %+v, recorded %+v", line.API, fence, want)
		}
		for _, topic := range want.TopicStates {
			for _, p := range topic.PartitionStates {
				if len(got) == 0 {
					t.Fatalf("%s: too few partitions", line.API)
				}
				if g := got[0]; g.Topic != topic.TopicName || g.Partition != p.Partition || g.Leader != p.Leader || g.LeaderEpoch != p.LeaderEpoch || len(g.ISR) != len(p.ISR) || line.API == "StopReplica" && g.New != p.DeletePartition {
					t.Errorf("%s: got %+v, recorded %+v", line.API, g, p)
				}
				got = got[1:]
			}
		}
		seen++
	}
	if seen < 6 {
		t.Errorf("only %d requests were there", seen)
	}
}

// TestControllersRequestsRefused: errors have their codes, of the whole and of single partitions.
func TestControllersRequestsRefused(t *testing.T) {
	h := &heard{err: controller.ErrStaleControllerEpoch}
	s := bare(clusterRoutes()...)
	s.Own = h
	var err error
	if s.Config, err = config.New(config.Options{}); err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrStopReplicaRequest()
	req.Version = 3
	topic := kmsg.NewStopReplicaRequestTopic()
	topic.Topic = "t"
	for n := range int32(2) {
		p := kmsg.NewStopReplicaRequestTopicPartitionState()
		p.Partition = n
		topic.PartitionStates = append(topic.PartitionStates, p)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := s.stopReplica(t.Context(), peerOf(s), req)
	if err != nil || resp.ErrorCode != kerr.StaleControllerEpoch.Code {
		t.Errorf("%+v, %v", resp, err)
	}
	*h = heard{fail: []controller.PartitionError{{Topic: "t", Partition: 1, Err: errors.Join(controller.ErrReplicaStorage)}}}
	resp, err = s.stopReplica(t.Context(), peerOf(s), req)
	if err != nil || resp.ErrorCode != 0 || len(resp.Partitions) != 2 || resp.Partitions[0].ErrorCode != 0 || resp.Partitions[1].ErrorCode != kerr.KafkaStorageError.Code {
		t.Errorf("%+v, %v", resp, err)
	}
}
