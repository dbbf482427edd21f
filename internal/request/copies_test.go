package request

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

func newCopies() *Copies { return &Copies{Background: func(f func()) { go f() }} }

// silent makes a request of which the first copies, and the request itself, get no answer for a minute.
func silent(k *Copies, dead int, within time.Duration) (copies int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	over := make(chan struct{})
	hang := func() (int, error) {
		select {
		case <-over:
		case <-ctx.Done():
		}
		return 0, ErrNoAnswer
	}
	defer close(over)
	return Race(ctx, k, hang, func(_ context.Context, n int) (int, error) {
		if n < dead {
			return hang()
		}
		return n + 1, nil
	})
}

// The first copy goes out after 100 ms, then two, then four at a time, 50 ms apart.
func TestFakeTimeCopyGetsTheAnswer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		for dead, want := range map[int]time.Duration{0: 100, 1: 150, 3: 200, 7: 250, 19: 400, 29: 500} {
			began := time.Now()
			n, err := silent(newCopies(), dead, 5*time.Second)
			require.NoError(t, err)
			require.Greater(t, n, dead, "any copy of the round that gets through")
			require.Equal(t, want*time.Millisecond, time.Since(began), "%d dead", dead)
			synctest.Wait()
		}
	})
}

// Copies that are no use are paid from a budget, and those that got the answer are not.
func TestFakeTimeCopiesHaveABudget(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		k := newCopies()
		for range 20 {
			_, err := silent(k, 10, 5*time.Second)
			require.NoError(t, err, "copies that were some use are given back")
		}
		k = newCopies()
		_, err := silent(k, 1000, 5*time.Second)
		require.ErrorIs(t, err, ErrNoAnswer)
		require.GreaterOrEqual(t, k.spent, mostAhead-1)
		require.LessOrEqual(t, k.spent, mostAhead)
		time.Sleep(3 * earnedIn)
		require.LessOrEqual(t, k.take(100), 5, "one in a second")
		time.Sleep(time.Minute)
		require.Equal(t, mostAhead, k.take(100))
	})
}

// A slow server gets no copies, as an answer tells how slow it is.
func TestFakeTimeSlowServerGetsNoCopies(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		k, copies := newCopies(), new(atomic.Int64)
		for range 1000 {
			_, err := Race(t.Context(), k, func() (int, error) {
				time.Sleep(300 * time.Millisecond) // ten times 30 ms
				return 0, nil
			}, func(context.Context, int) (int, error) {
				copies.Add(1)
				time.Sleep(300 * time.Millisecond)
				return 0, nil
			})
			require.NoError(t, err)
		}
		require.LessOrEqual(t, copies.Load(), int64(20), "of 1000 requests")
		time.Sleep(time.Second)
	})
}

// What a copy takes is compared with the time since the first request was sent. While that waits for its connection, a slow
// server is no dead connection: making one takes several round trips, each as long as the copy.
func TestFakeTimeWaitForAConnectionIsNoDeadOne(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const trip = 500 * time.Millisecond
		n := &note{Cmder: redis.NewStatusCmd(t.Context(), "ping"), since: time.Now()}
		for range 5 { // TCP, TLS, HELLO
			time.Sleep(trip)
			require.Less(t, n.useful(), trip, "not sent yet")
		}
		time.Sleep(3 * trip)
		require.Equal(t, trip, n.useful(), "no connection is made for eight round trips")
		n.Args()
		time.Sleep(trip)
		require.Less(t, n.useful(), trip/2, "a copy that was sent at the same time")
		time.Sleep(2 * trip)
		require.Equal(t, trip, n.useful().Round(time.Microsecond), "no answer for three round trips")
	})
}
