package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	largeOnly  = flag.Bool("large", false, "measure many partitions and a large log, and nothing else; rows of what was measured")
	partitions = flag.Int("partitions", 10_000, "partitions of the topic with many")
	gigabytes  = flag.Int("gigabytes", 10, "size of the large log, which is a sparse file")
	rest       = flag.Duration("rest", 40*time.Second, "how long the partitions rest before memory and files are counted")
)

// large measures creation, a record in each partition, memory and open files at rest, and the time until the broker is
// ready again after a clean stop and after kill -9.
func large(name string, command []string) (string, error) {
	work, err := os.MkdirTemp("", "ottla-bench-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	t := &table{name: name, command: command}
	err = t.manyPartitions(context.Background(), filepath.Join(work, "many"))
	if err == nil {
		err = t.largeLog(context.Background(), filepath.Join(work, "large"))
	}
	return strings.TrimSuffix(t.rows.String(), "\n"), err
}

// table has the rows of one broker.
type table struct {
	name    string
	command []string
	rows    bytes.Buffer
}

func (t *table) row(what, measured string, args ...any) {
	fmt.Fprintf(&t.rows, "| %s | %s | %s |\n", t.name, fmt.Sprintf(what, args...), measured)
}

func client(b *broker) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

// value is a row of one number, of which pivot can make a median.
func (t *table) value(v float64, what string, args ...any) {
	prec := 2
	if v >= 100 {
		prec = 0
	}
	t.row(what, strconv.FormatFloat(v, 'f', prec, 64), args...)
}

func (t *table) manyPartitions(ctx context.Context, dir string) (err error) {
	b, err := start(t.command, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	cl, err := client(b)
	if err != nil {
		return err
	}
	defer cl.Close()
	begun := time.Now()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, int32(*partitions), 1, nil, "many"); err != nil {
		return err
	}
	t.row("%d partitions created by one CreateTopics", since(begun), *partitions)
	begun = time.Now()
	if err := writeEach(ctx, cl); err != nil {
		return err
	}
	t.row("a record written to each", since(begun))
	time.Sleep(*rest)
	memory, err := resident(b.cmd.Process.Pid)
	if err != nil {
		return err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.cmd.Process.Pid))
	if err != nil {
		return err
	}
	t.row("resident, open files after %s of rest", fmt.Sprintf("%.0f MiB, %d", memory, len(files)), *rest)
	for _, end := range []struct {
		name string
		stop func(*broker) error
	}{{"a clean stop", (*broker).stop}, {"kill -9", (*broker).kill}} {
		var took []time.Duration
		for range *rounds {
			if err := b.write(ctx); err != nil { // after kill -9 it has to be checked
				return err
			}
			if err := end.stop(b); err != nil {
				return err
			}
			again, err := start(t.command, dir)
			if err != nil {
				return err
			}
			b = again
			took = append(took, b.took)
		}
		t.row("ready after %s: best/median, ms", bestMedian(took), end.name)
	}
	return nil
}

// write writes a record to each of the many partitions.
func (b *broker) write(ctx context.Context) error {
	cl, err := client(b)
	if err != nil {
		return err
	}
	defer cl.Close()
	return writeEach(ctx, cl)
}

func (b *broker) kill() error {
	b.cmd.Process.Kill()
	b.cmd.Wait()
	return nil
}

func since(t time.Time) string { return fmt.Sprintf("%d ms", time.Since(t).Milliseconds()) }

func writeEach(ctx context.Context, cl *kgo.Client) error {
	var first error
	for p := range *partitions {
		cl.Produce(ctx, &kgo.Record{Topic: "many", Partition: int32(p), Value: make([]byte, 100)}, func(_ *kgo.Record, err error) {
			if err != nil {
				first = err
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	return first
}

// largeLog makes a log of many gigabytes, flushed up to almost its end, and starts on it after kill -9.
func (t *table) largeLog(ctx context.Context, dir string) (err error) {
	b, err := start(t.command, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	cl, err := client(b)
	if err != nil {
		return err
	}
	_, err = kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "large")
	if err == nil {
		err = cl.ProduceSync(ctx, &kgo.Record{Topic: "large", Value: []byte("first")}).FirstErr()
	}
	cl.Close()
	if err := errors.Join(err, b.stop()); err != nil {
		return err
	}
	end, err := sparseSegments(filepath.Join(dir, "large-0"))
	if err != nil {
		return err
	}
	points := fmt.Sprintf("0\n1\nlarge 0 %d\n", end)
	if err := os.WriteFile(filepath.Join(dir, "recovery-point-offset-checkpoint"), []byte(points), 0o644); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, ".kafka_cleanshutdown")); err != nil {
		return err
	}
	var took []time.Duration
	for round := range *rounds {
		if b, err = start(t.command, dir); err != nil {
			return err
		}
		took = append(took, b.took)
		if err := b.grow(ctx, end); err != nil {
			return err
		}
		if round < *rounds-1 {
			if err := b.kill(); err != nil {
				return err
			}
		}
	}
	t.row("a log of %d GB ready after kill -9, 90 MB more behind the recovery point each time: best/median, ms", bestMedian(took), *gigabytes)
	return nil
}

// grow looks that the large log is whole and writes 90 MB to it.
func (b *broker) grow(ctx context.Context, end int64) error {
	cl, err := client(b)
	if err != nil {
		return err
	}
	defer cl.Close()
	listed, err := kadm.NewClient(cl).ListEndOffsets(ctx, "large")
	if err != nil {
		return err
	}
	if o, _ := listed.Lookup("large", 0); o.Err != nil || o.Offset < end {
		return fmt.Errorf("the large log ends at %d (%v), want %d or more", o.Offset, o.Err, end)
	}
	for range 100 {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "large", Value: make([]byte, 900_000)}).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// sparseSegments writes segments of one GB with one batch a MB, whose value is a hole, and returns the log's end.
func sparseSegments(dir string) (end int64, err error) {
	end = 1 // what the client wrote
	const batches, size = 1000, 1 << 20
	value := make([]byte, size)
	for range *gigabytes {
		name := filepath.Join(dir, fmt.Sprintf("%020d", end))
		f, err := os.Create(name + ".log")
		if err != nil {
			return 0, err
		}
		var index, times bytes.Buffer
		base := end
		for i := range batches {
			batch := sparseBatch(end, value[:size-100])
			if _, err := f.WriteAt(batch.head, int64(i)*int64(batch.size)); err != nil {
				return 0, err
			}
			binary.Write(&index, binary.BigEndian, []int32{int32(end - base), int32(i * batch.size)})
			if i == batches-1 {
				if err := f.Truncate(int64(batches) * int64(batch.size)); err != nil {
					return 0, err
				}
			}
			end++
		}
		binary.Write(&times, binary.BigEndian, int64(1))
		binary.Write(&times, binary.BigEndian, int32(0))
		for suffix, data := range map[string][]byte{".index": index.Bytes(), ".timeindex": times.Bytes()} {
			if err := os.WriteFile(name+suffix, data, 0o644); err != nil {
				return 0, err
			}
		}
		if err := f.Close(); err != nil {
			return 0, err
		}
	}
	return end, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type sparse struct {
	head []byte // the bytes that are not zero, from the beginning on
	size int    // of the batch
}

// sparseBatch is a batch of one record whose value is zeros: all that is not zero stands at its beginning, and one byte,
// the number of headers, is zero too.
func sparseBatch(offset int64, value []byte) sparse {
	rec := []byte{0, 0, 0}                            // attributes, timestamp delta, offset delta
	rec = binary.AppendVarint(rec, -1)                // no key
	rec = binary.AppendVarint(rec, int64(len(value))) // value
	length := len(rec) + len(value) + 1               // and no headers
	rec = append(binary.AppendVarint(nil, int64(length)), rec...)
	batch := kmsg.NewRecordBatch()
	batch.FirstOffset, batch.Magic = offset, 2
	batch.FirstTimestamp, batch.MaxTimestamp = 1, 1
	batch.ProducerID, batch.ProducerEpoch, batch.FirstSequence = -1, -1, -1
	batch.NumRecords = 1
	batch.Records = append(append(rec, value...), 0)
	batch.Length = int32(49 + len(batch.Records))
	all := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(all[17:], crc32.Checksum(all[21:], castagnoli))
	return sparse{head: all[:61+len(rec)], size: len(all)}
}
