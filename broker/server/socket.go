package server

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls here are made without telling Go's scheduler. They never wait: a socket is
// non-blocking, and records are sent from a file only if they are in memory (cached). All that
// they do is copy, for which they need a processor anyway. To announce them as calls that may
// block would have the scheduler wake its monitor thread, and this watch the call: on a broker
// that is mostly idle that costs as much as the request.

// readSocket is read(2).
func readSocket(fd uintptr, b []byte) (int, error) {
	for {
		n, _, e := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if e == 0 {
			return int(n), nil
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

// sendSocket is sendmsg(2). more says that something follows at once, so that no packet leaves
// that is not full.
func sendSocket(fd uintptr, parts []unix.Iovec, more bool) (int, error) {
	msg := unix.Msghdr{Iov: unsafe.SliceData(parts)}
	msg.SetIovlen(len(parts))
	flags := uintptr(unix.MSG_NOSIGNAL)
	if more {
		flags |= unix.MSG_MORE
	}
	for {
		n, _, e := unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&msg)), flags)
		if e == 0 {
			return int(n), nil
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

// sendCached is sendfile(2) for bytes that are in memory.
func sendCached(fd uintptr, file int, at *int64, n int) (int, error) {
	for {
		m, _, e := unix.RawSyscall6(unix.SYS_SENDFILE, fd, uintptr(file), uintptr(unsafe.Pointer(at)), uintptr(n), 0, 0)
		if e == 0 {
			return int(m), nil
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

// cached says whether the first and the last byte of a piece of a file are in memory, and so,
// but for a rare case that costs a moment, what lies between. A file system that cannot tell
// counts as a disk.
func cached(file int, at int64, n int) bool {
	return cachedByte(file, at) && (n == 1 || cachedByte(file, at+int64(n)-1))
}

func cachedByte(file int, at int64) bool {
	var b [1]byte
	iov := unix.Iovec{Base: &b[0]}
	iov.SetLen(1)
	n, _, e := unix.RawSyscall6(unix.SYS_PREADV2, uintptr(file), uintptr(unsafe.Pointer(&iov)), 1, uintptr(at), 0, unix.RWF_NOWAIT)
	return e == 0 && n == 1
}
