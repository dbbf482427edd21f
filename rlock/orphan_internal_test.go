package rlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A refused attempt leaves nothing on the server, unless it has taken a ticket: that is
// taken back.
func TestFakeTimeCleanUpOfARefusedAttempt(t *testing.T) {
	for _, tickets := range []bool{true, false} {
		t.Run(fmt.Sprint("tickets ", tickets), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				_, l, f := newFake(t)
				refusal := lua.Reply{TTL: time.Hour}
				if tickets {
					refusal.Place = lua.Place{Time: 1, First: true}
				}
				f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
					if n == 1 { // asks without a ticket
						return lua.Reply{TTL: time.Hour}, nil
					}
					return refusal, nil
				}
				_, _, err := l.TryLock(t.Context())
				require.ErrorIs(t, err, ErrNotAcquired)
				synctest.Wait()
				require.Empty(t, f.calls("release"))
				_, _, err = l.Lock(within(t, 10*time.Second))
				require.ErrorIs(t, err, ErrNotAcquired)
				require.NotErrorIs(t, err, ErrUnavailable)
				sleepLong(time.Hour)
				if tickets {
					require.Equal(t, []time.Duration{10 * time.Second}, f.times("release"))
					require.Equal(t, f.calls("acquire")[1].owner, f.calls("release")[0].owner)
				} else {
					require.Empty(t, f.calls("release"))
				}
			})
		})
	}
}

func TestFakeTimeCloseSendsCleanUpsAtOnce(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		f.onAcquire = func(context.Context, int) (lua.Reply, error) { return lua.Reply{}, errors.New("EOF") }
		_, _, err := l.Lock(within(t, 100*time.Millisecond))
		require.ErrorIs(t, err, ErrUnavailable)
		sleepLong(500 * time.Millisecond)
		require.Equal(t, []time.Duration{100 * time.Millisecond}, f.times("release"))
		require.NoError(t, c.Close(t.Context()))
		require.Equal(t, []time.Duration{100 * time.Millisecond, 600 * time.Millisecond}, f.times("release"))
	})
}

// While Redis is silent, the goroutines of the clean-up do not grow with the
// number of callers that left something behind.
func TestFakeTimeCleanUpOfManyCallersIsBounded(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) { return lua.Reply{}, hang(ctx) }
		f.onRelease = func(ctx context.Context, _ int) (lua.Released, error) { return lua.Released{}, hang(ctx) }
		before := redistest.Goroutines()
		var all sync.WaitGroup
		for range 1000 {
			l := c.NewLock("a")
			l.use(f)
			all.Go(func() {
				_, _, err := l.TryLock(within(t, 100*time.Millisecond))
				assert.ErrorIs(t, err, ErrUnavailable)
			})
		}
		all.Wait()
		sleepLong(3 * time.Second) // the attempts to acquire have ended
		require.Less(t, redistest.Goroutines()-before, 400)
		f.mu.Lock()
		f.onRelease = nil
		f.mu.Unlock()
		sleepLong(time.Minute)
		require.Zero(t, c.active.Load(), "the janitor has ended")
	})
}

// A call leaves while the request is under way that takes its ticket. Whenever the ticket may be
// there, a release takes it out, also if an earlier attempt got no answer.
func TestFakeTimeTicketOfACallThatHasLeft(t *testing.T) {
	for _, doubt := range []bool{false, true} {
		redistest.Bubble(t, func(t *testing.T) {
			_, l, f := newFake(t)
			f.signal = live{}
			f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
				refusal := lua.Reply{TTL: time.Hour, Holder: "d2k7m3o6n88ekjf0v0vg:1"}
				switch {
				case doubt && n == 1:
					return lua.Reply{}, errors.New("EOF")
				case n == 1, doubt && n == 2:
					return refusal, nil
				}
				time.Sleep(time.Second)
				refusal.Place = lua.Place{Time: 1, First: true, New: true}
				return refusal, nil
			}
			_, _, err := l.Lock(within(t, 500*time.Millisecond))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			sleepLong(time.Hour)
			owner := f.calls("acquire")[0].owner
			require.NotEmpty(t, f.ends)
			for _, end := range f.ends {
				require.Equal(t, []string{owner}, end.Tickets)
			}
		})
	}
}
