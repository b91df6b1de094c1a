// Command kfake is franz-go's fake cluster as a broker of its own process, to compare with: one
// broker that keeps its data in a directory and never syncs it. It is a module of its own, so
// that ottla depends on nothing for it.
//
//	kfake PORT DIR
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kfake:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("two arguments are wanted: PORT DIR")
	}
	port, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(args[1]), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(1))
	if err != nil {
		return err
	}
	<-stop
	c.Close()
	return nil
}
