package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// A grant that one server has forgotten needs the slow one for each nested hold, also while
// that is kept busy by other locks, which do not.
func TestFakeTimeQuorumNestsByTheSlowOne(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, clients, mu := fakeServers(t)
		held, hold := lock(t, t.Context(), mu)
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, all[1].Del("a"))
		all[2].late.Store(int64(20 * time.Millisecond))
		other, stop := rlock.NewQuorumLock("b", clients), make(chan struct{})
		var busy sync.WaitGroup
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					assert.NoError(t, other.Do(t.Context(), func(context.Context) error { return nil }))
				}
			}
		})
		time.Sleep(100 * time.Millisecond)
		inner, nested, err := mu.TryLockFor(held, time.Second)
		close(stop)
		busy.Wait()
		require.NoError(t, err)
		require.NoError(t, nested.Unlock(inner))
		require.NoError(t, hold.Unlock(held))
	})
}

// Without a majority the loss comes at the exact end of the window, less the guard.
func TestFakeTimeQuorumLoss(t *testing.T) {
	for name, fault := range map[string]func(*fakeRedis){
		"silent":  func(f *fakeRedis) { f.deafUp.Store(true) },
		"refuses": func(f *fakeRedis) { f.SetError("LOADING Redis is loading the dataset in memory") },
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				all, _, mu := fakeServers(t)
				held, hold := lock(t, t.Context(), mu)
				fault(all[0])
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				require.NoError(t, held.Err(), "two of three renew it")
				until := hold.Until()
				fault(all[1])
				<-held.Done()
				require.Equal(t, until.Add(-3*time.Second), time.Now())
				require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
				require.True(t, errors.Is(hold.Unlock(held), rlock.ErrLeaseLost))
			})
		})
	}
}

// The renewal on one server arrives behind the release, and finds no share: that is not taken again, as
// nobody would release it.
func TestFakeTimeQuorumRenewalBehindTheRelease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _, mu := fakeServers(t)
		held, hold := lock(t, t.Context(), mu)
		time.Sleep(15 * time.Second) // the servers learn the script
		until, open := hold.Until(), all[2].hold(isScript("renew"))
		for hold.Until().Equal(until) {
			time.Sleep(10 * time.Millisecond)
		}
		require.NoError(t, hold.Unlock(held))
		require.False(t, all[2].Exists("a"))
		open()
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, all[2].Exists("a"))
	})
}

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
					require.GreaterOrEqual(t, 2*least, most, "each has its turns") // the counts are small, and who comes first has more
				}
			})
		})
	}
}

// Each server is asked for each renewal, although two of three answers suffice: a share that is not renewed ends, and then one
// more server without the lock costs the holder the lock.
func TestFakeTimeQuorumRenewsAllShares(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _, mu := fakeServers(t)
		held, hold := lock(t, t.Context(), mu)
		for range 60 {
			time.Sleep(5 * time.Second)
			for _, f := range all {
				require.Greater(t, f.TTL("a"), 10*time.Second)
			}
		}
		require.NoError(t, hold.Unlock(held))
	})
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

// frail is a server of a quorum lock that restarts, or stands still.
type frail struct {
	*fakeRedis
	mu    sync.Mutex // guards what follows
	run   int
	born  time.Time
	still chan struct{} // closed when the server goes on; nil if it does not stand still
}

func newFrail(t *testing.T, id int) *frail {
	f := &frail{fakeRedis: newFakeRedis(t), born: time.Now().Add(-time.Hour)}
	f.Server().SetPreHook(func(p *server.Peer, command string, args ...string) bool {
		f.mu.Lock()
		still := f.still
		f.mu.Unlock()
		if still != nil {
			<-still // it has got the request
		}
		if strings.EqualFold(command, "info") {
			f.mu.Lock()
			defer f.mu.Unlock()
			p.WriteBulk(fmt.Sprintf("# Server\r\nrun_id:%d-%d\r\nuptime_in_seconds:%d\r\n", id, f.run, int(time.Since(f.born).Seconds())))
			return true
		}
		return f.hook(p, command, args...)
	})
	return f
}

// restart loses the connections and, unless the data is kept, what was granted.
func (f *frail) restart(keeps bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run, f.born = f.run+1, time.Now()
	f.cutAll()
	if !keeps {
		f.FlushAll()
	}
}

// stop makes the server stand still for a while. It executes then what it has got meanwhile.
func (f *frail) stop(d time.Duration) {
	still := make(chan struct{})
	f.mu.Lock()
	f.still = still
	f.mu.Unlock()
	time.Sleep(d)
	f.mu.Lock()
	f.still = nil
	f.mu.Unlock()
	close(still)
}

// trouble strikes one server after another for a while, never two at once.
func trouble(random *rand.Rand, all []*frail, lease, d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
		f := all[random.IntN(len(all))]
		switch random.IntN(4) {
		case 0, 1:
			f.restart(false)
		case 2:
			f.restart(true)
		default:
			f.jitter.Store(int64(time.Duration(random.IntN(3)) * lease / 3)) // requests and answers overtake one another
			f.stop(time.Duration(random.Int64N(int64(2 * lease))))
			f.jitter.Store(0)
		}
		time.Sleep(time.Duration(random.Int64N(int64(lease))))
	}
}

// history lets processes contend for a quorum lock while its servers restart and stand still. It returns
// how many grants there were, and how many restarts or stops holds have outlived.
func history(t *testing.T, seed uint64) (grants, outlived int) {
	const lease = 5 * time.Second
	random := rand.New(rand.NewPCG(seed, 0))
	var all []*frail
	for n := range 3 {
		all = append(all, newFrail(t, n))
	}
	var mu sync.Mutex // guards what follows
	var inside []context.Context
	over, workers := make(chan struct{}), sync.WaitGroup{}
	for range 3 {
		var clients []*rlock.Client
		for _, f := range all {
			clients = append(clients, f.client(t, &rlock.Options{LeaseTime: lease}))
		}
		l, own := rlock.NewQuorumLock("a", clients), rand.New(rand.NewPCG(random.Uint64(), 0))
		workers.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(time.Duration(own.Int64N(int64(time.Second)))):
				}
				held, hold, err := l.TryLockFor(t.Context(), time.Duration(own.Int64N(int64(2*lease))))
				if err != nil {
					continue
				}
				mu.Lock()
				if held.Err() == nil { // it may be over already
					for _, other := range inside {
						if other.Err() == nil {
							t.Errorf("seed %d: two holders", seed)
						}
					}
				}
				inside, grants = append(inside, held), grants+1
				mu.Unlock()
				began := time.Now()
				select {
				case <-held.Done():
				case <-time.After(time.Duration(own.Int64N(int64(4 * lease)))):
				}
				mu.Lock()
				if held.Err() == nil && time.Since(began) > 2*lease {
					outlived++
				}
				mu.Unlock()
				_ = hold.Unlock(held) // it may be lost
			}
		})
	}
	trouble(random, all, lease, 8*lease)
	close(over)
	workers.Wait()
	time.Sleep(2 * lease)
	synctest.Wait()
	return grants, outlived
}

// However the servers restart, empty or not, and stand still, there is one holder at a time.
func TestFakeTimeQuorumHistories(t *testing.T) {
	histories := 50
	switch {
	case os.Getenv("RLOCK_VERIFY") != "": // make verify
		histories = 1000
	case testing.Short():
		histories = 8
	}
	grants, outlived := 0, 0
	for n := range histories {
		redistest.Bubble(t, func(t *testing.T) {
			g, o := history(t, uint64(n))
			grants, outlived = grants+g, outlived+o
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d histories, %d grants, %d holds of more than two leases", histories, grants, outlived)
	require.Greater(t, grants, histories)
	require.Positive(t, outlived, "long holds")
}
