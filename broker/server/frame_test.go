package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// socketPair returns two connected sockets.
func socketPair(t testing.TB) (a, b net.Conn) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]net.Conn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		if conns[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return conns[0], conns[1]
}

// FuzzFrame: a stream of bytes gives the same frames on a socket as on any other connection,
// in whatever pieces it comes, and never a panic.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x05hello\x00\x00\x00\x01x"), uint8(3))
	f.Add([]byte("\x00\x00\x00\x00"), uint8(1))
	f.Add([]byte("\xff\xff\xff\xff"), uint8(1))
	f.Add(append(frameOf(strings.Repeat("a", handOver+1)), frameOf("b")...), uint8(100))
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8) {
		if piece == 0 {
			return
		}
		frames := func(nc net.Conn) (all []string, end string) {
			in := input{nc: nc, max: 1 << 16, maxOther: 1 << 12, budget: newBudget(1 << 15), buffers: &buffers{}, deadline: func() error { return io.EOF }, progress: func(int) {}}
			in.init()
			for {
				fr, err := in.next(context.Background())
				if err != nil {
					in.close()
					if in.budget.used != 0 || in.budget.over {
						t.Fatalf("budget: %d bytes used, over %v", in.budget.used, in.budget.over)
					}
					return all, err.Error()
				}
				all = append(all, string(fr.bytes()))
				in.release(fr)
			}
		}
		write := func(nc net.Conn) {
			for b := stream; len(b) > 0; {
				n, err := nc.Write(b[:min(len(b), int(piece)*64)])
				if b = b[n:]; err != nil {
					break
				}
			}
			nc.Close()
		}
		a, b := net.Pipe()
		done := make(chan struct{})
		go func() { write(a); close(done) }()
		viaPipe, endPipe := frames(b)
		b.Close()
		<-done
		c, d := socketPair(t)
		done = make(chan struct{})
		go func() { write(c); close(done) }()
		viaSocket, endSocket := frames(d)
		d.Close()
		<-done
		if fmt.Sprintf("%q", viaPipe) != fmt.Sprintf("%q", viaSocket) || endPipe != endSocket {
			t.Fatalf("%d frames and %q on a pipe, %d and %q on a socket", len(viaPipe), endPipe, len(viaSocket), endSocket)
		}
	})
}
