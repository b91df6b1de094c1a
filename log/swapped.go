package log

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// coverage is what the files of an interrupted compaction say of the segments of a partition.
type coverage struct {
	unfinished int64 // from this base on, .swap files are of a split that was not whole
	from, to   int64 // bases that the others replace; none if from is not below to
}

// swapped reads the .swap files of a partition's directory, whole. The error is a *Damage if one of
// them is not what a compaction had made durable.
func swapped(fsys vfs.FS, dir string, names map[string]bool) (coverage, error) {
	c, last, widest := coverage{unfinished: math.MaxInt64}, int64(-1), ""
	for name := range names {
		switch base, suffix, ok := parseOffsetName(name); {
		case ok && strings.HasSuffix(suffix, cleanedSuffix):
			c.unfinished = min(c.unfinished, base)
		case ok && suffix == logSuffix:
			last = max(last, base)
		}
	}
	for name := range names {
		base, suffix, ok := parseOffsetName(name)
		if !ok || suffix != logSuffix+swapSuffix || base >= c.unfinished {
			continue
		}
		next, err := soundSwap(fsys, filepath.Join(dir, name), base)
		if err != nil {
			return c, err
		}
		if c.from == c.to || base < c.from {
			c.from = base
		}
		if next = max(next, base+1); next > c.to { // also if nothing was left
			c.to, widest = next, name
		}
	}
	if c.to > c.from && c.to > last { // an offset has no checksum
		return c, &Damage{filepath.Join(dir, widest), -1, fmt.Sprintf("it ends at offset %d, but the segment that is written is never compacted, and begins at %d", c.to, last)}
	}
	return c, nil
}

// soundSwap is the offset after the last entry of a file all of whose entries are sound.
func soundSwap(fsys vfs.FS, name string, base int64) (next int64, err error) {
	f, size, err := openSized(fsys, name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	next = base
	sc := scanner{f: f, end: size, buf: make([]byte, min(checkBytes, max(size, headerBytes))), whole: true}
	for {
		err := sc.next()
		if err == io.EOF {
			return next, nil
		}
		if err == nil {
			err = sc.check()
		}
		if err == nil && (sc.head.BaseOffset() < next || sc.head.LastOffset()-base > math.MaxInt32) {
			err = fmt.Errorf("%w: offsets %d to %d where %d is next", record.ErrCorrupt, sc.head.BaseOffset(), sc.head.LastOffset(), next)
		}
		if torn(err) {
			return 0, &Damage{name, sc.pos, err.Error()}
		}
		if err != nil {
			return 0, err
		}
		next = sc.head.NextOffset()
	}
}
