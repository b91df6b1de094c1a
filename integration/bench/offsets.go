package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	offsetsOnly    = flag.Bool("offsets", false, "measure the loading of a partition of __consumer_offsets and nothing else; rows of what was measured")
	offsetRecords  = flag.Int("offset-records", 1_000_000, "records in it")
	offsetsAtATime = flag.Int("offset-batch", 100, "offsets that one commit has")
)

// offsets fills one partition of __consumer_offsets, with few keys and with as many as records, and measures a start
// on it. COMMAND must give the topic one partition (offsets.topic.num.partitions) and no cleaner (log.cleaner.enable).
func offsets(name string, command []string) (string, error) {
	work, err := os.MkdirTemp("", "ottla-bench-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	t := &table{name: name, command: command}
	for _, keys := range []int{1000, *offsetRecords} {
		if err = t.loadRows(filepath.Join(work, fmt.Sprint(keys)), keys); err != nil {
			break
		}
	}
	return strings.TrimSuffix(t.rows.String(), "\n"), err
}

// loadRows fills and restarts. The load is measured from the first answer of the broker until the group answers, and shown
// with what the broker itself has logged of it.
func (t *table) loadRows(dir string, keys int) (err error) {
	b, err := start(t.command, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	empty, err := resident(b.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := b.fillOffsets(keys); err != nil {
		return err
	}
	if err := b.stop(); err != nil {
		return err
	}
	if b, err = start(t.command, dir); err != nil {
		return err
	}
	begun := time.Now()
	w, err := dial(b.addr)
	if err != nil {
		return err
	}
	defer w.close()
	group := fmt.Sprintf("load-%d", (keys-1) / *offsetsAtATime)
	if err := retried(func() error { return fetchOffset(w, group) }); err != nil {
		return err
	}
	took := time.Since(begun)
	cpu, err := spent(b.cmd.Process.Pid)
	if err != nil {
		return err
	}
	memory, err := resident(b.cmd.Process.Pid)
	if err != nil {
		return err
	}
	time.Sleep(5 * time.Second)
	rested, err := resident(b.cmd.Process.Pid)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("load of %d offset records, %d keys", *offsetRecords, keys)
	t.value(took.Seconds(), "%s: from the broker's first answer until the group's, s", what)
	if own, ok := ownWord(dir); ok {
		t.value(own.Seconds(), "%s: by the broker's own log, s", what)
	}
	t.value(cpu.Seconds(), "%s: processor of the whole start, s", what)
	t.value(memory, "%s: resident at once, MiB", what)
	t.value(rested, "%s: resident after 5 s, MiB", what)
	t.value(empty, "%s: resident before there was any, MiB", what)
	return nil
}

// ownWord is what the last start has logged of how long the load took.
func ownWord(dir string) (time.Duration, bool) {
	for _, words := range [][]string{
		{"coordinator has loaded", "coordinator=group"},
		{"Finished loading of metadata from __consumer_offsets-0"},
	} {
		if line := logged(dir, words...); line != "" {
			took, err := time.ParseDuration(regexp.MustCompile(`[0-9.]+m?s\b`).FindString(line[strings.LastIndex(line, words[0]):]))
			return took, err == nil
		}
	}
	return 0, false
}

// fillOffsets commits until the log has its records: each commit is a group's for some partitions, and once there are
// as many keys as there shall be, they come again.
func (b *broker) fillOffsets(keys int) error {
	n := *offsetsAtATime
	if err := makeTopic(b.addr, groupTopic, int32(n)); err != nil {
		return err
	}
	partitions := make([]int32, n)
	for i := range partitions {
		partitions[i] = int32(i)
	}
	const conns = 16
	return each(conns, func(c int) error {
		w, err := dial(b.addr)
		if err != nil {
			return err
		}
		defer w.close()
		if err := findCoordinator(w, 0, "load-0"); err != nil {
			return err
		}
		for i := c; i < *offsetRecords/n; i += conns {
			req := commitOf(fmt.Sprintf("load-%d", i%(keys/n)), "", -1, groupTopic, partitions...)
			if err := retried(func() error { return committed(w, req) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// fetchOffset asks for an offset that must be there.
func fetchOffset(w *wire, group string) error {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 8
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.Partitions = groupTopic, []int32{0}
	g.Topics = append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	resp, err := answered[*kmsg.OffsetFetchResponse](w, req)
	if err != nil {
		return err
	}
	if is := resp.Groups[0]; is.ErrorCode != 0 {
		return kerr.ErrorForCode(is.ErrorCode)
	} else if p := is.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.Offset < 0 {
		return fmt.Errorf("group %s has no offset after the load: %+v", group, p)
	}
	return nil
}
