package model_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs nothing unless it is asked to: a skipped check looks like a pass.
func TestMain(m *testing.M) {
	if os.Getenv("RLOCK_MODEL") != "1" {
		fmt.Println("model: not run; RLOCK_MODEL=1 runs it, and needs spin and gcc")
		return
	}
	os.Exit(m.Run())
}
