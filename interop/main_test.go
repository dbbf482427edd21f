package interop

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(peerEnv) != "" {
		runPeer()
		return
	}
	// Parallel cases mostly wait for a lease to end; the default is the number of cores.
	_ = flag.Set("test.parallel", "16")
	goleak.VerifyTestMain(m, redistest.Dials)
}
