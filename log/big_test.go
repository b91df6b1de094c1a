package log

import (
	"os"
	"fmt"
	"testing"
	"time"
	"runtime/pprof"
)

func TestBig(t *testing.T) {
	if os.Getenv("BIG")=="" { t.Skip() }
	dir, err := os.MkdirTemp(os.Getenv("BIG"), "big")
	if err != nil { t.Fatal(err) }
	defer os.RemoveAll(dir)
	prof := func(name string, f func()) {
		if p := os.Getenv("PROF"); p != "" { o, _ := os.Create(p+"-"+name); pprof.StartCPUProfile(o); defer o.Close(); defer pprof.StopCPUProfile() }
		b := time.Now(); f(); fmt.Println(name, time.Since(b))
	}
	m, err := OpenManager(ManagerOptions{Dirs: []string{dir}, BrokerID: 1, ClusterID: "c"})
	if err != nil { t.Fatal(err) }
	prof("load", func() { m.Load() })
	prof("create", func() { for i := range int32(10000) { if _, err := m.Create("t", i, [16]byte{1}); err != nil { t.Fatal(err) } } })
	prof("append", func() { for i := range int32(10000) { appendTo(t, m.Log("t", i), values(time.Now().UnixMilli(), "x")) } })
	if os.Getenv("FLUSH") != "" { prof("points", func() { m.perform(t.Context(), taskPoints) }) }
	prof("close", func() { if err := m.Close(); err != nil { t.Fatal(err) } })
	m, _ = OpenManager(ManagerOptions{Dirs: []string{dir}, BrokerID: 1, ClusterID: "c"})
	prof("load again", func() { m.Load() })
	prof("touch", func() { for i := range int32(10000) { m.Log("t", i).SetHighWatermark(1) } })
	prof("close again", func() { if err := m.Close(); err != nil { t.Fatal(err) } })
}
