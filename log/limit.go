package log

import (
	"encoding/base64"

	"golang.org/x/sys/unix"
)

// descriptorLimit is how many descriptors this process may have.
func descriptorLimit() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil || r.Cur > 1<<20 {
		return 1 << 20
	}
	return int(r.Cur)
}

// uuid is how Kafka writes an id.
func uuid(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }
