package compat

import (
	"errors"
	"math"
	"testing"
)

func TestConsumerOffset(t *testing.T) {
	if got := PathConsumerOffset("g", "t", 12); got != "/consumers/g/offsets/t/12" {
		t.Error(got)
	}
	for _, n := range []int64{0, -1, 42, math.MaxInt64, math.MinInt64} {
		if got, err := DecodeConsumerOffset(EncodeConsumerOffset(n)); err != nil || got != n {
			t.Errorf("%d became %d, %v", n, got, err)
		}
	}
	for text, want := range map[string]int64{"42": 42, "+7": 7, "007": 7} { // as Java's Long.parseLong
		if got, err := DecodeConsumerOffset([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "1 ", "1_0", "0x1", "99999999999999999999", "\xff\xfe"} {
		if _, err := DecodeConsumerOffset([]byte(text)); !errors.Is(err, ErrZnode) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzConsumerOffset(f *testing.F) {
	for _, seed := range []string{"0", "-1", "+12", "9223372036854775808", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if n, err := DecodeConsumerOffset(data); err == nil {
			if again, err := DecodeConsumerOffset(EncodeConsumerOffset(n)); err != nil || again != n {
				t.Errorf("%q: %d and then %d, %v", data, n, again, err)
			}
		}
	})
}
