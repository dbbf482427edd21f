package verify

import (
	"flag"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis' own: every refused dial while a server is gone
	redistest.RunChild(map[string]func([]string){"party": party})
	// Rows mostly wait; more at once than this and the machine is what is measured.
	_ = flag.Set("test.parallel", "4")
	if os.Getenv("RLOCK_VERIFY") != "" { // some wait for seconds
		_ = flag.Set("test.parallel", "5")
	}
	if os.Getenv("RLOCK_VERIFY") != "" || os.Getenv("RLOCK_SOAK") != "" {
		_ = flag.Set("test.timeout", "0") // the command line's, or go test's, still counts
	}
	goleak.VerifyTestMain(m, redistest.Dials)
}
