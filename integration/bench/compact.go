package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	compaction = flag.Bool("compact", false, "measure compaction and nothing else; the row has its rate and what it costs")
	megabytes  = flag.Int("megabytes", 512, "size of the log that is compacted")
)

// compact fills a topic and has it compacted: it is one of cleanup.policy=delete until then, so that
// the whole log is cleaned in one round, from the change of the setting on.
func compact(name string, command []string) (string, error) {
	work, err := os.MkdirTemp("", "ottla-bench-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	var cells []string
	for _, size := range []int{100, 1024} {
		b, err := start(command, filepath.Join(work, fmt.Sprint(size)))
		if err != nil {
			return "", err
		}
		took, cpu, err := compactOnce(b, size)
		if err := errors.Join(err, b.stop()); err != nil {
			return "", err
		}
		gb := float64(*megabytes) / 1000
		cells = append(cells, fmt.Sprintf(" %.0f | %.2f |", float64(*megabytes)/took.Seconds(), cpu.Seconds()/gb))
	}
	return "| " + name + " |" + strings.Join(cells, ""), nil
}

func compactOnce(b *broker, size int) (took, cpu time.Duration, err error) {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.DefaultProduceTopic("compact"), kgo.ProducerBatchMaxBytes(64<<10),
		kgo.ProducerLinger(5*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return 0, 0, err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	set := func(name, value string) kadm.AlterConfig {
		return kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value}
	}
	answers, err := admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{set("log.cleaner.backoff.ms", "10")})
	if err == nil {
		for _, a := range answers {
			err = errors.Join(err, a.Err)
		}
	}
	if err != nil {
		return 0, 0, err
	}
	segment, ratio := "16777216", "0.001"
	if _, err := admin.CreateTopic(ctx, 1, 1, map[string]*string{"segment.bytes": &segment, "min.cleanable.dirty.ratio": &ratio}, "compact"); err != nil {
		return 0, 0, err
	}
	const keys = 10_000
	random := rand.New(rand.NewPCG(1, 2))
	var failed error
	for range *megabytes * 1_000_000 / size {
		key, value := make([]byte, 8), make([]byte, size-20)
		binary.BigEndian.PutUint64(key, random.Uint64N(keys))
		for i := 0; i+8 <= len(value); i += 8 {
			binary.BigEndian.PutUint64(value[i:], random.Uint64())
		}
		cl.Produce(ctx, &kgo.Record{Key: key, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err
			}
		})
	}
	if err := cl.Flush(ctx); err != nil || failed != nil {
		return 0, 0, errors.Join(err, failed)
	}
	before, err := spent(b.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	if _, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{set("cleanup.policy", "compact")}, "compact"); err != nil {
		return 0, 0, err
	}
	const active = 17 << 20                  // the last segment stays
	most := int64(active + 2*keys*(size+70)) // and a record a key
	for {
		dirs, err := admin.DescribeAllLogDirs(ctx, kadm.TopicsSet{"compact": {0: {}}})
		if err != nil {
			return 0, 0, err
		}
		took = time.Since(begun)
		var bytes int64
		dirs.Each(func(d kadm.DescribedLogDir) { bytes += d.Size() })
		if bytes > 0 && bytes < most {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	after, err := spent(b.cmd.Process.Pid)
	return took, after - before, err
}

// spent is the processor time of a process.
func spent(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data)[strings.LastIndexByte(string(data), ')')+1:])
	var ticks int64
	for _, f := range fields[11:13] {
		var n int64
		if _, err := fmt.Sscan(f, &n); err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100), nil
}
