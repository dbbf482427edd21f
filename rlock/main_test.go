package rlock_test

import (
	"flag"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.RunChild(map[string]func(args []string){"fips": fips, "holder": holder, "waiters": waiters})
	// Parallel tests mostly wait for a lease to end; the default is the number of cores.
	_ = flag.Set("test.parallel", "16")
	logging.Disable() // go-redis' own: every refused dial of a test whose server is gone
	goleak.VerifyTestMain(m, redistest.Dials)
}
