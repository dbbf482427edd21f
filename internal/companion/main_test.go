package companion_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	goleak.VerifyTestMain(m, redistest.Dials)
}
