package rlock_test

import (
	"flag"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
)

// dials are those of go-redis, which tries once a second whether a dead server is back,
// until it sees that its client is closed.
var dials = goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")

func TestMain(m *testing.M) {
	redistest.RunChild(map[string]func(args []string){"fips": fips, "holder": holder, "waiters": waiters})
	// Parallel tests mostly wait for a lease to end; the default is the number of cores.
	_ = flag.Set("test.parallel", "16")
	logging.Disable() // go-redis' own: every refused dial of a test whose server is gone
	goleak.VerifyTestMain(m, dials)
}
