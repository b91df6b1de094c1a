package integration

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	status := m.Run()
	RemoveBinary()
	os.Exit(status)
}
