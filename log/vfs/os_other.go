//go:build unix && !linux

package vfs

import "golang.org/x/sys/unix"

func syncData(fd int) error { return unix.Fsync(fd) }

func lock(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) }

func unlock(fd int) error { return unix.Flock(fd, unix.LOCK_UN) }
