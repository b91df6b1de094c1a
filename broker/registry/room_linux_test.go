package registry

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRoomAhead: the file has blocks of the disk for what will be written next, as far as it has grown,
// and again after it was opened anew.
func TestRoomAhead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	for life := range 2 {
		tree, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			for n := range 4 {
				name := fmt.Sprintf("/n%d-%d-%d", life, i, n)
				if _, err := tree.Create(name, []byte(strings.Repeat("x", 64<<10)), Persistent); err != nil {
					t.Fatal(err)
				}
			}
			var st syscall.Stat_t
			if err := syscall.Stat(path, &st); err != nil {
				t.Fatal(err)
			}
			used := int64(life*8+i+1) * 4 * 64 << 10
			if has := st.Blocks * 512; has < used+roomAhead/4 || has > 2*used+4*roomAhead {
				t.Errorf("the file has %d bytes of the disk and uses more than %d", has, used)
			}
		}
		if err := tree.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
