package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"ottla/broker"
	"ottla/broker/config"

	"github.com/spf13/cobra"
)

// devClusterCommand is several brokers in this process, for development.
func devClusterCommand(out, errOut io.Writer) *cobra.Command {
	var o serveOptions
	brokers := 0
	cmd := &cobra.Command{
		Use:   "dev-cluster",
		Short: "Start a cluster of several brokers in one process, for development",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return devCluster(ctx, &o, brokers, out, errOut)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&brokers, "brokers", 3, "how many brokers")
	f.StringVar(&o.listen, "listen", "localhost:9092", "`address` of the first broker, host:port; the others have the ports behind it")
	f.StringVar(&o.dataDir, "data-dir", "./ottla-cluster", "keep data of all brokers in this `directory`")
	f.BoolVar(&o.inMemory, "in-memory", false, "keep everything in memory; it is gone when the cluster stops")
	f.StringArrayVar(&o.set, "set", nil, "set one setting of every broker: `name=value` (may be repeated)")
	f.StringVar(&o.logFormat, "log-format", "text", "form of the log: `text` or json")
	f.StringVar(&o.logLevel, "log-level", "info", "least `level` that is logged: debug, info, warn or error")
	return cmd
}

// devCluster runs a cluster until ctx ends.
func devCluster(ctx context.Context, o *serveOptions, brokers int, out, errOut io.Writer) error {
	if brokers < 1 {
		return fmt.Errorf("--brokers %d: allowed are 1 and more", brokers)
	}
	settings := map[string]string{}
	for _, s := range o.set {
		name, value, err := config.ParseAssignment(s)
		if err != nil {
			return fmt.Errorf("--set: %w", err)
		}
		settings[name] = value
	}
	logger, level, err := o.logger(errOut)
	if err != nil {
		return err
	}
	dir := o.dataDir
	if o.inMemory {
		dir = ""
	}
	c, err := broker.NewCluster(broker.ClusterOptions{
		Brokers: brokers, Listen: o.listen, Dir: dir,
		Options: broker.Options{Settings: settings, Logger: logger, Level: level, Version: version},
	})
	if err != nil {
		return err
	}
	where := ""
	if dir != "" {
		where = "data in " + dir + ", "
	}
	var addrs []string
	for _, a := range c.Addrs() {
		addrs = append(addrs, "PLAINTEXT://"+a)
	}
	fmt.Fprintf(out, "ottla is ready on %s (%scluster of %d brokers, %d ms)\n", strings.Join(addrs, ", "), where, brokers, time.Since(start).Milliseconds())
	return errors.Join(c.Wait(ctx), c.Close())
}
