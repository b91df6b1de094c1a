package broker

import (
	"context"
	"fmt"
	"time"

	"ottla/coordinator"
	"ottla/coordinator/txn"
)

// enroller reaches the coordinator of a transactional id, on whichever broker it is.
type enroller struct{ b *Broker }

// where is who coordinates a transactional id; -1: nobody for now.
func (e enroller) where(id string) int32 {
	if p := e.b.meta.Load().Partition(txn.Topic, e.b.txns.PartitionFor(id)); p != nil {
		return p.Leader
	}
	return -1
}

func (e enroller) ask(ctx context.Context, r txn.AddRequest, add bool) ([]error, error) {
	at := e.where(r.ID)
	if at < 0 {
		return nil, fmt.Errorf("%w: transactional id %s", coordinator.ErrNotAvailable, r.ID)
	}
	errs, err := e.b.members.Enroll(ctx, at, r, add)
	if err != nil {
		return nil, fmt.Errorf("%w: broker %d: %w", coordinator.ErrNotAvailable, at, err)
	}
	return errs, nil
}

// Add implements api.Enroller.
func (e enroller) Add(ctx context.Context, r txn.AddRequest) error {
	if e.where(r.ID) == e.b.config.Broker().ID {
		return e.b.txns.Add(ctx, r)
	}
	errs, err := e.ask(ctx, r, true)
	for _, one := range errs {
		if err == nil {
			err = one
		}
	}
	return err
}

// Verify implements api.Enroller.
func (e enroller) Verify(ctx context.Context, r txn.AddRequest) ([]error, error) {
	if e.where(r.ID) == e.b.config.Broker().ID {
		return e.b.txns.Verify(ctx, r)
	}
	return e.ask(ctx, r, false)
}

// askAgain is the pause before another broker's coordinator is asked again (the back-off of Kafka's
// AddPartitionsToTxnManager).
const askAgain = 20 * time.Millisecond

// Await implements api.Enroller.
func (e enroller) Await(ctx context.Context, id string, most time.Duration) error {
	if e.where(id) == e.b.config.Broker().ID {
		return e.b.txns.Await(ctx, id, most)
	}
	t := time.NewTimer(min(most, askAgain))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
