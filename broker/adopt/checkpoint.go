package adopt

import (
	"path/filepath"
	"strconv"
	"strings"

	"ottla/log/vfs"
)

const (
	cleanerFile = "cleaner-offset-checkpoint"
	epochFile   = "leader-epoch-checkpoint"
)

// Compacted names the topics that a log cleaner has worked on, which is the only trace that
// cleanup.policy=compact leaves in the directories of a Kafka on ZooKeeper. A file that cannot be
// read says nothing.
func Compacted(fsys vfs.FS, dirs []string) map[string]bool {
	topics := map[string]bool{}
	for _, d := range dirs {
		for _, line := range checkpoint(fsys, filepath.Join(d, cleanerFile)) {
			if len(line) == 3 {
				topics[line[0]] = true
			}
		}
	}
	return topics
}

// OldFormat says whether a partition's log begins with a message of format 0 or 1, as brokers before
// 0.11 wrote them. One that cannot be read does not.
func OldFormat(fsys vfs.FS, dirs []string, topic string, partition int32) bool {
	const magicAt, magicV2 = 16, 2
	for _, d := range dirs {
		dir := filepath.Join(d, topic+"-"+strconv.Itoa(int(partition)))
		entries, err := fsys.ReadDir(dir)
		if err != nil {
			continue
		}
		first := ""
		for _, e := range entries { // names have as many digits each
			if name := e.Name(); strings.HasSuffix(name, logSuffix) && (first == "" || name < first) {
				first = name
			}
		}
		if first == "" {
			return false
		}
		f, err := fsys.OpenFile(filepath.Join(dir, first), 0, 0)
		if err != nil {
			return false
		}
		defer f.Close()
		var magic [1]byte
		n, _ := f.ReadAt(magic[:], magicAt)
		return n == 1 && magic[0] < magicV2
	}
	return false
}

// lastEpoch is the newest leader epoch that a partition's log knows of, -1 if it says none.
func lastEpoch(fsys vfs.FS, partition string) int32 {
	last := int32(-1)
	for _, line := range checkpoint(fsys, filepath.Join(partition, epochFile)) {
		if n, err := strconv.ParseInt(line[0], 10, 32); err == nil && len(line) == 2 {
			last = max(last, int32(n))
		}
	}
	return last
}

// checkpoint gives the fields of the entries of a checkpoint file: behind a version, 0, and their
// number, one a line.
func checkpoint(fsys vfs.FS, name string) (entries [][]string) {
	data, err := readFile(fsys, name)
	if err != nil {
		return nil
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(lines) < 2 || lines[0] != "0" || lines[1] != strconv.Itoa(len(lines)-2) {
		return nil
	}
	for _, line := range lines[2:] {
		if fields := strings.Fields(line); len(fields) > 0 {
			entries = append(entries, fields)
		}
	}
	return entries
}
