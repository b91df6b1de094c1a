package log

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// Every file of a log directory is damaged in every way: each byte changed, cut at each length, removed.
// A start then serves what was there, or a beginning of it where the recovery point allows that, or
// says what is damaged and keeps the partition offline. It never panics, and what was flushed is still
// somewhere on the disk. A check finds what a checksum can find, and after a repair the partition has
// all but the damaged batch.
//
// By default a sample is tried; OTTLA_DAMAGE=5000 tries more, OTTLA_DAMAGE=all
// everything. One case again:
// go test ./log -run TestDamageEverywhere -damage 'kafka-3.9.1-zk txn-0/00000000000000000004.log flip 17 64 clean'

var damageCase = flag.String("damage", "", "run TestDamageEverywhere with this case alone")

// injury is one way of damaging a file.
type injury struct {
	dir, file, how string
	at             int
	xor            byte
	stop           string // clean or killed
}

func (c injury) String() string {
	return fmt.Sprintf("%s %s %s %d %d %s", c.dir, c.file, c.how, c.at, c.xor, c.stop)
}

func (c injury) apply(b []byte) []byte {
	switch c.how {
	case "flip":
		b = slices.Clone(b)
		b[c.at] ^= c.xor
	case "cut":
		b = b[:c.at:c.at]
	}
	return b
}

// victim is a directory with one partition, and what it had.
type victim struct {
	fs         *vfs.Memory
	topic      string
	partition  int32
	start, end int64
	point      int64
	batches    []record.Batch

	refused []int64 // offsets at which the last read met a wrong checksum
}

func TestDamageEverywhere(t *testing.T) {
	t.Parallel()
	most := 250 // cases for each directory
	if testing.Short() || raceEnabled {
		most = 60
	}
	want := os.Getenv("OTTLA_DAMAGE")
	all := want == "all"
	if n, err := strconv.Atoi(want); err == nil {
		most = n
	}
	dirs := map[string]func(testing.TB) *vfs.Memory{"ottla": ownDirectory, "ottla-killed": ownDirectory}
	for _, r := range recorded {
		dirs[r.name] = func(t testing.TB) *vfs.Memory { return copyRecorded(t, r.name) }
	}
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		t.Run(name, func(t *testing.T) {
			whole := dirs[name](t)
			var cases []injury
			r := rand.New(rand.NewPCG(7, uint64(len(name))))
			files := tree(t, whole, dataDir)
			for _, file := range slices.Sorted(maps.Keys(files)) {
				if strings.HasPrefix(file, metadataTopic) || file == cleanFile || strings.HasSuffix(file, ".snapshot.deleted") {
					continue
				}
				stops := []string{"clean", "killed"}
				if name == "ottla-killed" {
					stops = stops[1:]
				}
				for _, stop := range stops {
					cases = append(cases, injury{name, file, "remove", 0, 0, stop})
					for at := range len(files[file]) {
						cases = append(cases, injury{name, file, "flip", at, byte(1 + r.IntN(255)), stop}, injury{name, file, "cut", at, 0, stop})
					}
				}
			}
			if !all && len(cases) > most {
				removed := slices.DeleteFunc(slices.Clone(cases), func(c injury) bool { return c.how != "remove" })
				r.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
				cases = append(removed, cases[:most]...)
			}
			victims := map[string]*victim{}
			for _, c := range cases {
				if *damageCase != "" {
					if !strings.HasPrefix(*damageCase, name+" ") {
						return
					}
					if _, err := fmt.Sscan(*damageCase, &c.dir, &c.file, &c.how, &c.at, &c.xor, &c.stop); err != nil {
						t.Fatal(err)
					}
				}
				for _, v := range victimsOf(t, whole, c, victims) {
					if err := v.suffer(t, c); err != nil {
						t.Errorf("%s-%d: %v\nagain: go test ./log -run TestDamageEverywhere -damage '%s'", v.topic, v.partition, err, c)
					}
				}
				if *damageCase != "" || t.Failed() && !all {
					return
				}
			}
		})
	}
}

// victimsOf is the partition whose file it is, or for a file of the directory two of them.
func victimsOf(t testing.TB, whole *vfs.Memory, c injury, made map[string]*victim) (list []*victim) {
	t.Helper()
	partition := path.Dir(c.file)
	if partition == "." {
		for _, name := range []string{"t-0", "trimmed-0", "segments-0", "fmt-v1-0"} {
			if exists(whole, dataDir+"/"+name) {
				list = append(list, victimOf(t, whole, name, c.dir, made))
			}
		}
		return list
	}
	return []*victim{victimOf(t, whole, partition, c.dir, made)}
}

func victimOf(t testing.TB, whole *vfs.Memory, name, dir string, made map[string]*victim) *victim {
	t.Helper()
	if v := made[name]; v != nil {
		return v
	}
	v := &victim{fs: whole.KillClone()}
	var kind dirKind
	if v.topic, v.partition, kind = parseDirName(name); kind != dirPartition {
		t.Fatalf("%q is no partition", name)
	}
	entries, _ := v.fs.ReadDir(dataDir)
	for _, e := range entries {
		if e.IsDir() && e.Name() != name {
			v.fs.RemoveAll(dataDir + "/" + e.Name())
		}
	}
	killed := dir == "ottla-killed"
	only := func(file string) map[key]int64 {
		data, err := readFile(v.fs, dataDir+"/"+file)
		if err != nil {
			return nil
		}
		offsets, err := parseCheckpoint(data)
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(offsets, func(k key, _ int64) bool { return dirName(k.topic, k.partition) != name })
		if killed && file == recoveryFile {
			for k := range offsets {
				offsets[k] = 7 // in the middle
			}
		}
		writeFile(v.fs, dataDir+"/"+file, formatCheckpoint(offsets), true)
		return offsets
	}
	for k, point := range only(recoveryFile) {
		v.topic, v.partition, v.point = k.topic, k.partition, point
	}
	only(startFile)
	only(watermarkFile)
	m, _, err := openVictim(v.fs.KillClone())
	if err != nil {
		t.Fatal(err)
	}
	l := m.Log(v.topic, v.partition)
	v.start, v.end = l.Start(), l.End()
	data, err := rawBatches(l)
	if err != nil {
		t.Fatal(err)
	}
	for b := range record.All(data) {
		v.batches = append(v.batches, b)
	}
	m.Close()
	made[name] = v
	return v
}

func openVictim(fsys vfs.FS) (*Manager, *box, error) {
	b := &box{}
	o := ManagerOptions{FS: fsys, Dirs: []string{dataDir}, BrokerID: -1, RecoveryThreads: 1, TopicOptions: kafkaOptions, Now: recordedAt,
		RetentionCheck: -1, FlushCheckpoint: -1, StartCheckpoint: -1, WatermarkCheckpoint: -1, ProducerExpiryCheck: -1,
		Logger: slog.New(slog.NewTextHandler(b, nil))}
	m, err := OpenManager(o)
	if err != nil {
		return nil, b, err
	}
	return m, b, m.Load()
}

// suffer damages the directory, and starts, checks and repairs it.
func (v *victim) suffer(t testing.TB, c injury) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	fsys := v.fs.KillClone()
	file := dataDir + "/" + c.file
	if c.stop == "killed" {
		fsys.Remove(dataDir + "/" + cleanFile)
	}
	had, err := readFile(fsys, file)
	if err != nil {
		return nil // not of this partition
	}
	if c.how == "remove" {
		fsys.Remove(file)
	} else if c.at >= len(had) {
		return nil
	} else if err := writeFile(fsys, file, c.apply(had), true); err != nil {
		return err
	}
	// A base offset and a leader epoch are under no checksum.
	var hit record.Batch
	unsure := false
	if strings.HasSuffix(c.file, logSuffix) {
		at := 0
		for b := range record.All(had) {
			if c.how == "flip" && c.at >= at && c.at < at+len(b) {
				hit = b
				in := c.at - at
				unsure = in < 8 || b.Magic() >= 2 && in >= 12 && in < 16
			}
			at += len(b)
		}
	}
	checked := fsys.KillClone()
	if err := v.startDamaged(fsys, c, hit, unsure); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	return v.repairDamaged(t, checked, c, hit, unsure)
}

// startDamaged starts on a damaged directory.
func (v *victim) startDamaged(fsys *vfs.Memory, c injury, hit record.Batch, unsure bool) error {
	m, lines, err := openVictim(fsys)
	if err != nil {
		if errors.Is(err, ErrMeta) && c.file == metaFile {
			return nil
		}
		return err
	}
	defer m.Close()
	l := m.Log(v.topic, v.partition)
	if l == nil {
		return errors.New("the partition is not there")
	}
	if err := v.stillThere(fsys, c, hit); err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		var damage *Damage
		if !errors.As(err, &damage) || !errors.Is(err, ErrStorage) {
			return fmt.Errorf("offline without a damage: %w", err)
		}
		if !strings.Contains(lines.lines(), damage.File) {
			return fmt.Errorf("%s is not told", damage.File)
		}
		return nil
	}
	all := segmentsLookedAt
	if err := l.tellHoles(&all); err != nil {
		return err
	}
	got, readErr := v.read(l)
	var damage *Damage
	if readErr != nil && !(errors.As(readErr, &damage) && strings.HasSuffix(c.file, logSuffix)) {
		return readErr
	}
	if err := v.compare(l, got, c, hit, unsure, readErr != nil, lines.lines()); err != nil {
		return err
	}
	l.OffsetForTime(startMs, l.End())
	l.MaxTimestamp(l.End())
	l.AbortedIn(l.Start(), l.End())
	_, err = l.Append(Append{Records: values(startMs, "x"), RequestVersion: 9})
	if err != nil && !errors.Is(err, ErrStorage) {
		return err
	}
	return nil
}

// read gives the whole entries that a consumer gets, wrong ones as nil.
func (v *victim) read(l *Log) (got []record.Batch, err error) {
	v.refused = nil
	for from := l.Start(); from < l.End(); {
		c, err := l.Read(from, l.End(), 400, true)
		if err != nil {
			// As a consumer that is told to skip it: the next segment.
			list := l.segments()
			i := floor(list, from) + 1
			if i == len(list) {
				return got, err
			}
			rest, e := v.readFrom(l, list[i].base)
			if e != nil {
				err = e
			}
			return append(got, rest...), err
		}
		if c.Range == nil {
			break
		}
		b := make([]byte, c.Range.Len())
		c.Range.ReadAt(b, 0)
		c.Range.Release()
		next := from
		for batch := range record.All(b) {
			if batch.LastOffset() < from {
				continue
			}
			if batch.CRC() != batch.ComputeCRC() {
				next = v.after(from) // a consumer refuses it, and is told to go on behind it
				v.refused = append(v.refused, from)
				break
			}
			got = append(got, batch)
			next = batch.NextOffset()
		}
		if next <= from {
			return got, fmt.Errorf("no whole entry at %d", from)
		}
		from = next
	}
	return got, nil
}

// after is where the entry ends that had an offset.
func (v *victim) after(offset int64) int64 {
	for _, b := range v.batches {
		if b.LastOffset() >= offset {
			return b.NextOffset()
		}
	}
	return offset + 1
}

func (v *victim) readFrom(l *Log, from int64) (got []record.Batch, err error) {
	for from < l.End() {
		c, err := l.Read(from, l.End(), 400, true)
		if err != nil || c.Range == nil {
			return got, err
		}
		b := make([]byte, c.Range.Len())
		c.Range.ReadAt(b, 0)
		c.Range.Release()
		for batch := range record.All(b) {
			if batch.CRC() == batch.ComputeCRC() {
				got = append(got, batch)
			}
			from = batch.NextOffset()
		}
	}
	return got, nil
}

// compare finds what is served that was not there, and what is lacking without a reason.
func (v *victim) compare(l *Log, got []record.Batch, c injury, hit record.Batch, unsure, failed bool, lines string) error {
	if c.file == startFile { // it says what it says
		return nil
	}
	for _, b := range got {
		if !slices.ContainsFunc(v.batches, func(had record.Batch) bool { return bytes.Equal(had, b) }) && !unsure {
			return fmt.Errorf("it serves %v, which was never there", b)
		}
	}
	lost := func(b record.Batch) bool {
		return !slices.ContainsFunc(got, func(have record.Batch) bool { return bytes.Equal(have, b) })
	}
	isLog := strings.HasSuffix(c.file, logSuffix)
	for i, b := range v.batches {
		switch {
		case !lost(b), bytes.Equal(b, hit):
		case hit != nil && slices.ContainsFunc(v.refused, func(o int64) bool { return o >= b.BaseOffset() && o <= b.LastOffset() }):
		case isLog && failed: // told to who reads
		case isLog && c.how != "flip" && strings.Contains(lines, "records are missing"):
		case isLog && b.LastOffset() >= v.point: // a tail behind the recovery point
		case isLog && unsure && i > 0: // the offsets may be as if something were between
		default:
			return fmt.Errorf("%v is lost, up to %d of %d (recovery point %d)\n%s", b, l.End(), v.end, v.point, lines)
		}
	}
	if l.Start() != v.start && !(isLog && c.how == "remove") {
		return fmt.Errorf("log start %d, was %d", l.Start(), v.start)
	}
	return nil
}

// stillThere looks for everything that was flushed, in whatever file.
func (v *victim) stillThere(fsys *vfs.Memory, c injury, hit record.Batch) error {
	var all [][]byte
	entries, err := fsys.ReadDir(dataDir + "/" + dirName(v.topic, v.partition))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), logSuffix) {
			b, err := readFile(fsys, dataDir+"/"+dirName(v.topic, v.partition)+"/"+e.Name())
			if err != nil {
				return err
			}
			all = append(all, b)
		}
	}
	if strings.HasSuffix(c.file, logSuffix) && c.how != "flip" {
		return nil // they are gone by what was done
	}
	for _, b := range v.batches {
		if b.LastOffset() >= v.point || bytes.Equal(b, hit) {
			continue
		}
		if !slices.ContainsFunc(all, func(data []byte) bool { return bytes.Contains(data, b) }) {
			return fmt.Errorf("%v is not on the disk any more", b)
		}
	}
	return nil
}

// repairDamaged checks a damaged directory, repairs it, and starts.
func (v *victim) repairDamaged(t testing.TB, fsys *vfs.Memory, c injury, hit record.Batch, unsure bool) error {
	o := CheckOptions{FS: fsys, Dir: dataDir}
	r, err := Check(t.Context(), o)
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if c.file == metaFile {
		return nil
	}
	if hit != nil && !unsure && !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.File == dataDir+"/"+c.file }) {
		return fmt.Errorf("the check finds nothing in it: %s", findingsOf(r))
	}
	if err := r.Repair(t.Context(), func(string) {}); err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	m, lines, err := openVictim(fsys)
	if err != nil {
		return err
	}
	defer m.Close()
	l := m.Log(v.topic, v.partition)
	if err := l.Err(); err != nil {
		return fmt.Errorf("after the repair: %w\nfound %s", err, strings.Join(findingsOf(r), "\n"))
	}
	got, err := v.read(l)
	if err != nil {
		return fmt.Errorf("after the repair: %w", err)
	}
	if c.file == startFile || unsure {
		return nil
	}
	for _, b := range v.batches {
		if bytes.Equal(b, hit) || strings.HasSuffix(c.file, logSuffix) && c.how != "flip" {
			continue
		}
		if !slices.ContainsFunc(got, func(have record.Batch) bool { return bytes.Equal(have, b) }) {
			return fmt.Errorf("after the repair %v is lost\nfound %s\n%s", b, strings.Join(findingsOf(r), "\n"), lines.lines())
		}
	}
	return nil
}

// ownDirectory is one that is written here: several segments, transactions, epochs.
func ownDirectory(t testing.TB) *vfs.Memory {
	fsys := vfs.NewCrashable()
	b := newBox(t, fsys, func(o *Options) { o.SegmentBytes, o.IndexIntervalBytes, o.RetentionMs = 400, 1, -1 })
	b.change = func(o *ManagerOptions) { o.Now = recordedAt }
	b.start()
	l := b.log()
	for i := range int64(12) {
		var o record.BuilderOptions
		if i == 3 || i == 6 || i == 10 {
			o.Producer = &record.ProducerInfo{ID: 9, Sequence: int32(i), Transactional: true}
			if i == 3 {
				o.Producer.Sequence = 0
			} else if i == 6 {
				o.Producer.Sequence = 1
			} else {
				o.Producer.Sequence = 2
			}
		}
		if _, err := l.Append(Append{Records: batchOf(o, rec{startMs + i*7%5, fmt.Sprint("value ", i)}), Epoch: int32(i / 4), RequestVersion: 9}); err != nil {
			t.Fatal(err)
		}
		if i == 4 || i == 7 {
			appendMarker(t, l, i == 7, 9, 0, 1)
		}
	}
	l.SetHighWatermark(l.End())
	b.close()
	return fsys
}
