package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ottla/broker/api"
	"ottla/broker/config"
	"ottla/broker/replica"
	"ottla/compat"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"
	"ottla/log"

	"github.com/prometheus/client_golang/prometheus"
)

// txnOptions are the settings of transactions that are in force.
func txnOptions(c *config.Store) *txn.Options {
	b := c.Broker()
	return &txn.Options{
		MaxTimeout:   ms(b.TransactionMaxTimeoutMs),
		Expiration:   ms(b.TransactionalIDExpirationMs),
		SweepEvery:   ms(b.TransactionRemoveExpiredTransactionCleanupIntervalMs),
		Patience:     ms(b.AddPartitionsToTxnRetryBackoffMaxMs),
		Partitions:   int32(b.TransactionStateLogNumPartitions),
		Replication:  int16(b.TransactionStateLogReplicationFactor),
		MinISR:       b.TransactionStateLogMinISR,
		SegmentBytes: b.TransactionStateLogSegmentBytes,
		BatchBytes:   int(c.Topic(txn.Topic).Log.MaxMessageBytes),
	}
}

// txnConfig is what the transaction coordinator is made from.
func txnConfig(b *Broker, ids *api.ProducerIDs, reg prometheus.Registerer) txn.Config {
	return txn.Config{
		Store:       shardStore{b, txn.Topic},
		Topics:      topicMaker{b},
		Markers:     markers{b},
		ProducerIDs: ids.Next,
		Options: kept(func() coordinated {
			return coordinated{b.config.Broker(), b.config.Topic(txn.Topic), b.feature(compat.TransactionVersion)}
		}, func() *txn.Options {
			o := txnOptions(b.config)
			o.Version = b.feature(compat.TransactionVersion)
			return o
		}),
		Partitions: b.partitionsOf(txn.Topic),
		Now:        b.opts.Now, Logger: b.log, Registerer: reg,
	}
}

// partitionsOf counts the partitions of a topic, 0 where there is none.
func (b *Broker) partitionsOf(topic string) func() int32 {
	return func() int32 {
		if t := b.meta.Load().Topics[topic]; t != nil {
			return int32(len(t.Partitions))
		}
		return 0
	}
}

// markers writes the markers of transactions to their partitions, here and on other brokers.
type markers struct{ b *Broker }

func (w markers) WriteMarker(ctx context.Context, m txn.Marker) []error {
	errs := w.write(ctx, m)
	for i, err := range errs {
		errs[i] = w.meaning(m, m.Partitions[i], err)
	}
	return errs
}

// write brings a marker to the leaders of its partitions, to all at once.
func (w markers) write(ctx context.Context, m txn.Marker) []error {
	if !w.b.clustered() {
		return w.b.api.WriteMarker(ctx, m)
	}
	ctx, cancel := context.WithTimeout(ctx, markerPatience)
	defer cancel()
	self := w.b.config.Broker().ID
	pic := w.b.meta.Load()
	by := map[int32][]int{} // by leader, the places in m
	for i, p := range m.Partitions {
		leader := self // who has no leader, or is not known, is judged here
		if part := pic.Partition(p.Topic, p.Number); part != nil && part.Leader >= 0 {
			leader = part.Leader
		}
		by[leader] = append(by[leader], i)
	}
	errs := make([]error, len(m.Partitions))
	var all sync.WaitGroup
	for leader, places := range by {
		all.Go(func() {
			part := m
			part.Partitions = make([]txn.Partition, len(places))
			for i, at := range places {
				part.Partitions[i] = m.Partitions[at]
			}
			var got []error
			if leader == self {
				got = w.b.api.WriteMarker(ctx, part)
			} else {
				got = w.b.members.WriteMarker(ctx, leader, part)
			}
			for i, at := range places {
				errs[at] = got[i]
			}
		})
	}
	all.Wait()
	return errs
}

// markerPatience is how long a marker's way to another broker, and its replicas, are waited for before
// it is written again (request.timeout.ms).
const markerPatience = 30 * time.Second

// meaning says what an error of a partition means to the transaction.
func (w markers) meaning(m txn.Marker, p txn.Partition, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, log.ErrCoordinatorFenced):
		return fmt.Errorf("%w: %w", txn.ErrCoordinatorFenced, err)
	case errors.Is(err, log.ErrInvalidProducerEpoch), errors.Is(err, group.ErrStaleMarker):
		return fmt.Errorf("%w: %w", txn.ErrMarkerRefused, err)
	case errors.Is(err, replica.ErrUnknownPartition) && w.gone(m, p):
		return nil
	}
	return err
}

// gone tells that a partition is deleted. It is not enough that the picture does not have it: at a
// start that may not be there yet. But a picture with this coordinator's own lead in it has every
// topic of then, and markers are only owed to topics that were there before.
func (w markers) gone(m txn.Marker, p txn.Partition) bool {
	pic := w.b.meta.Load()
	if pic.Partition(p.Topic, p.Number) != nil {
		return false
	}
	t := pic.Topics[txn.Topic]
	if t == nil {
		return false
	}
	for i := range t.Partitions {
		if s := &t.Partitions[i]; s.Leader == w.b.config.Broker().ID && s.LeaderEpoch >= m.CoordinatorEpoch {
			return true
		}
	}
	return false
}
