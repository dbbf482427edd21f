package rlock

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/watchdog"
)

// The last hold of a lost grant may be a nested one that has failed: then it releases what
// the server may still have.
func TestFakeTimeLastHoldOfALostGrantFails(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onCount = func(ctx context.Context, _ int) error { return hang(ctx) }
		held, outer, err := l.Lock(t.Context())
		require.NoError(t, err)
		failed := make(chan error, 1)
		go func() { _, _, err := l.Lock(held); failed <- err }()
		synctest.Wait()
		outer.grant.lose(watchdog.ErrLapsed)
		require.ErrorIs(t, outer.Unlock(t.Context()), ErrLeaseLost)
		require.Error(t, <-failed)
		time.Sleep(time.Second)
		require.Len(t, f.calls("release"), 1)
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
		require.Equal(t, []time.Duration{0, 100 * time.Millisecond, time.Second, 2 * time.Second}, f.times("count"),
			"at once, after the late answer, and when a copy of the first request must have been executed as well")
		for _, corrected := range counts[1:] {
			require.Equal(t, 1, corrected.holds)
		}
		require.NoError(t, hold.Unlock(held))
	})
}

// A nested call that comes while a request about the count is under way waits for the next one: the first does not count it.
func TestFakeTimeNestedCallWhileCounting(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		answer := make(chan struct{})
		f.onCount = func(context.Context, int) error { <-answer; return nil }
		nested := make(chan *Hold, 2)
		for range 2 {
			go func() {
				_, inner, err := l.Lock(held)
				assert.NoError(t, err)
				nested <- inner
			}()
			synctest.Wait()
		}
		require.Len(t, f.calls("count"), 1)
		answer <- struct{}{}
		first := <-nested
		synctest.Wait()
		require.Empty(t, nested, "the server does not know of it yet")
		close(answer)
		second := <-nested
		require.Equal(t, 3, f.calls("count")[1].holds)
		require.NoError(t, first.Unlock(held))
		require.NoError(t, second.Unlock(held))
		require.NoError(t, hold.Unlock(held))
	})
}

// While a request about the count is under way, a nested call waits for the next one, and leaves. Nobody waits for that
// next request any more, but the call that comes then does not rely on it: it has one of its own.
func TestFakeTimeNestedCallBehindOneThatLeft(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		answer := make(chan struct{})
		f.onCount = func(context.Context, int) error { <-answer; return nil }
		nested := make(chan *Hold, 2)
		nest := func(ctx context.Context, want error) {
			go func() {
				_, inner, err := l.Lock(ctx)
				assert.ErrorIs(t, err, want)
				nested <- inner
			}()
			synctest.Wait()
		}
		nest(held, nil)
		ctx, leave := context.WithCancel(held)
		nest(ctx, context.Canceled)
		leave()
		require.Nil(t, <-nested)
		nest(held, nil)
		close(answer)
		synctest.Wait()
		for range 2 {
			require.NoError(t, (<-nested).Unlock(held))
		}
		require.NoError(t, hold.Unlock(held))
		require.Equal(t, 3, f.calls("count")[1].holds)
	})
}

// A request about the hold count is repeated, and the first attempt, an older count perhaps, is answered after all: the
// count is told again.
func TestFakeTimeLateCountIsCorrected(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		f.onCount = func(_ context.Context, n int) error {
			if n == 1 {
				time.Sleep(l.bound * 3 / 2) // go-redis heeds no context
			}
			return nil
		}
		_, inner, err := l.Lock(held)
		require.NoError(t, err)
		require.Len(t, f.calls("count"), 2)
		sleepLong(time.Minute)
		times := f.times("count")
		require.Len(t, times, 5, "two attempts; for the doubt, a second after the answer; for the late answer, at once and a second after it")
		require.Equal(t, l.bound*3/2, times[2])
		require.Equal(t, l.bound*3/2+time.Second, times[4])
		require.NoError(t, inner.Unlock(held))
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

// FuzzReadProof: whatever a proof is made of, it is read as it was written, and only for
// its own lock.
func FuzzReadProof(f *testing.F) {
	written := proof{"d2k7m3o6n88ekjf0v0vg:17", 1763655000123456, 30 * time.Second}.text("a")
	f.Add("a", written)
	f.Add("a", written+", "+written)
	f.Add("b", written)
	f.Add("", "rlock1.:.0.1.")
	f.Add("a", "rlock1.x:1.+5.30000.0123456789abcdef")
	f.Fuzz(func(t *testing.T, key, text string) {
		proofs, err := readProofs(key, text)
		if (err == nil) != (len(proofs) > 0) {
			t.Errorf("%q is read as %v, %v", text, proofs, err)
		}
		for _, p := range proofs {
			if !strings.Contains(text, p.text(key)) {
				t.Errorf("%q is read as %v", text, p)
			}
		}
		if got, err := readProofs(key, written); (err == nil) != (key == "a") {
			t.Errorf("the proof of a, for %q: %v, %v", key, got, err)
		}
	})
}
