package rlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

var set = rlock.NewScript(`return redis.call('set', KEYS[2], ARGV[1])`)

func TestScript(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	value := func(t *testing.T) string { return rdb.Get(t.Context(), "balance").Val() }
	for name, make := range map[string]func(*rlock.Client) *rlock.Lock{
		"plain":  func(c *rlock.Client) *rlock.Lock { return c.NewLock("script:plain") },
		"fenced": func(c *rlock.Client) *rlock.Lock { return c.NewLock("script:fenced", rlock.WithFencing()) },
		"fair":   func(c *rlock.Client) *rlock.Lock { return c.NewFairLock("script:fair") },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, srv, nil)
			mu := make(c)

			held, hold := lock(t, t.Context(), mu)
			reply, err := set.Run(held, hold, []string{"balance"}, "written by the holder")
			require.NoError(t, err)
			require.Equal(t, "OK", reply)
			require.Equal(t, "written by the holder", value(t))

			// Another context that owns the lock by the same grant may write as well.
			_, joined := join(t, t.Context(), make(newClient(t, srv, nil)), hold.Proof())
			_, err = set.Run(t.Context(), joined, []string{"balance"}, "written by a joined process")
			require.NoError(t, err)
			require.NoError(t, joined.Unlock(t.Context()))

			require.NoError(t, rdb.Del(t.Context(), mu.Name()).Err())
			_, err = set.Run(held, hold, []string{"balance"}, "written by a former holder")
			require.ErrorIs(t, err, rlock.ErrLeaseLost)
			require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost, "the work stops at once")
			require.Equal(t, "written by a joined process", value(t))
			require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)

			_, hold = lock(t, t.Context(), mu)
			require.NoError(t, hold.Unlock(t.Context()))
			_, err = set.Run(t.Context(), hold, []string{"balance"}, "written after the Unlock")
			require.ErrorIs(t, err, rlock.ErrNotHeld)
			require.Equal(t, "written by a joined process", value(t))
		})
	}
}

// The next goroutine would be the same owner, and a late write of the former one would count.
func TestScriptPinsTheGrant(t *testing.T) {
	t.Parallel()
	mu := newClient(t, newServer(t), nil).NewLock("pinned")
	_, hold := lock(t, t.Context(), mu)
	_, err := set.Run(t.Context(), hold, []string{"value"}, 1)
	require.NoError(t, err)
	next := make(chan string)
	go func() {
		_, hold, err := mu.Lock(t.Context())
		if err != nil {
			close(next)
			return
		}
		next <- hold.Owner()
		_ = hold.Unlock(t.Context())
	}()
	former := hold.Owner()
	time.Sleep(50 * time.Millisecond) // the other goroutine waits; if it does not yet, the owner is another in any case
	require.NoError(t, hold.Unlock(t.Context()))
	require.NotEqual(t, former, <-next)
}

func TestScriptReplies(t *testing.T) {
	t.Parallel()
	c := newClient(t, newServer(t), nil)
	held, hold := lock(t, t.Context(), c.NewLock("replies"))
	run := func(source string, args ...any) (any, error) {
		return rlock.NewScript(source).Run(held, hold, nil, args...)
	}
	reply, err := run(`return {KEYS[1], #KEYS, #ARGV, ARGV[1]}`, "argument")
	require.NoError(t, err)
	require.Equal(t, []any{"replies", int64(1), int64(1), "argument"}, reply)
	reply, err = run(`return false`)
	require.NoError(t, err)
	require.Nil(t, reply, "no reply is no error")

	_, err = run(`return redis.error_reply('POOR the balance is too low')`)
	_, isReply := errors.AsType[redis.Error](err)
	require.True(t, isReply)
	require.EqualError(t, err, "POOR the balance is too low")
	require.NotErrorIs(t, err, rlock.ErrUnavailable, "Redis has answered")
	_, err = run(`this is not Lua`)
	_, isReply = errors.AsType[redis.Error](err)
	require.True(t, isReply)
	require.ErrorContains(t, err, "compiling script")

	_, err = set.Run(held, nil, nil)
	require.ErrorIs(t, err, rlock.ErrNotHeld, "a refused TryLock has no hold")
	_, reader := lock(t, t.Context(), c.NewRWLock("documents").Reader())
	_, err = set.Run(held, reader, nil)
	require.ErrorIs(t, err, rlock.ErrInvalidOption)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = set.Run(over, hold, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, reader.Unlock(t.Context()))
	require.NoError(t, hold.Unlock(t.Context()))
}
