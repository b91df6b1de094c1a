package log

import (
	"errors"
	"fmt"
	"path/filepath"
)

// What can go wrong. Errors are wrapped with the topic, the partition and what was asked for;
// those of record.Validate pass through as they are.
var (
	// ErrOffsetOutOfRange: the offset is below the log start or above what may be read.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrOutOfOrderSequence: a producer's batch leaves a gap, or is older than the last five.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrInvalidProducerEpoch: a newer incarnation of the producer has written already.
	ErrInvalidProducerEpoch = errors.New("producer epoch is older than the last one seen")
	// ErrInvalidTxnState: a plain batch inside a producer's open transaction.
	ErrInvalidTxnState = errors.New("transactional write expected from this producer")
	// ErrUnverified: a transactional batch that is not known to be part of its transaction, as a
	// marker came in between; the look-up may be tried again. It is an ErrInvalidTxnState.
	ErrUnverified = fmt.Errorf("records are not known to be part of an open transaction: %w", ErrInvalidTxnState)
	// ErrCoordinatorFenced: a transaction marker from a coordinator of the past.
	ErrCoordinatorFenced = errors.New("transaction coordinator is fenced")
	// ErrStorage: the partition's log cannot be used, because its directory or the log itself
	// failed. It is permanent until the next start, except as ErrFull.
	ErrStorage = errors.New("log storage failed")
	// ErrFull: nothing was written, because there is no room on the disk. It is an ErrStorage.
	ErrFull = fmt.Errorf("no room on the disk: %w", ErrStorage)
	// ErrClosed: the log was closed or deleted.
	ErrClosed = errors.New("log is closed")
	// ErrTopicID: the directory belongs to another topic of the same name.
	ErrTopicID = errors.New("topic id of the directory differs")
	// ErrTooLarge: the records do not fit into one segment (RECORD_LIST_TOO_LARGE).
	ErrTooLarge = errors.New("records are larger than a segment")
	// ErrUnexpectedOffset: a follower was given records that do not follow its log end.
	ErrUnexpectedOffset = errors.New("records do not continue the log")
	// ErrLocked: another process, or another broker of this one, uses the directory.
	ErrLocked = errors.New("log directory is in use")
	// ErrMeta: meta.properties does not fit this broker.
	ErrMeta = errors.New("meta.properties does not fit")
	// ErrDamaged: a file holds what cannot be its content; see Damage.
	ErrDamaged = errors.New("damaged file")
)

// Damage says where a file is broken. It unwraps to ErrDamaged and ErrStorage: the partition
// stays offline until somebody decided what to do with the file.
type Damage struct {
	File     string
	Position int64 // byte in the file, -1 when the whole file is meant
	Reason   string
}

func (d *Damage) Error() string {
	if d.Position < 0 {
		return fmt.Sprintf("%s is damaged: %s", d.File, d.Reason)
	}
	return fmt.Sprintf("%s is damaged at byte %d: %s", d.File, d.Position, d.Reason)
}

// help is what can be done about it.
func (d *Damage) help(l *Log) string {
	if d.File == l.path(partitionFile) {
		return "stop the broker and restore the file, or remove it, if the topic is still the one that it was written for"
	}
	if d.File == filepath.Clean(l.path("")) {
		return fmt.Sprintf("bring the directory back; or, if its records are given up, stop the broker and run: ottla check --repair --topic %s %s", l.topic, l.dir.path)
	}
	return fmt.Sprintf("stop the broker and restore the file; or, to go on with what is whole, run: ottla check --repair --topic %s %s", l.topic, l.dir.path)
}

// Unwrap makes errors.Is find ErrDamaged and ErrStorage.
func (d *Damage) Unwrap() []error { return []error{ErrDamaged, ErrStorage} }
