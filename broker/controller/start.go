package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ottla/broker/registry"
	"ottla/compat"
)

// Start registers the broker, stands for election, and if it wins takes over: loads the tree,
// gives every partition a leader where it can, tells the brokers. On an embedded root all of it
// is one transaction. When it returns, this broker leads what it has to and knows the picture,
// if it is the controller. Errors: the registry's.
func (c *Controller) Start(ctx context.Context) error {
	c.ctx = ctx
	if err := c.awaitID(ctx); err != nil {
		return fmt.Errorf("register broker %d: %w", c.o.BrokerID, err)
	}
	err := c.tree.Group(func(t registry.Tree) error {
		if err := c.join(t); err != nil {
			return err
		}
		return c.stand(t)
	})
	if err != nil {
		c.state = nil
		return fmt.Errorf("register broker %d: %w", c.o.BrokerID, err)
	}
	return c.flush(ctx)
}

// awaitID waits for the end of a registration of this id by another session, see JoinPatience. If it
// does not end, join says so.
func (c *Controller) awaitID(ctx context.Context) error {
	if c.o.JoinPatience <= 0 {
		return nil
	}
	late := time.NewTimer(c.o.JoinPatience)
	defer late.Stop()
	w := registry.NewWatcher()
	for said := false; ; {
		st, err := c.tree.Exists(compat.PathBroker(c.o.BrokerID), w)
		switch {
		case errors.Is(err, registry.ErrNoNode), err == nil && st.EphemeralOwner == c.tree.Session():
			return nil
		case err != nil:
			return err
		case !said:
			said = true
			c.log.Warn("the broker's id is registered by another session, as after a kill; waiting for that to end",
				"broker", c.o.BrokerID, "session", fmt.Sprintf("%#x", st.EphemeralOwner), "patience", c.o.JoinPatience)
		}
		select {
		case <-w.Wake():
			w.Take()
		case <-late.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Controller) join(t registry.Tree) error {
	node := c.o.Registration()
	node.Timestamp = c.o.Now().UnixMilli()
	epoch, err := registry.Join(t, c.o.BrokerID, node)
	if err == nil {
		c.brokerEpoch.Store(epoch)
	}
	return err
}
