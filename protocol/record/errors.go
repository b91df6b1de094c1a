package record

import "errors"

// The errors of this room; what is returned wraps one of them and says more.
var (
	// ErrShort: the bytes end before the entry does.
	ErrShort = errors.New("incomplete record batch")
	// ErrCorrupt: a length, a magic byte or a checksum is wrong (Kafka's CorruptRecordException,
	// CORRUPT_MESSAGE).
	ErrCorrupt = errors.New("corrupt record batch")
	// ErrInvalidRecord: the checksum is right and the content is not (INVALID_RECORD).
	ErrInvalidRecord = errors.New("invalid record")
	// ErrInvalidTimestamp: a timestamp is out of the topic's bounds (INVALID_TIMESTAMP).
	ErrInvalidTimestamp = errors.New("invalid timestamp")
	// ErrTooLarge: a batch exceeds max.message.bytes (MESSAGE_TOO_LARGE).
	ErrTooLarge = errors.New("record batch too large")
	// ErrUnsupportedCompression: the codec cannot be used with this request version or message
	// format (UNSUPPORTED_COMPRESSION_TYPE).
	ErrUnsupportedCompression = errors.New("unsupported compression")
	// ErrUnsupportedForFormat: the message format has no room for what is asked, such as a
	// producer id (UNSUPPORTED_FOR_MESSAGE_FORMAT).
	ErrUnsupportedForFormat = errors.New("unsupported for message format")
	// ErrCodec: compressed records cannot be unpacked, or name a codec that does not exist.
	// Kafka has a bare KafkaException here and so answers UNKNOWN_SERVER_ERROR, which no client
	// sends again.
	ErrCodec = errors.New("failed to decompress records")
)

// RecordError says which records of a batch were refused (KIP-467). The whole batch is.
type RecordError struct {
	Err     error         // ErrInvalidRecord or ErrInvalidTimestamp
	Records []RecordFault // in order, at most maxRecordFaults of them
	Total   int           // how many there were
	Message string        // Kafka's text for the answer's error_message
}

// RecordFault is one refused record.
type RecordFault struct {
	Index   int32 // within the batch, from 0
	Message string
}

// maxRecordFaults bounds an answer: a compressed batch of a few kB can hold millions of records.
// Java's producer gives records without an entry the batch's message.
const maxRecordFaults = 1000

func (e *RecordError) Error() string { return e.Message }
func (e *RecordError) Unwrap() error { return e.Err }
