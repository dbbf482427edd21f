package rlock_test

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// budgets of hand-offs, up to the largest that is allowed.
var budgets = []int{1, 1024, 100_000, 1 << 20}

// contestTime is how long a contest lasts, and at least a hundred grants: 10 s in make soak.
func contestTime() time.Duration {
	if os.Getenv("RLOCK_SOAK") != "" {
		return 10 * time.Second
	}
	return 300 * time.Millisecond
}

// contest has 64 goroutines take the locks, which are the same, for a while: tokens that are
// reserved and not used add up with the grants, of which there are hundreds. Each token must
// be greater than the newest before it. It returns when all have left.
func contest(t *testing.T, newest *atomic.Int64, locks []*rlock.Lock) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	start, lasts := time.Now(), contestTime()
	var grants atomic.Int64
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for ctx.Err() == nil {
				held, hold, err := locks[i%len(locks)].Lock(ctx)
				if err != nil { // unavailable, if the machine stands still
					assert.ErrorIs(t, err, context.Canceled)
					continue
				}
				if grants.Add(1) > 100 && time.Since(start) > lasts {
					cancel()
				}
				before := newest.Swap(hold.Token())
				assert.Greater(t, hold.Token(), before)
				assert.NoError(t, hold.Unlock(held))
			}
		})
	}
	wg.Wait()
}

// lockLate locks mu after a contest. An attempt of one who has left may come to the server
// after the release that was to undo it; the next follows 10 s later. And a replica may
// know of the one and not of the other: then the lock is free when the lease is over.
func lockLate(t *testing.T, mu *rlock.Lock) (context.Context, *rlock.Hold) {
	t.Helper()
	held, hold, err := mu.TryLockFor(t.Context(), time.Minute)
	require.NoError(t, err)
	return held, hold
}

// nearClock checks that the counter has counted all tokens, and is hardly ahead of the
// server's clock. It returns when it is not ahead any more.
func nearClock(t *testing.T, admin *redis.Client, newest *atomic.Int64) {
	t.Helper()
	var now *redis.TimeCmd
	var value *redis.StringCmd
	_, err := admin.TxPipelined(t.Context(), func(p redis.Pipeliner) error { // at one time: late attempts may still arrive
		now, value = p.Time(t.Context()), p.Get(t.Context(), "redisson_lock_token:{a}")
		return nil
	})
	require.NoError(t, err)
	counter, err := value.Int64()
	require.NoError(t, err)
	require.GreaterOrEqual(t, counter, newest.Load())
	require.Less(t, counter-now.Val().UnixMicro(), 2*10*time.Millisecond.Microseconds(), "ahead of the server's clock")
	redistest.Eventually(t, "the clock is past the counter", func() bool {
		return admin.Time(t.Context()).Val().UnixMicro() > counter
	})
}

// However many tokens are reserved for hand-offs, the counter stays near the server's
// clock, which carries their order when the counter is lost.
func TestTokensGrowOverALostCounter(t *testing.T) {
	t.Parallel()
	for _, budget := range budgets {
		if testing.Short() && budget != 1024 {
			continue // make test-all takes all of them
		}
		t.Run(strconv.Itoa(budget), func(t *testing.T) {
			srv := redistest.Start(t)
			admin := srv.Client(t)
			var locks []*rlock.Lock
			for range 2 { // so that messages grant the lock as well
				locks = append(locks, newClient(t, srv, nil).NewLock("a", rlock.WithFencing(), rlock.WithHandoff(budget, time.Hour)))
			}
			var newest atomic.Int64
			for range 3 {
				contest(t, &newest, locks)
				nearClock(t, admin, &newest)
				require.NoError(t, admin.FlushAll(t.Context()).Err())
			}
		})
	}
}

// Tokens grow also if the counter is not lost but out of date: a replica becomes the
// master that has not received the last grants.
func TestTokensGrowOverALossyFailover(t *testing.T) {
	redistest.Long(t, "three replicated servers and 64 goroutines for each of several budgets")
	t.Parallel()
	for _, budget := range budgets {
		t.Run(strconv.Itoa(budget), func(t *testing.T) {
			master, replicas := newReplicas(t, 1)
			replica := replicas[0].Client(t)
			var addr atomic.Value
			addr.Store(master.Addr())
			var locks []*rlock.Lock
			for range 3 {
				rdb := master.Client(t, func(o *redis.Options) {
					o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
						return (&net.Dialer{}).DialContext(ctx, network, addr.Load().(string))
					}
				})
				locks = append(locks, clientOn(t, rdb, nil).NewLock("a", rlock.WithFencing(), rlock.WithHandoff(budget, time.Hour)))
			}
			var newest atomic.Int64
			contest(t, &newest, locks[:2])
			awaitReplicas(t, master, 1)
			require.NoError(t, replica.ReplicaOf(t.Context(), "no", "one").Err()) // hears no more
			known, err := replica.Get(t.Context(), "redisson_lock_token:{a}").Int64()
			require.NoError(t, err)

			contest(t, &newest, locks[:2])
			nearClock(t, master.Client(t), &newest)
			held, forgotten := lockLate(t, locks[2])
			require.Greater(t, forgotten.Token(), newest.Swap(forgotten.Token()))
			require.Greater(t, forgotten.Token(), known)
			addr.Store(replicas[0].Addr())
			master.Kill()

			for _, mu := range locks[:2] { // which may take a while to find the new master
				again, hold := lockLate(t, mu)
				require.Greater(t, hold.Token(), newest.Swap(hold.Token()))
				require.NoError(t, hold.Unlock(again))
			}
			contest(t, &newest, locks[:2])
			nearClock(t, replica, &newest)
			requireUnlockedTooLate(t, forgotten.Unlock(held))
		})
	}
}

// Whoever is granted the lock by somebody without a counter has a token all the same.
func TestTokenAfterAHolderWithoutFencing(t *testing.T) {
	srv := redistest.Start(t)
	for name, fenced := range map[string]*rlock.Lock{
		"plain": newClient(t, srv, nil).NewLock("a", rlock.WithFencing()),
		"fair":  newClient(t, srv, nil).NewFairLock("a", rlock.WithFencing()),
	} {
		t.Run(name, func(t *testing.T) {
			before := int64(0)
			for range 3 {
				held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
				w := begin(t.Context(), fenced)
				queued(t, srv, "a", 1)
				require.NoError(t, hold.Unlock(held))
				<-w.done
				require.NoError(t, w.err)
				require.Greater(t, w.hold.Token(), before)
				before = w.hold.Token()
				require.NoError(t, w.hold.Unlock(w.held))
			}
		})
	}
}

// queued waits until so many tickets are in the queue of a lock.
func queued(t *testing.T, srv *redistest.Server, name string, n int64) {
	t.Helper()
	rdb := srv.Client(t)
	redistest.Eventually(t, strconv.FormatInt(n, 10)+" wait", func() bool {
		return rdb.ZCount(context.Background(), "rlock_queue:{"+name+"}", "1", "+inf").Val() == n
	})
}
