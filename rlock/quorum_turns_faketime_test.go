package rlock_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// turnsTaken is what clients that contend for a quorum lock have met.
type turnsTaken struct {
	mu       sync.Mutex // guards what follows
	waiting  int
	released time.Time       // if somebody waited then
	free     []time.Duration // from a release beside waiters to the next grant
	grants   map[int]int     // by client
}

// contend lets clients take the lock in turns, until the time is over.
func contend(t *testing.T, all []*fakeRedis, clients int, d time.Duration, patience func(client int) time.Duration) *turnsTaken {
	taken := &turnsTaken{grants: make(map[int]int)}
	var workers sync.WaitGroup
	over := time.Now().Add(d)
	for n := range clients {
		var own []*rlock.Client
		for _, f := range all {
			own = append(own, f.client(t, nil))
		}
		mu := rlock.NewQuorumLock("a", own)
		workers.Go(func() {
			time.Sleep(time.Duration(n) * time.Millisecond)
			for time.Now().Before(over) {
				taken.mu.Lock()
				taken.waiting++
				taken.mu.Unlock()
				held, hold, err := mu.TryLockFor(t.Context(), patience(n))
				taken.mu.Lock()
				taken.waiting--
				if err != nil {
					taken.mu.Unlock()
					continue
				}
				taken.grants[n]++
				if !taken.released.IsZero() {
					taken.free = append(taken.free, time.Since(taken.released))
				}
				taken.mu.Unlock()
				time.Sleep(time.Millisecond)
				taken.mu.Lock()
				taken.released = time.Time{}
				if taken.waiting > 0 && time.Now().Before(over) {
					taken.released = time.Now()
				}
				taken.mu.Unlock()
				if err := hold.Unlock(held); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	return taken
}

// Clients that contend for a quorum lock have their turns one after the other: the lock is free for about two
// round trips between two of them, as the message and the round take one each.
func TestFakeTimeQuorumTurns(t *testing.T) {
	const rtt = 10 * time.Millisecond
	forever := func(int) time.Duration { return time.Hour }
	for name, tt := range map[string]struct {
		servers, clients int
		fault            func(all []*fakeRedis)
		patience         func(client int) time.Duration
		even             bool // all clients have their turns
		longest          time.Duration
	}{
		"3 servers, 8 clients":  {3, 8, nil, forever, true, 300 * time.Millisecond},
		"5 servers, 30 clients": {5, 30, nil, forever, true, 300 * time.Millisecond},
		"one is silent":         {3, 8, func(all []*fakeRedis) { all[2].deafUp.Store(true) }, forever, true, 300 * time.Millisecond},
		"requests and answers overtake one another": {3, 8, func(all []*fakeRedis) {
			for _, f := range all {
				f.jitter.Store(int64(rtt / 2))
			}
		}, forever, true, 300 * time.Millisecond},
		"some leave": {3, 8, nil, func(n int) time.Duration {
			return []time.Duration{time.Hour, 200 * time.Millisecond, 50 * time.Millisecond, 15 * time.Millisecond}[n%4]
		}, false, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.clients > 8 {
				redistest.Long(t, "thirty clients of five servers need a processor for seconds, while no other test runs")
			}
			redistest.Bubble(t, func(t *testing.T) {
				var all []*fakeRedis
				for n := range tt.servers {
					f := newFakeRedis(t)
					runs(f, strconv.Itoa(n), 31*time.Second)
					f.late.Store(int64(rtt))
					all = append(all, f)
				}
				if tt.fault != nil {
					time.AfterFunc(time.Second, func() { tt.fault(all) })
				}
				taken := contend(t, all, tt.clients, 5*time.Second, tt.patience)
				slices.Sort(taken.free)
				grants := len(taken.free)
				require.Greater(t, grants, 100)
				median, longest := taken.free[grants/2], taken.free[grants-1]
				t.Logf("%d grants, free for %v (median), %v at worst; %v", grants, median, longest, taken.grants)
				require.LessOrEqual(t, median, 2*rtt+20*time.Millisecond)
				require.LessOrEqual(t, longest, tt.longest)
				least, most := grants, 0
				for n := range tt.clients {
					least, most = min(least, taken.grants[n]), max(most, taken.grants[n])
				}
				if tt.fault == nil {
					time.Sleep(time.Second)
					for _, f := range all {
						require.Empty(t, f.Keys(), "no ticket is left")
					}
				}
				if tt.even {
					require.GreaterOrEqual(t, 3*least, 2*most, "each has its turns")
				}
			})
		})
	}
}

// A client that has the turn and does not come costs the others that turn, once: it is stopped, or its
// machine is gone.
func TestFakeTimeQuorumTurnOfAStoppedClient(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _, mu := fakeServers(t)
		held, hold := lock(t, t.Context(), mu)
		for _, f := range all { // it waits, and listens
			sub := f.rdb.Subscribe(t.Context(), lua.GrantChannel("a", "stopped"))
			_, err := sub.Receive(t.Context())
			require.NoError(t, err)
			defer sub.Close()
			a, _, err := lua.Share(t.Context(), f.rdb, lua.Grant{Key: "a", Owner: "stopped:1"}, time.Minute, lua.Turn{Client: "stopped"})
			require.NoError(t, err)
			require.False(t, a.Acquired)
		}
		var clients []*rlock.Client
		for _, f := range all {
			clients = append(clients, f.client(t, nil))
		}
		other := rlock.NewQuorumLock("a", clients)
		got := make(chan time.Time)
		go func() {
			_ = other.Do(context.Background(), func(context.Context) error {
				got <- time.Now()
				return nil
			})
		}()
		time.Sleep(10 * time.Second)
		released := time.Now()
		require.NoError(t, hold.Unlock(held))
		require.LessOrEqual(t, (<-got).Sub(released), 250*time.Millisecond)
	})
}

// A waiter of the holder's client asks for the lock at the moment of the release, which takes out the ticket
// that the waiter has just got.
func TestFakeTimeQuorumReleaseBesideAnAskingWaiter(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _, mu := fakeServers(t)
		for _, f := range all {
			f.late.Store(int64(20 * time.Millisecond))
		}
		for after := 5 * time.Second; after < 5200*time.Millisecond; after += 10 * time.Millisecond {
			held, hold := lock(t, t.Context(), mu)
			got := make(chan time.Time)
			go func() {
				_ = mu.Do(context.Background(), func(context.Context) error {
					got <- time.Now()
					return nil
				})
			}()
			time.Sleep(after)
			released := time.Now()
			require.NoError(t, hold.Unlock(held))
			require.LessOrEqual(t, (<-got).Sub(released), 300*time.Millisecond)
			time.Sleep(time.Second)
		}
	})
}
