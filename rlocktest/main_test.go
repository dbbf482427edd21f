package rlocktest_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.InBubbles()
	logging.Disable() // go-redis prints every connection that is refused
	goleak.VerifyTestMain(m)
}
