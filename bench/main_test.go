package bench

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == WorkerArg {
		if err := Work(append(Contenders(), brokenContender(), jammedContender()), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // of the workers: a second each
	goleak.VerifyTestMain(m, redistest.Dials)
}

// broken is a lock that anybody gets at once.
type broken struct{}

func brokenContender() Contender {
	return Contender{Name: "broken", New: func(Target) (Locker, error) { return broken{}, nil }}
}

func (broken) Lock(ctx context.Context, _ string) (context.Context, func(context.Context) error, error) {
	return ctx, func(context.Context) error { return nil }, nil
}

func (broken) Close() error { return nil }
