package rlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

var retries = map[string]func(*redis.Options){
	"defaults":      func(*redis.Options) {},
	"MaxRetries 10": func(o *redis.Options) { o.MaxRetries = 10 },
	"MaxRetries -1": func(o *redis.Options) { o.MaxRetries = -1 },
}

// One reply is lost at one step, and every step does exactly what it should.
func TestLostReply(t *testing.T) {
	srv := newServer(t)
	teach(t, srv)
	rdb := srv.Client(t)
	for config, edit := range retries {
		c, p := through(t, srv, nil, edit)
		for at, step := range []string{"acquire", "nested Lock", "nested Unlock", "release"} {
			t.Run(config+"/"+step, func(t *testing.T) {
				mu := c.NewLock("a", rlock.WithFencing())
				cut := p.Stats().RepliesCut
				fault := func(n int) {
					if n == at {
						p.CutReplies(1, netfault.Command("evalsha"))
					}
				}
				fault(0)
				held, hold := lock(t, t.Context(), mu)
				require.Equal(t, 1, holds(t, rdb, "a"))
				fault(1)
				inner, innerHold := lock(t, held, mu)
				require.Equal(t, 2, holds(t, rdb, "a"))
				require.Equal(t, hold.Token(), innerHold.Token())
				token, err := rdb.Get(t.Context(), "redisson_lock_token:{a}").Int64()
				require.NoError(t, err)
				require.Equal(t, token, hold.Token(), "a repeated acquire takes no second token")
				fault(2)
				require.NoError(t, innerHold.Unlock(inner))
				require.Equal(t, 1, holds(t, rdb, "a"))
				fault(3)
				require.NoError(t, hold.Unlock(held))
				require.Zero(t, holds(t, rdb, "a"))
				require.EqualValues(t, 1, p.Stats().RepliesCut-cut)
			})
		}
	}
}

// A quarter of all replies is lost, at random, while the lock is taken and given
// back at random depths.
func TestLostRepliesAtRandom(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	teach(t, srv)
	rdb := srv.Client(t)
	for config, edit := range retries {
		t.Run(config, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			c, p := through(t, srv, nil, edit)
			mu := c.NewLock("a")
			p.CutRandom(0.25, seed, netfault.Command("evalsha"))
			rng := rand.New(rand.NewPCG(seed, 1))
			type level struct {
				held context.Context
				hold *rlock.Hold
			}
			levels := []level{{held: t.Context()}}
			for range 150 {
				depth := len(levels) - 1
				if depth == 0 || depth < 5 && rng.IntN(2) == 0 {
					held, hold := lock(t, levels[depth].held, mu)
					levels = append(levels, level{held, hold})
				} else {
					require.NoError(t, levels[depth].hold.Unlock(t.Context()))
					levels = levels[:depth]
				}
				// On a busy machine a request gets copies, and a late one sets the count back until the client hears of it.
				redistest.Eventually(t, "the count", func() bool { return holds(t, rdb, "a") == len(levels)-1 })
			}
			for i := len(levels) - 1; i > 0; i-- {
				require.NoError(t, levels[i].hold.Unlock(t.Context()))
			}
			require.Zero(t, holds(t, rdb, "a"))
			t.Logf("%d replies lost", p.Stats().RepliesCut)
			require.Greater(t, p.Stats().RepliesCut, int64(20))
		})
	}
}

// late is how a client waits for an answer that comes too late: on the
// connection, or no longer.
var late = map[string]func(*redis.Options){
	"connection open":   func(*redis.Options) {},
	"connection closed": func(o *redis.Options) { o.ReadTimeout = 50 * time.Millisecond },
}

func TestLateAcquire(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second
	for name, edit := range late {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			teach(t, srv)
			rdb := srv.Client(t)
			c, p := through(t, srv, &rlock.Options{LeaseTime: lease, Identity: rlock.Anonymous()}, edit)
			caught := p.Hold(isScript("try"))
			ctx, leave := context.WithCancel(t.Context())
			done := async(func() error { _, _, err := c.NewLock("a").Lock(ctx); return err })
			require.NoError(t, caught.Wait(t.Context()))
			leave()
			require.ErrorIs(t, within(t, 10*time.Second, done), context.Canceled)
			left := time.Now()
			if name == "connection closed" {
				redistest.Eventually(t, "a clean-up at once", func() bool { return srv.CommandCalls(t)["evalsha"] >= 1 })
			}
			require.NoError(t, caught.Deliver(t.Context()))
			if name == "connection closed" {
				require.EqualValues(t, 1, srv.CommandCalls(t)["hset"], "an orphan; maybe the second clean-up was there already")
			}
			requireFree(t, rdb, time.Until(left.Add(lease/3+slack)), "a")
			t.Logf("free %v after the caller left", time.Since(left))
		})
	}
}

func TestLateNestedLock(t *testing.T) {
	t.Parallel()
	for name, edit := range late {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			teach(t, srv)
			rdb := srv.Client(t)
			c, p := through(t, srv, nil, edit)
			mu := c.NewLock("a")
			if name == "connection open" { // that of a request which its caller does not wait for
				p.Delay(0, 20*time.Millisecond)
			}
			held, hold := lock(t, t.Context(), mu)
			p.Delay(0, 0)
			caught := p.Hold(isScript("count"))
			ctx, leave := context.WithCancel(held)
			done := async(func() error { _, _, err := mu.Lock(ctx); return err })
			require.NoError(t, caught.Wait(t.Context()))
			leave()
			require.ErrorIs(t, within(t, 10*time.Second, done), rlock.ErrUnavailable)
			require.Equal(t, 1, mu.HoldCount(held))
			redistest.Eventually(t, "the corrective count", func() bool { return srv.CommandCalls(t)["evalsha"] >= 2 }) // more, if the machine is busy
			require.NoError(t, caught.Deliver(t.Context()))
			if name == "connection open" {
				redistest.Eventually(t, "the count is corrected again", func() bool { return holds(t, rdb, "a") == 1 })
			}
			next, nextHold := lock(t, held, mu)
			require.Equal(t, 2, holds(t, rdb, "a"), "the next call shows the truth")
			require.NoError(t, nextHold.Unlock(next))
			require.NoError(t, hold.Unlock(held))
			require.Zero(t, holds(t, rdb, "a"))
		})
	}
}

// A nested Lock is sent again while its first request is on its way, which
// arrives when the count has come back to what it was.
func TestLateNestedLockAfterItsRepetition(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	teach(t, srv)
	rdb := srv.Client(t)
	c, p := through(t, srv, &rlock.Options{LeaseTime: 9 * time.Second})
	mu := c.NewLock("a")
	held, hold := lock(t, t.Context(), mu)
	caught := p.Hold(isScript("count"))
	inner, innerHold := lock(t, held, mu)
	require.NotNil(t, caught.Args())
	require.NoError(t, innerHold.Unlock(inner))
	require.NoError(t, caught.Deliver(t.Context()))
	require.NoError(t, hold.Unlock(held))
	require.Zero(t, holds(t, rdb, "a"))
}

func TestLateRelease(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{true, false} {
		t.Run(fmt.Sprintf("next holder in the same client: %v", same), func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			teach(t, srv)
			rdb := srv.Client(t)
			c, p := through(t, srv, &rlock.Options{LeaseTime: 9 * time.Second})
			other := newClient(t, srv, nil)
			held, hold := lock(t, t.Context(), c.NewLock("a"))
			caught := p.Hold(isScript("release"))
			require.NoError(t, hold.Unlock(held))
			require.NotNil(t, caught.Args())
			require.Zero(t, holds(t, rdb, "a"))
			next := other
			if same {
				next = c
			}
			nextHeld, nextHold := lock(t, t.Context(), next.NewLock("a"))
			require.NoError(t, caught.Deliver(t.Context()))
			require.Equal(t, 1, holds(t, rdb, "a"))
			_, _, err := newClient(t, srv, nil).NewLock("a").TryLock(t.Context())
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			require.NoError(t, nextHeld.Err())
			require.NoError(t, nextHold.Unlock(nextHeld))
		})
	}
}

// A hook that sends everything two times can make a release look lost; everything else holds.
func TestHookThatSendsTwice(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	doubled := srv.Client(t)
	doubled.AddHook(redistest.SendTwice())
	renewed := make(chan struct{}, 1000)
	c := clientOn(t, doubled, &rlock.Options{LeaseTime: 9 * time.Second, Trace: rlock.Trace{Renewed: func(rlock.Renewal) { renewed <- struct{}{} }}})
	mu := c.NewLock("a", rlock.WithFencing())
	notHeld := func(err error) {
		t.Helper()
		if err != nil {
			assert.ErrorIs(t, err, rlock.ErrLeaseLost)
		}
	}

	held, hold := lock(t, t.Context(), mu)
	inner, innerHold := lock(t, held, mu)
	require.Equal(t, 2, holds(t, rdb, "a"))
	require.Equal(t, rdb.Get(t.Context(), "redisson_lock_token:{a}").Val(), fmt.Sprint(hold.Token()))
	awaitRenewals(t, renewed, 3)
	require.NoError(t, innerHold.Unlock(inner))
	require.Equal(t, 1, holds(t, rdb, "a"))
	require.NoError(t, held.Err())
	notHeld(hold.Unlock(held))
	require.Zero(t, holds(t, rdb, "a"))

	var inside atomic.Int64
	var all sync.WaitGroup
	other := newClient(t, srv, nil).NewLock("a", rlock.WithFencing())
	for _, mu := range []*rlock.Lock{mu, mu, other, other} {
		all.Go(func() {
			for range 50 {
				notHeld(mu.Do(t.Context(), func(context.Context) error {
					assert.EqualValues(t, 1, inside.Add(1))
					inside.Add(-1)
					return nil
				}))
			}
		})
	}
	all.Wait()
	require.Zero(t, holds(t, rdb, "a"))
}

// Answers that take longer than an attempt waits for are never used: docs/guarantees.md says so.
func TestFakeTimeAnswersAfterTheBound(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		for late, gets := range map[time.Duration]bool{1900 * time.Millisecond: true, 3 * time.Second: false} {
			f := newFakeRedis(t)
			f.teach(t)
			mu := f.client(t, nil).NewLock("a")
			f.late.Store(int64(late))
			held, hold, err := mu.TryLockFor(t.Context(), time.Minute)
			if gets {
				require.NoError(t, err)
				require.NoError(t, hold.Unlock(held))
				continue
			}
			require.ErrorIs(t, err, rlock.ErrUnavailable)
			f.heal()
		}
	})
}
