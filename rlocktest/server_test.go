package rlocktest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// inAndOut runs a test in a bubble and outside of one.
func inAndOut(t *testing.T, test func(t *testing.T)) {
	t.Run("in a bubble", func(t *testing.T) { redistest.Bubble(t, test) })
	t.Run("outside", test)
}

func TestTheClockRuns(t *testing.T) {
	inAndOut(t, func(t *testing.T) {
		rdb := rlocktest.NewServer(t).Client()
		require.NoError(t, rdb.Set(t.Context(), "k", "v", 3*time.Second).Err())
		before, err := rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		require.NoError(t, rdb.Get(t.Context(), "k").Err())
		time.Sleep(3 * time.Second)
		require.ErrorIs(t, rdb.Get(t.Context(), "k").Err(), redis.Nil)
		after, err := rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		require.GreaterOrEqual(t, after.Sub(before), 3*time.Second)
	})
}

func TestLockIsRenewed(t *testing.T) {
	inAndOut(t, func(t *testing.T) {
		locks := rlocktest.NewServer(t).Locks(&rlock.Options{LeaseTime: 4 * time.Second})
		ctx, hold, err := locks.NewLock("a", rlock.WithFencing()).Lock(t.Context())
		require.NoError(t, err)
		require.Positive(t, hold.Token())
		time.Sleep(12 * time.Second) // many renewals
		require.NoError(t, ctx.Err())
		require.NoError(t, hold.Unlock(ctx))
	})
}

func TestReleaseWakesWaiterOfAnotherClient(t *testing.T) {
	inAndOut(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		a, b := server.Locks(nil), server.Locks(nil)
		ctx, hold, err := a.NewLock("a").Lock(t.Context())
		require.NoError(t, err)
		waited := make(chan error)
		go func() {
			waited <- b.NewLock("a").Do(context.Background(), func(context.Context) error { return nil })
		}()
		time.Sleep(100 * time.Millisecond) // it has subscribed
		start := time.Now()
		require.NoError(t, hold.Unlock(ctx))
		require.NoError(t, <-waited)
		require.Less(t, time.Since(start), 5*time.Second) // nowhere near the lease
	})
}

func TestPipelineLongerThanAnyBuffer(t *testing.T) {
	inAndOut(t, func(t *testing.T) {
		rdb := rlocktest.NewServer(t).Client()
		value := strings.Repeat("v", 1000)
		_, err := rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			for range 2000 {
				pipe.Echo(t.Context(), value)
			}
			return nil
		})
		require.NoError(t, err)
	})
}

func TestDeafSubscriberDoesNotBlockPublish(t *testing.T) {
	inAndOut(t, func(t *testing.T) {
		rdb := rlocktest.NewServer(t).Client()
		sub := rdb.Subscribe(t.Context(), "c")
		defer func() { require.NoError(t, sub.Close()) }()
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
		for i := range 500 {
			n, err := rdb.Publish(t.Context(), "c", i).Result()
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
		}
		msg, err := sub.ReceiveMessage(t.Context())
		require.NoError(t, err)
		require.Equal(t, "0", msg.Payload)
	})
}

func TestEvict(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		locks := server.Locks(&rlock.Options{Prefix: "app:"})
		ctx, hold, err := locks.NewLock("a").Lock(t.Context())
		require.NoError(t, err)
		start := time.Now()
		server.Evict("app:a")
		<-ctx.Done()
		require.LessOrEqual(t, time.Since(start), rlock.DefaultLeaseTime/3)
		require.ErrorIs(t, context.Cause(ctx), rlock.ErrLeaseLost)
		require.ErrorIs(t, hold.Unlock(ctx), rlock.ErrLeaseLost)
	})
}

func TestTakeOverOfAReadWriteLock(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		mu := server.Locks(nil).NewRWLock("a")
		for _, l := range []*rlock.Lock{mu.Reader(), mu.Writer()} {
			ctx, hold, err := l.Lock(t.Context())
			require.NoError(t, err)
			owner := server.TakeOver("a", time.Minute)
			<-ctx.Done()
			require.ErrorIs(t, hold.Unlock(ctx), rlock.ErrLeaseLost)
			for _, l := range []*rlock.Lock{mu.Reader(), mu.Writer()} {
				_, _, err = l.TryLock(t.Context())
				var refused *rlock.NotAcquiredError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, owner, refused.Holder)
			}
			ctx, hold, err = l.Lock(t.Context()) // when the minute is over
			require.NoError(t, err)
			require.NoError(t, hold.Unlock(ctx))
		}
	})
}

func TestTakeOver(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		mu := server.Locks(nil).NewLock("a")
		ctx, hold, err := mu.Lock(t.Context())
		require.NoError(t, err)

		owner := server.TakeOver("a", time.Minute)
		state, err := mu.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]int64{owner: 1}, state.Holds)
		require.Equal(t, time.Minute, state.TTL)

		<-ctx.Done()
		require.ErrorIs(t, hold.Unlock(ctx), rlock.ErrLeaseLost)
		state, err = mu.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, owner, state.Owner(), "its lock was touched")

		start := time.Now().Add(-time.Minute + state.TTL) // of the takeover
		ctx, hold, err = mu.Lock(t.Context())
		require.NoError(t, err)
		require.InDelta(t, time.Minute, time.Since(start), float64(10*time.Millisecond))
		require.NoError(t, hold.Unlock(ctx))

		for _, ttl := range []time.Duration{0, -time.Second} {
			require.NotEqual(t, owner, server.TakeOver("a", ttl))
			_, _, err = mu.TryLock(t.Context())
			var refused *rlock.NotAcquiredError
			require.ErrorAs(t, err, &refused)
			require.Negative(t, refused.TTL)
		}
	})
}

func TestUnreachable(t *testing.T) {
	for name, fault := range map[string]func(*rlocktest.Server){
		"hang":   (*rlocktest.Server).Hang,
		"refuse": (*rlocktest.Server).Refuse,
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				server := rlocktest.NewServer(t)
				mu := server.Locks(nil).NewLock("a")
				ctx, hold, err := mu.Lock(t.Context())
				require.NoError(t, err)
				fault(server)

				<-ctx.Done()
				require.True(t, time.Now().Before(hold.Until()), "the guard comes first")
				require.ErrorIs(t, context.Cause(ctx), rlock.ErrLeaseLost)
				require.ErrorIs(t, hold.Unlock(ctx), rlock.ErrLeaseLost)

				_, _, err = mu.TryLock(t.Context())
				require.ErrorIs(t, err, rlock.ErrUnavailable)
				require.False(t, errors.Is(err, rlock.ErrNotAcquired))

				server.Heal()
				require.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil }))
			})
		})
	}
}

func TestShortFaultIsNoLoss(t *testing.T) {
	for name, fault := range map[string]func(*rlocktest.Server){
		"hang":   (*rlocktest.Server).Hang,
		"refuse": (*rlocktest.Server).Refuse,
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				server := rlocktest.NewServer(t)
				ctx, hold, err := server.Locks(nil).NewLock("a").Lock(t.Context())
				require.NoError(t, err)
				for range 100 {
					fault(server)
					time.Sleep(rlock.DefaultLeaseTime / 3)
					server.Heal()
					time.Sleep(rlock.DefaultLeaseTime / 3)
				}
				require.NoError(t, ctx.Err())
				require.NoError(t, hold.Unlock(ctx))
			})
		})
	}
}

// What was sent to a server that hangs is executed later, although the client has given up and
// closed the connection. The log names a lock that is not renewed, and says when it is again.
func TestLogOfAShortFault(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		server := rlocktest.NewServer(t)
		locks := server.Locks(&rlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		err := locks.NewLock("a").Do(t.Context(), func(held context.Context) error {
			server.Refuse()
			time.Sleep(rlock.DefaultLeaseTime / 2)
			server.Heal()
			time.Sleep(rlock.DefaultLeaseTime)
			return held.Err()
		})
		require.NoError(t, err)
		synctest.Wait()
		require.Contains(t, log.String(), `msg="watchdog: renewals failed" failed=1 of=1 lock=a error=`)
		require.Contains(t, log.String(), `msg="watchdog: renewed again" renewed=1 of=1`)
	})
}

func TestHangDeliversLate(t *testing.T) {
	inAndOut(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		rdb := server.Client(func(o *redis.Options) {
			o.MaxRetries = -1
			o.ReadTimeout = 20 * time.Millisecond
		})
		require.Eventually(t, func() bool { return rdb.Ping(t.Context()).Err() == nil }, time.Minute, time.Millisecond, "a connection")
		server.Hang()
		require.ErrorIs(t, rdb.Incr(t.Context(), "n").Err(), os.ErrDeadlineExceeded)
		require.NoError(t, rdb.Close())
		server.Heal()
		other := server.Client()
		require.Eventually(t, func() bool {
			n, err := other.Get(context.Background(), "n").Int()
			return err == nil && n == 1
		}, time.Minute, time.Millisecond)
	})
}

// A test that leaves a lock held fails.
func TestHeldLockFailsTheTest(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		spy := &spy{TB: t}
		_, _, err := rlocktest.NewServer(spy).Locks(nil).NewLock("a").Lock(t.Context())
		require.NoError(t, err)
		spy.end()
		require.Len(t, spy.errors, 1)
		require.Contains(t, spy.errors[0], `still held: "a"`)
	})
}

func TestMistakesFailTheTest(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		spy := &spy{TB: t}
		server := rlocktest.NewServer(spy)
		server.Evict("no such lock")
		require.Len(t, spy.errors, 1)
		require.Contains(t, spy.errors[0], `"no such lock"`)
		rdb := server.Client()
		require.NoError(t, rdb.Set(t.Context(), "config", "value", 0).Err())
		server.Evict("config")
		server.TakeOver("config", time.Minute)
		require.Len(t, spy.errors, 3)
		require.Contains(t, spy.errors[1], `evict "config": it holds a string, not a lock`)
		require.Contains(t, spy.errors[2], `take over "config": it holds a string, not a lock`)
		require.Equal(t, "value", rdb.Get(t.Context(), "config").Val())
		spy.end()
		require.Len(t, spy.errors, 3)
	})
}

// spy is a test within a test.
type spy struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (s *spy) Helper()          {}
func (s *spy) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *spy) Errorf(format string, args ...any) {
	s.errors = append(s.errors, fmt.Sprintf(format, args...))
}

func (s *spy) end() {
	for len(s.cleanups) > 0 {
		last := len(s.cleanups) - 1
		f := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		f()
	}
}

// Three servers are enough for a quorum lock, and one that hangs does not matter.
func TestQuorumLock(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var servers []*rlocktest.Server
		var clients []*rlock.Client
		for range 3 {
			s := rlocktest.NewServer(t)
			servers, clients = append(servers, s), append(clients, s.Locks(nil))
		}
		mu := rlock.NewQuorumLock("report", clients, rlock.WithFencing())
		servers[0].Hang()
		held, hold, err := mu.Lock(t.Context())
		require.NoError(t, err)
		require.Positive(t, hold.Token())
		time.Sleep(time.Hour)
		require.NoError(t, held.Err())
		require.NoError(t, hold.Unlock(held))
	})
}
