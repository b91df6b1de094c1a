package controller

import (
	"fmt"
	"path/filepath"
	"testing"

	"ottla/broker/registry"
)

func benchBroker(b *testing.B) *broker {
	tree := openFile(b, filepath.Join(b.TempDir(), "registry.db"))
	br := newBroker(1, tree, nil)
	stop := br.run(b)
	b.Cleanup(func() { stop(); tree.Close() })
	return br
}

func BenchmarkCreateTopic(b *testing.B) {
	br := benchBroker(b)
	for i := 0; b.Loop(); i++ {
		one(b, br.CreateTopics(b.Context(), []NewTopic{{Name: fmt.Sprint("t", i), Partitions: 1, Replication: 1}}, false))
	}
}

func BenchmarkCreate10000Partitions(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		br := benchBroker(b)
		b.StartTimer()
		one(b, br.CreateTopics(b.Context(), []NewTopic{{Name: "t", Partitions: 10000, Replication: 1}}, false))
	}
}

// Starting on a tree that has topics: one with 10,000 partitions, and an everyday one.
func BenchmarkStart(b *testing.B) {
	for _, n := range []int32{50, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "registry.db")
			start := func() (registry.Tree, *broker) {
				tree := openFile(b, path)
				br := newBroker(1, tree, nil)
				if err := br.Start(b.Context()); err != nil {
					b.Fatal(err)
				}
				return tree, br
			}
			tree := openFile(b, path)
			br := newBroker(1, tree, nil)
			stop := br.run(b)
			one(b, br.CreateTopics(b.Context(), []NewTopic{{Name: "t", Partitions: n, Replication: 1}}, false))
			stop()
			tree.Close()
			for b.Loop() {
				tree, _ := start()
				b.StopTimer()
				tree.Close()
				b.StartTimer()
			}
		})
	}
}
