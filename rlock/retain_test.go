package rlock_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// kept locks and unlocks until the client keeps the lock: it has to be able to hear of a
// recall first.
func kept(t *testing.T, srv *redistest.Server, mu *rlock.Lock) {
	t.Helper()
	redistest.Eventually(t, "the client keeps the lock", func() bool {
		held, hold := lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
		return srv.Client(t).Exists(t.Context(), mu.Name()).Val() == 1
	})
}

// awaitFree tries until it gets the lock, and unlocks it.
func awaitFree(t *testing.T, mu *rlock.Lock) {
	t.Helper()
	redistest.Eventually(t, "the lock is given back", func() bool {
		held, hold, err := mu.TryLock(t.Context())
		if err == nil {
			require.NoError(t, hold.Unlock(held))
		}
		return err == nil
	})
}

func TestRetainedLockNeedsNoRoundTrip(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	for name, opts := range map[string][]rlock.LockOption{
		"plain":  {rlock.WithRetention(time.Hour)},
		"fenced": {rlock.WithRetention(time.Hour), rlock.WithFencing()},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, srv, nil)
			for _, mu := range []*rlock.Lock{c.NewLock(name, opts...), c.NewLock(name+" too", opts...)} {
				kept(t, srv, mu)
				var tokens []int64
				commands := sent(t, srv, func() {
					for i := range 100 {
						held, hold := lock(t, t.Context(), mu)
						tokens = append(tokens, hold.Token())
						require.NoError(t, hold.Unlock(held))
						if i%2 == 0 {
							held, hold, err := mu.TryLock(t.Context())
							require.NoError(t, err)
							tokens = append(tokens, hold.Token())
							require.NoError(t, hold.Unlock(held))
						}
					}
				})
				require.Empty(t, commands)
				for i := range tokens[1:] {
					if tokens[0] > 0 {
						require.Greater(t, tokens[i+1], tokens[i])
					}
				}
				state, err := mu.Inspect(t.Context())
				require.NoError(t, err)
				require.Equal(t, map[string]int64{state.Owner(): 0}, state.Holds)
			}
			require.NoError(t, closeSoon(c))
			require.Zero(t, srv.Client(t).Exists(t.Context(), name, name+" too").Val(), "Close releases what is kept")
		})
	}
}

// TryLock of a kept lock with tokens sends nothing either: the client has reserved tokens
// when it acquired the lock.
func TestRetainedFencedTryLock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour), rlock.WithFencing())
	try := func() {
		held, hold, err := mu.TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
	}
	redistest.Eventually(t, "the client keeps the lock", func() bool {
		try()
		return srv.Client(t).Exists(t.Context(), "a").Val() == 1
	})
	require.Empty(t, sent(t, srv, try))
}

// Clients of one lock that all keep it recall it from each other.
func TestRetainedLockIsRecalled(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	a := newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour))
	b := newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour))
	for range 20 {
		for _, mu := range []*rlock.Lock{a, b} {
			held, hold := lock(t, t.Context(), mu)
			require.NoError(t, hold.Unlock(held))
			kept(t, srv, mu)
		}
	}
	plain := newClient(t, srv, nil).NewLock("a")
	kept(t, srv, a)
	awaitFree(t, plain) // the first attempt recalls it
	kept(t, srv, a)
	multi := rlock.NewMultiLock(plain, newClient(t, srv, nil).NewLock("b"))
	held, hold := lock(t, t.Context(), multi)
	require.NoError(t, hold.Unlock(held))
}

// A recall that comes while somebody holds the lock counts when it is unlocked.
func TestRecallWaitsForTheHold(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	a := newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour))
	b := newClient(t, srv, nil).NewLock("a")
	kept(t, srv, a)
	held, hold := lock(t, t.Context(), a)
	w := begin(t.Context(), b)
	awaitQueue(t, srv.Client(t), "a", 1)
	require.NoError(t, held.Err())
	require.NoError(t, hold.Unlock(held))
	heldB, holdB := w.acquired(t)
	require.NoError(t, holdB.Unlock(heldB))
}

// What nests in a hold of a lock that was kept is counted on the server, and the count
// does not hide later that the lock is kept.
func TestRetainedLockNests(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour))
	kept(t, srv, mu)
	held, hold := lock(t, t.Context(), mu)
	inner, innerHold := lock(t, held, mu)
	require.Equal(t, 2, holds(t, srv.Client(t), "a"))
	require.NoError(t, innerHold.Unlock(inner))
	require.NoError(t, hold.Unlock(held))
	other := newClient(t, srv, nil).NewLock("a")
	held, hold = lock(t, t.Context(), other)
	require.NoError(t, hold.Unlock(held))
}

// Goroutines of one client pass a kept lock on among themselves.
func TestRetainedLockIsHandedOff(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	locks := []*rlock.Lock{
		newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Millisecond), rlock.WithFencing()),
		newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour), rlock.WithFencing()),
		newClient(t, srv, nil).NewLock("a", rlock.WithFencing()),
	}
	var all sync.WaitGroup
	var inside int
	var token int64
	for i := range 24 {
		all.Go(func() {
			for range 200 {
				err := locks[i%3].Do(context.Background(), func(ctx context.Context) error {
					inside++
					assert.Equal(t, 1, inside)
					newer := locks[i%3].Token(ctx)
					assert.Greater(t, newer, token)
					token = newer
					inside--
					return nil
				})
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
}

const shortRetention = 200 * time.Millisecond

// requireReleasedInUse takes and leaves a lock with shortRetention without a pause, until a
// listener of a server hears that it was released.
func requireReleasedInUse(t *testing.T, srv *redistest.Server, mu *rlock.Lock) {
	t.Helper()
	sub := srv.Client(t).Subscribe(t.Context(), lua.UnlockChannel(mu.Name()))
	defer sub.Close()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	heard := sub.Channel()
	for end := time.Now().Add(shortRetention + 2*slack); ; {
		held, hold := lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
		select {
		case <-heard:
			return
		default:
			require.True(t, time.Now().Before(end), "it was not released")
		}
	}
}

// In a cluster, a node can tell who listens to a channel on itself only. Somebody who
// listens on another node hears of a release when the time of the retention is over, although the
// owner never stops to take the lock.
func TestClusterRetainedLockIsReleasedForListenersElsewhere(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	c := clientOn(t, cluster.Client(t), &rlock.Options{ShardedPubSub: rlock.ShardedOff})
	mu := c.NewLock("a", rlock.WithRetention(shortRetention))
	owner := cluster.Owner(cluster.Slot("a"))
	other := cluster.Nodes[0]
	if other == owner {
		other = cluster.Nodes[1]
	}
	kept(t, owner, mu)
	requireReleasedInUse(t, other, mu)
}

// A user without the right to PUBSUB cannot ask who listens. The lock is released when the
// time of the retention is over all the same.
func TestRetainedLockWithoutRightToPubsub(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	require.NoError(t, srv.Client(t).Do(t.Context(), "ACL", "SETUSER", "u", "on", "nopass", "~*", "&*", "+@all", "-pubsub").Err())
	rdb := srv.Client(t, func(o *redis.Options) { o.Username = "u"; o.Password = "x" })
	mu := clientOn(t, rdb, nil).NewLock("a", rlock.WithRetention(shortRetention))
	kept(t, srv, mu)
	requireReleasedInUse(t, srv, mu)
}

// A client recalls a kept lock from one that listens with another Options.ShardedPubSub.
func TestClusterRecallReachesEveryKindOfChannel(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	client := func(mode rlock.ShardedPubSub) *rlock.Client {
		return clientOn(t, cluster.Client(t), &rlock.Options{ShardedPubSub: mode})
	}
	for name, modes := range map[string][2]rlock.ShardedPubSub{
		"a": {rlock.ShardedOff, rlock.ShardedOn}, "b": {rlock.ShardedOn, rlock.ShardedOff},
		"c": {rlock.ShardedBoth, rlock.ShardedOn}, "d": {rlock.ShardedBoth, rlock.ShardedOff},
		"e": {rlock.ShardedOff, rlock.ShardedBoth}, "f": {rlock.ShardedOn, rlock.ShardedBoth},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := client(modes[0]).NewLock(name, rlock.WithRetention(time.Hour)), client(modes[1]).NewFairLock(name)
			kept(t, cluster.Owner(cluster.Slot(name)), a)
			began := time.Now()
			held, hold := lock(t, t.Context(), b)
			require.NoError(t, hold.Unlock(held))
			require.Less(t, time.Since(began), slack, "by the recall, not by asking again after 5 s")
		})
	}
}

// A caller without WithRetention gets the lock although eight others of the same client,
// all with WithRetention, take the kept lock without a pause. It comes at any moment: also
// when one has just unlocked, and the next does not hold the lock yet.
func TestRetainedLockIsNotKeptFromOtherOptions(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, nil)
	for i := range 100 {
		name := strconv.Itoa(i)
		keeping, other := c.NewLock(name, rlock.WithRetention(time.Hour)), c.NewLock(name)
		kept(t, srv, keeping)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for ctx.Err() == nil {
					_ = keeping.Do(ctx, func(context.Context) error { return nil })
				}
			})
		}
		time.Sleep(time.Millisecond)
		held, hold, err := other.TryLockFor(t.Context(), 20*time.Second) // the lock would be kept for an hour
		cancel()
		all.Wait()
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
	}
}

// balanced requires that each acquisition that a client has counted has one end.
func balanced(t *testing.T, c *rlock.Client) {
	t.Helper()
	for _, k := range c.Stats().Kinds {
		require.Equal(t, k.Acquired(), k.Released+k.Lost, "%+v", k)
		require.Zero(t, k.Held, "%+v", k)
		require.Zero(t, k.Waiting, "%+v", k)
	}
}

// A lock that a client keeps is taken in memory, by a plain Lock and as a member of a MultiLock. Either
// way each acquisition is counted once, for the lock that was called, and so is its end.
func TestRetainedLockInMultiLockIsCounted(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	t.Run("parked by a plain lock", func(t *testing.T) {
		c := newClient(t, srv, nil)
		a, b := c.NewLock("a", rlock.WithRetention(time.Hour)), c.NewLock("b")
		kept(t, srv, a)
		held, hold := lock(t, t.Context(), rlock.NewMultiLock(a, b))
		require.NoError(t, hold.Unlock(held))
		balanced(t, c)
	})
	t.Run("parked by a member", func(t *testing.T) {
		c := newClient(t, srv, nil)
		a, b := c.NewLock("c", rlock.WithRetention(time.Hour)), c.NewLock("d", rlock.WithRetention(time.Hour))
		multi := rlock.NewMultiLock(a, b)
		redistest.Eventually(t, "the client keeps the lock", func() bool {
			held, hold := lock(t, t.Context(), multi)
			require.NoError(t, hold.Unlock(held))
			return srv.Client(t).Exists(t.Context(), "c").Val() == 1
		})
		held, hold := lock(t, t.Context(), a)
		require.NoError(t, hold.Unlock(held))
		balanced(t, c)
		for _, k := range c.Stats().Kinds {
			require.Zero(t, k.Calls[rlock.OutcomeNested], "nothing was nested: %+v", k)
		}
	})
}

// The time in which nobody held the lock is not part of a hold.
func TestFakeTimeRetainedLockIsNotHeldWhileItIsParked(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		var holds []time.Duration
		c := f.client(t, &rlock.Options{Trace: rlock.Trace{Released: func(_ context.Context, r rlock.Release) {
			holds = append(holds, r.Held)
		}}})
		mu := c.NewLock("a", rlock.WithRetention(time.Hour))
		keep(t, f, mu)
		holds = nil
		time.Sleep(time.Minute)
		asked := len(f.asked())
		held, hold := lock(t, t.Context(), mu)
		time.Sleep(time.Second)
		require.NoError(t, hold.Unlock(held))
		require.Len(t, f.asked(), asked, "it was kept")
		require.Equal(t, []time.Duration{time.Second}, holds)
	})
}

// A kept lock is lost right after it was used. No context depended on it, but that use may have
// been beside another holder: the loss is told once, however the client finds it out.
func TestFakeTimeLossOfParkedGrantIsReported(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *rlock.Client){
		"close": func(*testing.T, *rlock.Client) {},
		"other options": func(t *testing.T, c *rlock.Client) {
			held, hold := lock(t, t.Context(), c.NewLock("a"))
			_ = hold.Unlock(held)
		},
	} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			lost := 0
			c := f.client(t, &rlock.Options{Trace: rlock.Trace{Lost: func(rlock.Loss) { lost++ }}})
			keep(t, f, c.NewLock("a", rlock.WithRetention(time.Hour)))
			f.FlushAll()
			end(t, c)
			require.NoError(t, closeSoon(c))
			require.Equal(t, 1, lost, name)
			require.EqualValues(t, 1, c.Stats().Losses[rlock.LossGone], name)
		})
	}
}

// No renewal of a kept lock is answered for a whole lease, so the client has to give the
// lock up. The server has executed the renewals and would keep the lock for another lease:
// the client releases it.
func TestFakeTimeLostParkedGrantIsReleased(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const lease = 30 * time.Second
		f := newFakeRedis(t)
		f.teach(t)
		var lost atomic.Bool // the server executes renewals, and the client gets no answers
		renewal := isScript("renew")
		f.rdb.AddHook(redistest.Hook{Pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			err := next(ctx, cmds)
			for _, cmd := range cmds {
				if len(cmd.Args()) > 1 && lost.Load() && renewal([]string{cmd.Name(), fmt.Sprint(cmd.Args()[1])}) {
					err = os.ErrDeadlineExceeded
					cmd.SetErr(err)
				}
			}
			return err
		}})
		mu := f.client(t, &rlock.Options{LeaseTime: lease}).NewLock("a", rlock.WithRetention(time.Hour))
		for range 3 {
			held, hold := lock(t, t.Context(), mu)
			time.Sleep(time.Second)
			require.NoError(t, hold.Unlock(held))
		}
		require.True(t, f.Exists("a"))
		lost.Store(true)
		time.Sleep(lease)
		lost.Store(false)
		time.Sleep(time.Second)
		require.False(t, f.Exists("a"), "nobody has it")
		began := time.Now()
		held, hold, err := mu.TryLockFor(t.Context(), time.Minute)
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
		require.Less(t, time.Since(began), time.Second)
	})
}

// A client keeps a lock, and the server forgets it. The client is granted the lock again
// by an answer that comes late, and must not take the kept one in memory then: it would be
// held twice.
func TestFakeTimeParkedGrantEndsWithTheNext(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewLock("a", rlock.WithRetention(time.Hour))
		open := f.hold(isScript("try"))
		var all sync.WaitGroup
		var first *rlock.Hold
		var firstCtx context.Context
		all.Go(func() {
			var err error
			firstCtx, first, err = mu.TryLock(t.Context())
			require.NoError(t, err)
		})
		synctest.Wait()
		held, hold := lock(t, t.Context(), mu)
		time.Sleep(50 * time.Millisecond) // too short for a copy of the request
		require.NoError(t, hold.Unlock(held))
		require.True(t, f.Exists("a"), "kept")
		f.Del("a") // as a failover may
		open()
		all.Wait()
		require.NoError(t, firstCtx.Err())
		_, _, err := mu.TryLockFor(t.Context(), time.Second)
		require.ErrorIs(t, err, rlock.ErrNotAcquired, "held twice")
		require.NoError(t, first.Unlock(t.Context()))
		_, hold, err = mu.TryLock(t.Context())
		require.NoError(t, err, "the client still believes in the grant that was kept")
		require.NoError(t, hold.Unlock(t.Context()))
	})
}

// keep locks and unlocks twice: the first Unlock may not hear recalls yet.
func keep(t *testing.T, f *fakeRedis, mu *rlock.Lock) {
	t.Helper()
	for range 2 {
		held, hold := lock(t, t.Context(), mu)
		synctest.Wait()
		require.NoError(t, hold.Unlock(held))
	}
	require.True(t, f.Exists(mu.Name()), "kept")
}

// newKept returns a lock that its client keeps for so long.
func newKept(t *testing.T, retention time.Duration) (*fakeRedis, *rlock.Lock) {
	t.Helper()
	f := newFakeRedis(t)
	mu := f.client(t, nil).NewLock("a", rlock.WithRetention(retention))
	keep(t, f, mu)
	return f, mu
}

// A lock that nobody takes again is released when its time is over.
func TestFakeTimeRetentionEnds(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, _ := newKept(t, time.Minute)
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		require.True(t, f.Exists("a"), "it is renewed")
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, f.Exists("a"))
	})
}

// A lock that is in use when its time is over goes back to the server when it is unlocked.
func TestFakeTimeRetentionEndsInUse(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, mu := newKept(t, time.Second)
		before := len(f.scripts("retain"))
		for range 100 {
			held, hold := lock(t, t.Context(), mu)
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, hold.Unlock(held))
		}
		require.InDelta(t, 9, len(f.scripts("retain"))-before, 1)
		keep(t, f, mu)
		held, hold := lock(t, t.Context(), mu)
		time.Sleep(time.Minute)
		require.NoError(t, held.Err())
		require.NoError(t, hold.Unlock(held))
		require.False(t, f.Exists("a"))
	})
}

// A recall that does not arrive costs the time for which the lock may be kept.
func TestFakeTimeRecallIsLost(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, mu := newKept(t, 2*time.Second)
		other := f.client(t, nil).NewLock("a")
		f.deafListeners.Store(true)
		w := begin(t.Context(), other)
		var busy sync.WaitGroup
		stop := make(chan struct{})
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
				if held, hold, err := mu.TryLock(t.Context()); err == nil {
					_ = hold.Unlock(held)
				}
			}
		})
		began := time.Now()
		held, hold := w.acquired(t)
		require.Less(t, time.Since(began), 4*time.Second)
		close(stop)
		busy.Wait()
		require.NoError(t, hold.Unlock(held))
	})
}

// The subscription is lost while a lock is kept: a recall may have been missed.
func TestFakeTimeRecallMayBeMissed(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, _ := newKept(t, time.Hour)
		f.cut()
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, f.Exists("a"))
	})
}

// A lock is removed while nobody holds it, and the next Lock acquires it. If it was used since the
// renewal before, that may have been beside another holder: so the loss is reported then.
func TestFakeTimeRetainedLockIsLost(t *testing.T) {
	t.Run("used", func(t *testing.T) { loseParked(t, time.Hour, 0, 1) })
	t.Run("not used", func(t *testing.T) { loseParked(t, time.Hour, 11*time.Second, 0) })
	t.Run("used, and kept no longer", func(t *testing.T) { loseParked(t, 2*time.Second, 0, 1) })
}

// loseParked has a lock removed that was not used for some time, which is told so many times.
func loseParked(t *testing.T, retention, unused time.Duration, told int) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		lost := 0
		c := f.client(t, &rlock.Options{Trace: rlock.Trace{Lost: func(l rlock.Loss) {
			lost++
			assert.ErrorContains(t, l.Err, "while it was kept")
			assert.Equal(t, rlock.LossGone, l.Cause)
			assert.Zero(t, l.Held)
		}}})
		mu := c.NewLock("a", rlock.WithRetention(retention))
		keep(t, f, mu)
		time.Sleep(unused)
		f.FlushAll()
		time.Sleep(11 * time.Second) // a renewal
		synctest.Wait()
		require.Equal(t, told, lost)
		asked := len(f.asked())
		held, hold := lock(t, t.Context(), mu)
		require.Greater(t, len(f.asked()), asked)
		require.NoError(t, hold.Unlock(held))
		s := c.Stats().Kinds[0]
		require.Zero(t, s.Held)
		require.Zero(t, s.Lost)
	})
}

// An answer that is lost leaves it open whether the lock is kept: it is released.
func TestFakeTimeRetainUnanswered(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a", rlock.WithRetention(time.Hour))
		held, hold := lock(t, t.Context(), mu)
		synctest.Wait()
		open := f.hold(isScript("retain"))
		require.NoError(t, hold.Unlock(held))
		require.False(t, f.Exists("a"))
		held, hold = lock(t, t.Context(), mu)
		owner := hold.Owner()
		open() // the late request is about another owner
		synctest.Wait()
		require.NoError(t, held.Err())
		require.Equal(t, "1", f.HGet("a", owner))
		require.NoError(t, hold.Unlock(held))
	})
}

// Close gives back what is kept, also if it is being taken at that moment.
func TestFakeTimeCloseOfRetained(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		mu := c.NewLock("a", rlock.WithRetention(time.Hour))
		keep(t, f, mu)
		keep(t, f, c.NewLock("b", rlock.WithRetention(time.Hour)))
		held, hold := lock(t, t.Context(), mu)
		closed := make(chan error)
		go func() { closed <- c.Close(context.Background()) }()
		synctest.Wait()
		require.False(t, f.Exists("b"))
		require.ErrorIs(t, context.Cause(held), rlock.ErrClosed)
		require.NoError(t, hold.Unlock(held))
		require.NoError(t, <-closed)
		require.Empty(t, f.Keys())
	})
}

// A client that cannot hear keeps nothing.
func TestFakeTimeRetainedDeaf(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.denySubscribe.Store(true)
		mu := f.client(t, nil).NewLock("a", rlock.WithRetention(time.Hour))
		for range 3 {
			held, hold := lock(t, t.Context(), mu)
			time.Sleep(time.Second)
			require.NoError(t, hold.Unlock(held))
			require.False(t, f.Exists("a"))
		}
	})
}

// Another call of the client cannot use the lock as it is kept. It is told that the lock is being
// given back, not to use a context that nobody has.
func TestFakeTimeKeptForOthers(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		keep(t, f, c.NewLock("a", rlock.WithRetention(time.Hour)))
		other := c.NewLock("a")
		_, _, err := other.TryLock(t.Context())
		var refusal *rlock.NotAcquiredError
		require.ErrorAs(t, err, &refusal)
		require.False(t, refusal.Local)
		require.ErrorContains(t, err, "this client keeps it for calls with other options")
		require.NotContains(t, err.Error(), "use the context")
		synctest.Wait()
		held, hold, err := other.TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
	})
}
