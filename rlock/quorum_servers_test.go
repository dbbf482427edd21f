package rlock_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// quorumLease is that of the tests: servers are counted when they are a second
// older, which their start has to wait for. A busy machine may stand still for half of it.
const quorumLease = 5 * time.Second

type servers []*redistest.Server

// newServers runs n servers, and returns when a quorum lock counts them.
func newServers(tb testing.TB, n int) (all servers) {
	tb.Helper()
	for range n {
		all = append(all, newServer(tb))
	}
	for _, srv := range all {
		awaitAge(tb, srv, quorumLease+time.Second)
	}
	return all
}

var uptime = regexp.MustCompile(`uptime_in_seconds:(\d+)`)

func awaitAge(tb testing.TB, srv *redistest.Server, age time.Duration) {
	tb.Helper()
	rdb := srv.Client(tb)
	old := func() bool {
		seconds, err := strconv.Atoi(uptime.FindStringSubmatch(rdb.Info(context.Background(), "server").Val())[1])
		require.NoError(tb, err)
		return time.Duration(seconds)*time.Second >= age
	}
	for began := time.Now(); !old(); time.Sleep(10 * time.Millisecond) {
		require.Less(tb, time.Since(began), time.Minute, "the server is old enough")
	}
}

// clients returns one for each server: those of a process.
func (all servers) clients(tb testing.TB, opts rlock.Options) (clients []*rlock.Client) {
	tb.Helper()
	if opts.LeaseTime == 0 {
		opts.LeaseTime = quorumLease
	}
	for _, srv := range all {
		rdb := srv.Client(tb, func(o *redis.Options) {
			o.PoolSize, o.PipelinePoolSize = 4096, 4096 // after as many failures go-redis leaves a goroutine for a second
		})
		clients = append(clients, clientOn(tb, rdb, &opts))
	}
	return clients
}

// lock returns the quorum lock "a" of another process.
func (all servers) lock(tb testing.TB, opts ...rlock.LockOption) *rlock.Lock {
	tb.Helper()
	return rlock.NewQuorumLock("a", all.clients(tb, rlock.Options{}), opts...)
}

// holds returns the hold counts of owner on the servers; 0 on one that is down.
func (all servers) holds(tb testing.TB, owner string) (n []string) {
	tb.Helper()
	for _, srv := range all {
		n = append(n, srv.Client(tb).HGet(tb.Context(), "a", owner).Val())
	}
	return n
}

// free waits until nothing is left of the lock.
func (all servers) free(tb testing.TB) {
	tb.Helper()
	for _, srv := range all {
		rdb := srv.Client(tb)
		redistest.Eventually(tb, "the share is given back", func() bool {
			return rdb.Exists(context.Background(), "a").Val() == 0
		})
	}
}

// inTime reports whether a call has had its answers, as one on a busy machine may not. Any
// other error fails the test.
func inTime(t *testing.T, err error) bool {
	t.Helper()
	if errors.Is(err, rlock.ErrUnavailable) {
		return false
	}
	require.NoError(t, err)
	return true
}

// lockAll locks mu on all servers. A lock is granted by those that answer first, and on a
// busy machine another may be too slow, which is not asked again.
func (all servers) lockAll(t *testing.T, mu *rlock.Lock) (context.Context, *rlock.Hold) {
	t.Helper()
	want := slices.Repeat([]string{"1"}, len(all))
	for range 10 {
		held, hold := lock(t, t.Context(), mu)
		for soon := time.Now().Add(time.Second); time.Now().Before(soon); time.Sleep(5 * time.Millisecond) {
			if slices.Equal(want, all.holds(t, hold.Owner())) {
				return held, hold
			}
		}
		require.NoError(t, hold.Unlock(held))
	}
	require.FailNow(t, "never granted by all servers")
	panic("unreachable")
}

// Where a majority has just started nobody can lock, however long it asks.
func TestQuorumOfYoungServers(t *testing.T) {
	t.Parallel()
	all := servers{newServer(t), newServer(t), newServer(t)}
	mu := rlock.NewQuorumLock("a", all.clients(t, rlock.Options{LeaseTime: time.Hour}))
	var busy *rlock.NotAcquiredError
	for wait := 2 * time.Second; ; wait *= 2 { // a busy machine may be too slow for an answer in time
		_, _, err := mu.TryLockFor(t.Context(), wait)
		if errors.As(err, &busy) || wait > time.Minute {
			require.ErrorAs(t, err, &busy)
			break
		}
		require.ErrorIs(t, err, rlock.ErrUnavailable)
	}
	require.InDelta(t, time.Hour, busy.TTL, float64(time.Minute))
	all.free(t)
}

// Who waits until servers have run for long enough does not ask them all the time, nor wake
// others by giving back what it has got of them.
func TestQuorumWaitersBesideYoungServers(t *testing.T) {
	t.Parallel()
	all := servers{newServer(t), newServer(t), newServer(t)}
	var waiting sync.WaitGroup
	for range 3 {
		mu := rlock.NewQuorumLock("a", all.clients(t, rlock.Options{LeaseTime: time.Minute}))
		waiting.Go(func() {
			_, _, err := mu.TryLockFor(t.Context(), 2*time.Second)
			assert.Error(t, err)
		})
	}
	waiting.Wait()
	require.Less(t, all[0].CommandCalls(t)["evalsha"], int64(200))
}
