package rlock_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// refusals returns options under which a client tells of each refused attempt.
func refusals() (*rlock.Options, <-chan struct{}) {
	c := make(chan struct{}, 1<<16)
	return &rlock.Options{LeaseTime: forever, Trace: rlock.Trace{Waiting: func(context.Context, rlock.Refusal) {
		select {
		case c <- struct{}{}:
		default:
		}
	}}}, c
}

// grant is what a Lock call in the background returned.
type grant struct {
	at   time.Time
	held context.Context
	hold *rlock.Hold
	err  error
}

func lockAsync(ctx context.Context, mu *rlock.Lock) <-chan grant {
	c := make(chan grant, 1)
	go func() {
		held, hold, err := mu.Lock(ctx)
		c <- grant{time.Now(), held, hold, err}
	}()
	return c
}

// await returns the grant, which must come in time, and unlocks it.
func await(t testing.TB, c <-chan grant, limit time.Duration) (at time.Time) {
	t.Helper()
	select {
	case g := <-c:
		require.NoError(t, g.err)
		require.NoError(t, g.hold.Unlock(g.held))
		return g.at
	case <-time.After(limit):
		buf := make([]byte, 1<<20)
		t.Fatalf("no grant within %v\n%s", limit, buf[:runtime.Stack(buf, true)])
		return time.Time{}
	}
}
