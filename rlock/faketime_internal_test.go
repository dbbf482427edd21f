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

// A later attempt may overtake a hanging one, and the window counts from the
// attempt that was answered.
func TestFakeTimeWindowCountsFromTheAnsweredAttempt(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onAcquire = func(ctx context.Context, n int) (lua.Reply, error) {
			if n == 1 {
				return lua.Reply{}, hang(ctx)
			}
			time.Sleep(700 * time.Millisecond)
			return lua.Reply{Acquired: true}, nil
		}
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		sent := f.start.Add(f.times("acquire")[1])
		require.Equal(t, sent.Add(700*time.Millisecond), time.Now())
		require.Equal(t, sent.Add(30*time.Second-302*time.Millisecond), hold.Until())
		calls := f.calls("acquire")
		require.Equal(t, calls[0].owner, calls[1].owner, "one grant, one owner")
		require.NoError(t, hold.Unlock(held))

		sleepLong(time.Minute)
		at := f.times("release")
		require.Len(t, at, 2, "the first attempt may still arrive")
		require.Equal(t, 10*time.Second, at[1]-at[0])
	})
}

func TestFakeTimeAbandonedAcquireIsReleasedTwice(t *testing.T) {
	for name, tt := range map[string]struct {
		answer time.Duration // when the acquire is answered after all; 0: never
		want   []time.Duration
	}{
		"no answer":   {0, []time.Duration{100 * time.Millisecond, 10*time.Second + 100*time.Millisecond}},
		"late answer": {1 * time.Second, []time.Duration{time.Second}},
		"very late":   {3 * time.Second, []time.Duration{2 * time.Second, 3 * time.Second, 12 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c, l, f := newFake(t)
				f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) {
					if tt.answer == 0 {
						return lua.Reply{}, hang(ctx)
					}
					time.Sleep(tt.answer) // go-redis heeds no context
					return lua.Reply{Acquired: true}, nil
				}
				cause := errors.New("enough")
				ctx := deadline(t, 100*time.Millisecond, cause)
				got, hold, err := l.Lock(ctx)
				require.Equal(t, 100*time.Millisecond, time.Since(f.start))
				require.Nil(t, hold)
				require.Equal(t, ctx, got)
				require.ErrorIs(t, err, ErrUnavailable)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, cause)

				sleepLong(time.Minute)
				require.Equal(t, tt.want, f.times("release"))
				for _, r := range f.calls("release") {
					require.Equal(t, f.calls("acquire")[0].owner, r.owner)
				}
				require.Zero(t, c.active.Load(), "the janitor has ended, too")
			})
		})
	}
}

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
		sleepLong(time.Second)
		require.Equal(t, []time.Duration{100 * time.Millisecond}, f.times("release"))
		require.NoError(t, c.Close(t.Context()))
		require.Equal(t, []time.Duration{100 * time.Millisecond, 1100 * time.Millisecond}, f.times("release"))
	})
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

func TestFakeTimeReleaseGoesOnUntilTheLeaseIsOver(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		f.onRelease = func(ctx context.Context, _ int) (lua.Released, error) { return lua.Released{}, hang(ctx) }
		require.ErrorIs(t, hold.Unlock(held), ErrUnavailable)
		require.Equal(t, DefaultUnlockTimeout, time.Since(f.start))
		sleepLong(time.Hour)
		at := f.times("release")
		last := at[len(at)-1]
		require.Greater(t, last, 25*time.Second)
		require.Less(t, last, DefaultUnlockTimeout+30*time.Second+time.Second)
		require.Zero(t, c.active.Load(), "then it ends")
	})
}

// noRight is how a server refuses a user without rights.
type noRight struct{}

func (noRight) Error() string {
	return "NOPERM this user has no permissions to access one of the keys used as arguments"
}
func (noRight) RedisError() {}

var errCut = errors.New("the connection was cut")

// A release that the server refuses is repeated until it is allowed, or the lease is
// over, and keeps nobody waiting. What may never have been granted is not worth that.
func TestFakeTimeRefusedReleaseIsRepeated(t *testing.T) {
	const slack = 500 * time.Millisecond // between two attempts
	for name, tt := range map[string]struct {
		acquire error
		allowed time.Duration // when the right comes back
		close   time.Duration // 0: when all is over
		last    time.Duration // attempt to release, before slack has passed
	}{
		"the right comes back":     {nil, 5 * time.Second, 0, 5 * time.Second},
		"it does not":              {nil, time.Hour, 0, 30 * time.Second},
		"the client closes":        {nil, time.Hour, 5 * time.Second, 30 * time.Second},
		"it does before it ends":   {nil, 10 * time.Second, 5 * time.Second, 10 * time.Second},
		"the acquire was refused":  {noRight{}, time.Hour, 0, 10 * time.Second},
		"its answer was lost":      {errCut, time.Hour, 0, 40 * time.Second},
		"it was, and it is closed": {noRight{}, time.Hour, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c, l, f := newFake(t)
				f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
					if tt.acquire == errCut && n > 1 {
						return lua.Reply{}, noRight{}
					}
					return lua.Reply{Acquired: tt.acquire == nil}, tt.acquire
				}
				f.onRelease = func(context.Context, int) (lua.Released, error) {
					if time.Since(f.start) < tt.allowed {
						return lua.Released{}, noRight{}
					}
					return lua.Released{}, nil
				}
				held, hold, err := l.Lock(t.Context())
				if tt.acquire == nil {
					require.NoError(t, err)
					require.ErrorIs(t, hold.Unlock(held), ErrUnavailable)
				} else {
					require.ErrorIs(t, err, ErrUnavailable)
				}
				require.InDelta(t, 0, time.Since(f.start), float64(10*time.Millisecond), "a caller is told at once")
				if tt.close > 0 {
					sleepLong(tt.close)
					require.NoError(t, c.Close(t.Context()))
				} else {
					sleepLong(time.Hour)
				}
				at := f.times("release")
				require.InDelta(t, tt.last, at[len(at)-1], float64(slack))
				require.Less(t, len(at), 200)
				require.Zero(t, c.active.Load(), "the janitor has ended")
			})
		})
	}
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

func TestFakeTimeCancelledNestedLockIsCorrected(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		f.onCount = func(_ context.Context, n int) error {
			if n == 1 {
				time.Sleep(time.Second) // go-redis heeds no context
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(held, 100*time.Millisecond)
		defer cancel()
		_, inner, err := l.Lock(ctx)
		require.Equal(t, 100*time.Millisecond, time.Since(f.start))
		require.Nil(t, inner)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, l.HoldCount(held))
		sleepLong(5 * time.Second)

		counts := f.calls("count")
		require.Equal(t, 2, counts[0].holds)
		require.Equal(t, []time.Duration{0, 100 * time.Millisecond, time.Second}, f.times("count"), "once at once, once after the late answer")
		require.Equal(t, 1, counts[1].holds)
		require.Equal(t, 1, counts[2].holds)
		require.NoError(t, hold.Unlock(held))
	})
}

// Under a context that does not end with the grant, the loss still ends the call.
func TestFakeTimeNestedLockDoesNotOutwaitTheLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.renewals = hooked(t, renewing(nil))
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		f.onCount = func(ctx context.Context, _ int) error { return hang(ctx) }
		_, _, err = l.Lock(context.WithoutCancel(held))
		require.ErrorIs(t, err, ErrLeaseLost)
		require.LessOrEqual(t, time.Since(f.start), 30*time.Second-302*time.Millisecond, "the end of the window")
		require.ErrorIs(t, hold.Unlock(held), ErrLeaseLost)
	})
}

// A grant was handed to the next goroutine of the client, which has not taken it yet. If
// the client sets the hold count on the server in that moment, there is no hold to count:
// nothing is sent, and the lease is renewed as before.
func TestFakeTimeCorrectionBeforeTheHeir(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		_, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		s, _ := l.queues.enter(l, time.Now())
		require.NoError(t, hold.Unlock(t.Context()))
		successor := s.next().grant
		require.NotNil(t, successor, "it was passed on")
		require.Empty(t, f.calls("release"))

		require.NoError(t, successor.setCount(t.Context(), successor.retry(time.Second)))
		require.Empty(t, f.calls("count"))
		held, next, err := successor.adopt(t.Context(), successor.lock)
		require.NoError(t, err)
		s.leave()
		time.Sleep(5 * l.lease)
		require.NoError(t, held.Err(), "it is renewed")
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// An attempt that was repeated is answered while Unlock waits for Redis. What it has
// acquired is what Unlock releases: a second release would have told it that the lock
// was lost.
func TestFakeTimeLateAnswerDuringUnlock(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
			if n == 1 {
				time.Sleep(l.bound() * 3 / 2)
			}
			return lua.Reply{Acquired: true}, nil
		}
		f.onRelease = func(_ context.Context, n int) (lua.Released, error) {
			time.Sleep(l.bound() * 3 / 4) // the late answer comes meanwhile
			if n > 1 {
				return lua.Released{}, lua.ErrNotOwner
			}
			return lua.Released{}, nil
		}
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
		over := time.Since(f.start)
		sleepLong(time.Hour)
		at := f.times("release")
		require.Greater(t, len(at), 1, "an attempt may have arrived after it")
		for _, again := range at[1:] {
			require.GreaterOrEqual(t, again, over)
		}
		require.Zero(t, c.active.Load())
	})
}
