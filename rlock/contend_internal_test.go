package rlock

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// late is a fake whose next grant is over when its answer is read, as by a process that has
// stood still meanwhile.
type late struct {
	*fake
	next bool
}

func (k *late) Acquire(ctx context.Context, r lua.Runner, owner string, lease time.Duration, o kind.Options) (lua.Reply, error) {
	a, err := k.fake.Acquire(ctx, r, owner, lease, o)
	if k.next {
		k.next, a.Owner, a.Sent = false, owner, time.Now().Add(-lease)
	}
	return a, err
}

// Whoever waits asks again if a grant came too late to be held, a reader too, who asks before
// it queues; TryLock fails.
func TestFakeTimeLateGrantIsAskedForAgain(t *testing.T) {
	for _, reads := range []bool{false, true} {
		redistest.Bubble(t, func(t *testing.T) {
			c, l, f := newFake(t)
			if reads {
				l = c.NewRWLock("a").Reader()
			}
			k := &late{f, true}
			l.use(k)
			held, hold, err := l.Lock(t.Context())
			require.NoError(t, err, "reads: %v", reads)
			require.Len(t, f.calls("acquire"), 2)
			require.NoError(t, hold.Unlock(held))
			synctest.Wait() // the first has been released
			k.next = true
			_, _, err = l.TryLock(t.Context())
			require.ErrorIs(t, err, errLate)
		})
	}
}

// The client closes while a waiter asks once more.
func TestFakeTimeCloseDuringARepeatedAttempt(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		f.onAcquire = func(ctx context.Context, n int) (lua.Reply, error) {
			if n > 1 {
				return lua.Reply{}, hang(ctx)
			}
			return lua.Reply{TTL: time.Hour}, nil
		}
		errs := make(chan error, 1)
		go func() {
			_, _, err := l.Lock(t.Context())
			errs <- err
		}()
		sleepLong(100 * time.Millisecond)
		require.Len(t, f.calls("acquire"), 2)
		closed := make(chan error, 1)
		go func() { closed <- c.Close(t.Context()) }()
		synctest.Wait()
		require.Len(t, errs, 1)
		require.ErrorIs(t, <-errs, ErrClosed)
		require.NoError(t, <-closed)
	})
}

// curious is an error of the application, from a hook of its client say, that wants to know
// whether the goroutine that asks what it is holds a mutex. Others have it for a moment only.
type curious struct {
	mu   *sync.Mutex
	held *atomic.Bool
}

func (curious) Error() string { return "EOF" }

func (c curious) Is(error) bool {
	for range 100_000 {
		if c.mu.TryLock() {
			c.mu.Unlock()
			return false
		}
		runtime.Gosched()
	}
	c.held.Store(true)
	return false
}

func (c curious) As(any) bool { return c.Is(nil) }

func TestFakeTimeErrorsAreReadWithoutTheMutex(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		short := c.NewLock("a", WithLeaseTime(time.Second)) // its waiters give up before the first
		short.use(f)
		var held atomic.Bool
		f.onAcquire = func(context.Context, int) (lua.Reply, error) {
			time.Sleep(100 * time.Millisecond)
			return lua.Reply{}, curious{&l.queues.mu, &held}
		}
		var all sync.WaitGroup
		for _, mu := range []*Lock{l, short, short} {
			all.Go(func() {
				_, _, err := mu.Lock(within(t, time.Minute))
				assert.ErrorIs(t, err, ErrUnavailable)
			})
			synctest.Wait()
		}
		all.Wait()
		require.False(t, held.Load())
	})
}
