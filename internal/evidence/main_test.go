package evidence

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestMain(m *testing.M) {
	redistest.RunChild(map[string]func([]string){"wait": wait})
	goleak.VerifyTestMain(m, redistest.Dials)
}

func newClient(tb testing.TB, rdb redis.UniversalClient, opts *rlock.Options) *rlock.Client {
	tb.Helper()
	c, err := rlock.New(rdb, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(tb, c.Close(ctx))
	})
	return c
}

const name = "evidence"

// wait is a child process: at addr, so many goroutines wait for the lock at
// once. It tells when they have it, and releases what it got.
func wait(args []string) {
	var goroutines int
	fmt.Sscan(args[1], &goroutines)
	c, err := rlock.New(redis.NewClient(&redis.Options{Addr: args[0]}), nil)
	if err != nil {
		panic(err)
	}
	done := make(chan error)
	for range goroutines {
		go func() {
			done <- c.NewLock(name).Do(context.Background(), func(context.Context) error { return nil })
		}()
	}
	fmt.Println("waiting")
	for range goroutines {
		if err := <-done; err != nil {
			panic(err)
		}
	}
	fmt.Println("served")
}
