package log

import (
	"fmt"
	"maps"
)

// cleanedUpTo is the offset up to which a log was cleaned, as cleaner-offset-checkpoint says.
func (d *dir) cleanedUpTo(l *Log) (offset int64, known bool) {
	d.cleaned.Lock()
	defer d.cleaned.Unlock()
	offset, known = d.cleaned.offsets[key{l.topic, l.partition}]
	return offset, known
}

// saveCleaned makes durable that a log was cleaned up to an offset. Entries of partitions that are
// not there any more go, as in Kafka.
func (d *dir) saveCleaned(l *Log, offset int64) error {
	return d.putCleaned(func(offsets map[key]int64) { offsets[key{l.topic, l.partition}] = offset })
}

// lowerCleaned makes an offset to which a log is about to be truncated dirty again: what is written
// there next was never looked at (LogCleanerManager.maybeTruncateCheckpoint).
func (d *dir) lowerCleaned(l *Log, offset int64) error {
	if at, known := d.cleanedUpTo(l); !known || at <= offset {
		return nil
	}
	if err := d.saveCleaned(l, offset); err != nil {
		return l.writeFailed("write "+cleanerFile, err)
	}
	return nil
}

// forgetCleaned takes a partition that was deleted out of the checkpoint. One that is made under its
// name would else count as cleaned.
func (d *dir) forgetCleaned(k key) {
	d.cleaned.Lock()
	_, known := d.cleaned.offsets[k]
	d.cleaned.Unlock()
	if !known || d.failed() != nil {
		return
	}
	if err := d.putCleaned(func(offsets map[key]int64) { delete(offsets, k) }); err != nil {
		d.m.logger.Warn("cannot take a deleted partition out of a checkpoint", "dir", d.path, "partition", dirName(k.topic, k.partition), "err", err)
	}
}

func (d *dir) putCleaned(change func(map[key]int64)) error {
	there := map[key]bool{}
	for _, l := range d.m.snapshot() {
		if l.dir == d {
			there[key{l.topic, l.partition}] = true
		}
	}
	d.saved.Lock()
	for k := range d.skipped {
		there[k] = true
	}
	d.saved.Unlock()
	d.cleaned.Lock()
	defer d.cleaned.Unlock()
	if err := d.failed(); err != nil {
		return err
	}
	offsets := maps.Clone(d.cleaned.offsets)
	if offsets == nil {
		offsets = map[key]int64{}
	}
	maps.DeleteFunc(offsets, func(k key, _ int64) bool { return !there[k] })
	change(offsets)
	if err := replaceFile(d.fs, d.file(cleanerFile), formatCheckpoint(offsets)); err != nil {
		return err
	}
	if err := d.fs.SyncDir(d.path); err != nil {
		return fmt.Errorf("sync directory: %w", unsynced(err))
	}
	d.cleaned.offsets = offsets
	return nil
}
