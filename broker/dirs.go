package broker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"ottla/broker/controller"
	"ottla/broker/replica"
)

// dirFailed takes in that a log directory has failed. Its partitions go offline, and the others go
// on, unless none is left or the registry lies in it: then the broker ends, as Kafka's does without
// its metadata (ReplicaManager.handleLogDirFailure). It runs on the log manager's goroutine.
func (b *Broker) dirFailed(path string, _ error) {
	replicas := b.hosting.Load()
	if replicas == nil { // the start finds the logs offline by itself
		return
	}
	replicas.DirFailed(path)
	if err := b.dirsLeft(); err != nil {
		select {
		case b.lost <- err:
		default:
		}
	}
}

// dirsLeft is why the broker cannot go on with the log directories that work, nil if it can.
func (b *Broker) dirsLeft() error {
	registry := ""
	if !b.opts.InMemory && !b.clustered() {
		registry, _ = filepath.Abs(registryDir(b.config.Broker()))
	}
	var all []error
	dirs := b.logs.Dirs()
	for _, d := range dirs {
		if d.Err == nil {
			continue
		}
		if d.Path == registry {
			return fmt.Errorf("the directory with the registry has failed: %w", d.Err)
		}
		all = append(all, d.Err)
	}
	if len(all) == len(dirs) {
		return fmt.Errorf("all log directories have failed: %w", errors.Join(all...))
	}
	return nil
}

// lookAgain has the controller ask this broker for replicas once more.
func (b *Broker) lookAgain(ctx context.Context, partitions []replica.Key) {
	if b.clustered() && !b.controller.Active() {
		if err := b.controller.ReportLogDirs(ctx); err != nil && ctx.Err() == nil {
			b.log.Error("the controller does not know that a log directory has failed", "partitions", len(partitions), "err", err)
		}
		return
	}
	replicas := make([]controller.TopicPartition, len(partitions))
	for i, k := range partitions {
		replicas[i] = controller.TopicPartition{Topic: k.Topic, Partition: k.Partition}
	}
	if err := b.controller.LookAgain(ctx, replicas); err != nil && ctx.Err() == nil {
		b.log.Error("the controller does not know which replicas are offline", "partitions", len(partitions), "err", err)
	}
}
