package compat

import "testing"

// TestMetadataChanged: Kafka 4.4 goes back from a level of metadata.version only where the metadata
// have stayed as they were in between.
func TestMetadataChanged(t *testing.T) {
	for _, x := range []struct {
		from, to int16
		want     bool
	}{{33, 32, true}, {32, 31, true}, {31, 30, false}, {31, 29, true}, {29, 23, false}, {29, 22, true}, {22, 17, false}, {8, 7, true}, {7, 7, false}, {33, 33, false}} {
		if got := MetadataChanged(x.from, x.to); got != x.want {
			t.Errorf("from %d to %d: %v", x.from, x.to, got)
		}
	}
}
