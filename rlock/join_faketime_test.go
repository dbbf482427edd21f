package rlock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// A holder that is a client of its own, and somebody who joins its hold after a while. The
// lease is 30 s. The functions of the holder's client are those of another process: kill
// has it renew no more.
type hosted struct {
	*fakeRedis
	held         context.Context
	hold         *rlock.Hold
	theirs, ours *rlock.Lock
	kill         func()
}

func newHosted(t *testing.T, opts ...rlock.LockOption) *hosted {
	f := newFakeRedis(t)
	c, err := rlock.New(f.rdb, &rlock.Options{Identity: rlock.Anonymous()}) // what the server has is compared
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(bounded(t, 0)) })
	h := &hosted{fakeRedis: f, theirs: c.NewLock("a", opts...), ours: f.client(t, nil).NewLock("a")}
	h.held, h.hold = lock(t, t.Context(), h.theirs)
	h.kill = func() {
		require.Error(t, c.Close(bounded(t, 0)))
		synctest.Wait()
	}
	return h
}

// bounded returns a context that is over after d.
func bounded(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// requireGivenUpInTime compares how long before the end of a lease on the server one who has
// joined it gives it up: the drift and the guard of a lease of 30 s at most, of 20 s at least,
// as more is left than that when it is looked at. A request in a bubble takes no time. The
// server says in whole milliseconds what is left.
func requireGivenUpInTime(t *testing.T, end time.Time) {
	t.Helper()
	left := time.Until(end)
	require.GreaterOrEqual(t, left, 20*time.Second-lapse(20*time.Second))
	require.LessOrEqual(t, left, 30*time.Second-lapse(30*time.Second)+time.Millisecond)
}

func TestFakeTimeJoinedIsConfirmed(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHosted(t)
		time.Sleep(4 * time.Second)
		joined, mine := join(t, t.Context(), h.ours, h.hold.Proof())
		began := len(h.scripts("confirm"))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.NoError(t, joined.Err())
		at := slices.Compact(h.scripts("confirm")[began-1:])
		require.InDelta(t, 360, len(at), 60, "at each third of the lease, as far as that is known")
		for _, pause := range pauses(at)[1:] {
			require.LessOrEqual(t, pause, 10*time.Second)
		}
		require.NoError(t, mine.Unlock(joined))
		synctest.Wait()
		sent := len(h.scripts("confirm"))
		time.Sleep(time.Minute)
		require.Len(t, h.scripts("confirm"), sent)
		require.NoError(t, h.held.Err())
		require.NoError(t, h.hold.Unlock(h.held))
	})
}

// The holder is killed at some time: whoever has joined stops before the lease is over,
// which is when somebody else can hold it.
func TestFakeTimeJoinedEndsBeforeTheLeaseOfADeadHolder(t *testing.T) {
	for at := range 20 {
		redistest.Bubble(t, func(t *testing.T) {
			h := newHosted(t)
			time.Sleep(time.Duration(at) * 530 * time.Millisecond)
			joined, mine := join(t, t.Context(), h.ours, h.hold.Proof())
			time.Sleep(time.Duration(at) * 1710 * time.Millisecond)
			synctest.Wait()
			h.kill()
			end := time.Now().Add(h.TTL("a"))
			<-joined.Done()
			require.True(t, h.Exists("a"))
			requireGivenUpInTime(t, end)
			require.ErrorIs(t, context.Cause(joined), rlock.ErrLeaseLost)
			require.ErrorContains(t, context.Cause(joined), "its holder does not renew it")
			require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)
			synctest.Wait()
			require.True(t, h.Exists("a"), "what is left of the lease is not for the guest to give back")
			require.LessOrEqual(t, len(h.scripts("confirm")), 20)
		})
	}
}

// A fixed lease is never renewed: it is looked at little more often for that.
func TestFakeTimeJoinedFixedLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHosted(t, rlock.WithoutRenewal())
		end := time.Now().Add(h.TTL("a"))
		time.Sleep(5 * time.Second)
		joined, mine := join(t, t.Context(), h.ours, h.hold.Proof())
		<-joined.Done()
		requireGivenUpInTime(t, end)
		require.LessOrEqual(t, len(h.scripts("confirm")), 8)
		require.Error(t, mine.Unlock(joined))
		require.Error(t, h.hold.Unlock(h.held))
	})
}

// Redis goes silent for whoever has joined, in each way that it can.
func TestFakeTimeJoinedWhileRedisIsSilent(t *testing.T) {
	for name, fault := range silences {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				h := newHosted(t)
				time.Sleep(time.Second)
				joined, mine := join(t, t.Context(), h.ours, h.hold.Proof())
				require.Equal(t, time.Now().Add(29*time.Second-29*time.Second/100-2*time.Millisecond), mine.Until())
				time.Sleep(31 * time.Second)
				synctest.Wait()
				fault(h.fakeRedis)
				until := mine.Until()
				<-joined.Done()
				require.LessOrEqual(t, time.Until(until), 3*time.Second)
				require.GreaterOrEqual(t, time.Until(until), 29*time.Second/10)
				h.heal()
				require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)
			})
		})
	}
}

// The server looks at the lock, and its answer takes a second or two: that counts from
// before the request.
func TestFakeTimeLateAnswerToAJoin(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHosted(t)
		time.Sleep(time.Second)
		f := h.fakeRedis
		f.teach(t)
		sent := time.Now()
		f.late.Store(int64(1500 * time.Millisecond))
		joined, mine := join(t, t.Context(), h.ours, h.hold.Proof())
		require.Greater(t, time.Since(sent), time.Second)
		require.LessOrEqual(t, mine.Until(), sent.Add(29*time.Second))
		f.late.Store(0)
		require.NoError(t, mine.Unlock(joined))

		require.NoError(t, f.rdb.PExpire(t.Context(), "a", time.Second).Err())
		f.late.Store(int64(1500 * time.Millisecond))
		_, none, err := h.ours.Join(t.Context(), h.hold.Proof())
		require.ErrorIs(t, err, rlock.ErrNotHeld, "when the answer came the lease was over, and so it is when asked again")
		require.Nil(t, none)
		f.heal()
		require.Error(t, h.hold.Unlock(h.held))
	})
}

func TestFakeTimeJoinGivesUp(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHosted(t)
		proof := h.hold.Proof()
		h.deafUp.Store(true)
		began := time.Now()
		_, _, err := h.ours.Join(bounded(t, 3*time.Second), proof)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		began = time.Now()
		_, _, err = h.ours.Join(t.Context(), proof)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		h.heal()
		require.Error(t, h.hold.Unlock(h.held))
	})
}

// What ends a hold on the server ends what was joined at the next look.
func TestFakeTimeJoinedEndsWithTheHold(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, h *hosted){
		"unlocked": func(t *testing.T, h *hosted) { require.NoError(t, h.hold.Unlock(h.held)) },
		"forced": func(t *testing.T, h *hosted) {
			_, err := h.ours.ForceUnlock(t.Context())
			require.NoError(t, err)
		},
		"flushed":    func(_ *testing.T, h *hosted) { h.FlushAll() },
		"taken over": func(_ *testing.T, h *hosted) { h.FlushAll(); h.holder("a", time.Hour) },
		"another type": func(_ *testing.T, h *hosted) {
			h.FlushAll()
			_ = h.Set("a", "text")
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				h := newHosted(t)
				joined, mine := join(t, t.Context(), h.ours, h.hold.Proof())
				time.Sleep(time.Minute)
				nested, in := lock(t, joined, h.ours)
				synctest.Wait()
				end(t, h)
				before, began := h.Dump(), time.Now()
				<-nested.Done()
				<-joined.Done()
				require.LessOrEqual(t, time.Since(began), 10*time.Second)
				require.ErrorIs(t, context.Cause(nested), rlock.ErrLeaseLost)
				require.ErrorContains(t, context.Cause(joined), "the holder has unlocked it, or lost it")
				_, _, err := h.ours.Lock(nested)
				require.ErrorIs(t, err, rlock.ErrLeaseLost)
				require.ErrorIs(t, in.Unlock(nested), rlock.ErrLeaseLost)
				require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)
				synctest.Wait()
				require.Equal(t, before, h.Dump(), "nobody else's lock is touched")
				_ = h.hold.Unlock(h.held)
			})
		})
	}
}

// The owner on the server stays the same while goroutines pass the lock on in memory, so
// the proof of one of them must not be good for the next.
func TestFakeTimeProofIsNotPassedOn(t *testing.T) {
	for name, make := range map[string]func(*rlock.Client, ...rlock.LockOption) *rlock.Lock{
		"plain": func(c *rlock.Client, o ...rlock.LockOption) *rlock.Lock { return c.NewLock("a", o...) },
		"fair":  func(c *rlock.Client, o ...rlock.LockOption) *rlock.Lock { return c.NewFairLock("a", o...) },
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu, ours := make(f.client(t, nil)), make(f.client(t, nil))
				held, hold := lock(t, t.Context(), ours)
				var waiters []*waiting
				for range 4 {
					waiters = append(waiters, begin(t.Context(), mu))
					synctest.Wait()
				}
				require.NoError(t, hold.Unlock(held))
				held, hold = waiters[0].acquired(t)
				owner := hold.Owner()
				require.NoError(t, hold.Unlock(held))
				held, hold = waiters[1].acquired(t)
				require.Equal(t, owner, hold.Owner(), "passed on in memory: nobody has a proof")

				proof := hold.Proof()
				joined, mine := join(t, t.Context(), ours, proof)
				require.NoError(t, hold.Unlock(held))
				held, hold = waiters[2].acquired(t)
				require.NotEqual(t, owner, hold.Owner())
				_, _, err := ours.Join(t.Context(), proof)
				require.ErrorIs(t, err, rlock.ErrNotHeld)
				<-joined.Done()
				require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)

				owner = hold.Owner()
				require.NoError(t, hold.Unlock(held))
				held, hold = waiters[3].acquired(t)
				require.Equal(t, owner, hold.Owner(), "that one gave no proof out")
				require.NoError(t, hold.Unlock(held))
			})
		})
	}
}

// Many may join one hold; also far from Redis, where a lease is not much longer than
// the way. There the network of the bubble takes that long for each part of an answer.
func TestFakeTimeManyJoined(t *testing.T) {
	for n, late := range map[int]time.Duration{100: 0, 10: 50 * time.Millisecond} {
		redistest.Bubble(t, func(t *testing.T) {
			h := newHosted(t, rlock.WithLeaseTime(3*time.Second))
			h.late.Store(int64(late))
			proof := h.hold.Proof()
			contexts, holds := make([]context.Context, n), make([]*rlock.Hold, n)
			var all sync.WaitGroup
			for i := range holds {
				all.Go(func() {
					var err error
					contexts[i], holds[i], err = h.ours.Join(t.Context(), proof)
					assert.NoError(t, err)
				})
			}
			all.Wait()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			for i := range n / 2 {
				require.NoError(t, contexts[i].Err())
				require.NoError(t, holds[i].Unlock(contexts[i]))
			}
			h.kill()
			end := time.Now().Add(h.TTL("a"))
			for i := n / 2; i < n; i++ {
				<-contexts[i].Done()
				require.ErrorIs(t, holds[i].Unlock(contexts[i]), rlock.ErrLeaseLost)
			}
			require.True(t, time.Now().Before(end))
			h.heal()
		})
	}
}
