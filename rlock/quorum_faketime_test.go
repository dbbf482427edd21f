package rlock_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/go-rlock/rlock/rlock"
)

// fakeServers are three, old enough to be counted, and the quorum lock "a" on
// them with a lease of 30 s.
func fakeServers(t *testing.T) (all []*fakeRedis, clients []*rlock.Client, mu *rlock.Lock) {
	for n := range 3 {
		f := newFakeRedis(t)
		runs(f, strconv.Itoa(n), 31*time.Second)
		all, clients = append(all, f), append(clients, f.client(t, nil))
	}
	return all, clients, rlock.NewQuorumLock("a", clients)
}

// runs has a server say that it is that run, and for how long it has been running.
func runs(f *fakeRedis, id string, uptime time.Duration) {
	f.Server().SetPreHook(func(p *server.Peer, command string, args ...string) bool {
		if strings.EqualFold(command, "info") {
			p.WriteBulk(fmt.Sprintf("# Server\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n", id, int(uptime.Seconds())))
			return true
		}
		return f.hook(p, command, args...)
	})
}

// overdue has a server answer after 20 ms, and the clients of mu know that it is slow. All
// servers know the scripts.
func overdue(t *testing.T, f *fakeRedis, mu *rlock.Lock) {
	t.Helper()
	held, hold := lock(t, t.Context(), mu)
	require.NoError(t, hold.Unlock(held))
	time.Sleep(time.Second)
	f.late.Store(int64(20 * time.Millisecond))
	held, hold = lock(t, t.Context(), mu)
	require.NoError(t, hold.Unlock(held))
}

// The window counts from before the first request, however long the answers that
// made the majority took; and a silent server is waited for as long again, once.
func TestFakeTimeQuorumWindow(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _, mu := fakeServers(t)
		took := func() (hold *rlock.Hold, took time.Duration) {
			began := time.Now()
			held, hold, err := mu.Lock(t.Context())
			require.NoError(t, err)
			require.Equal(t, began.Add(30*time.Second-302*time.Millisecond), hold.Until())
			took = time.Since(began)
			require.NoError(t, hold.Unlock(held))
			time.Sleep(time.Second)
			synctest.Wait()
			return hold, took
		}
		took() // the servers learn the scripts
		_, d := took()
		require.Zero(t, d)
		for _, f := range all[1:] {
			f.late.Store(int64(100 * time.Millisecond))
		}
		_, d = took()
		require.GreaterOrEqual(t, d, 100*time.Millisecond)
		all[1].late.Store(0)
		all[2].deafUp.Store(true)
		began := time.Now()
		held, hold, err := mu.Lock(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2*time.Millisecond, time.Since(began))
		for range 10 { // it is known by now
			inner, nested, err := mu.Lock(held)
			require.NoError(t, err)
			require.NoError(t, nested.Unlock(inner))
		}
		require.NoError(t, hold.Unlock(held))
		require.Equal(t, 2*time.Millisecond, time.Since(began))
	})
}

// A server that fails at once is none of a majority: one that is overdue is waited for then,
// as it may make up the majority.
func TestFakeTimeQuorumNeedsTheSlowOne(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _, mu := fakeServers(t)
		overdue(t, all[2], mu)
		all[0].SetError("LOADING Redis is loading the dataset in memory")
		held, hold, err := mu.TryLock(t.Context())
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, hold.Unlock(held))
		require.Less(t, time.Since(began), 100*time.Millisecond, "in one attempt")
	})
}

// Nor is one that has started a moment ago, and is not counted yet.
func TestFakeTimeQuorumNeedsTheSlowOneBesideAYoungOne(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _, mu := fakeServers(t)
		overdue(t, all[2], mu)
		runs(all[0], "new", time.Second)
		held, hold, err := mu.TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
	})
}

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

// One server is down, and another one slow: those that are left say that the lock is held,
// which is not the same as no answer.
func TestFakeTimeQuorumHeldBesideOneThatIsDown(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _, mu := fakeServers(t)
		held, hold := lock(t, t.Context(), mu)
		var clients []*rlock.Client
		for _, f := range all {
			clients = append(clients, f.client(t, nil))
		}
		other := rlock.NewQuorumLock("a", clients)
		all[0].SetError("LOADING Redis is loading the dataset in memory")
		all[2].late.Store(int64(20 * time.Millisecond))
		_, _, err := other.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		_, _, err = other.TryLockFor(t.Context(), 2*time.Minute)
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, hold.Unlock(held))
		held, hold = lock(t, t.Context(), other)
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

// A majority has said that it is gone. What the others still have is given back.
func TestFakeTimeQuorumRefusedRenewal(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _, mu := fakeServers(t)
		held, hold := lock(t, t.Context(), mu)
		time.Sleep(time.Second)
		synctest.Wait()
		for _, f := range all[1:] { // they forget it
			require.True(t, f.Del("a"))
		}
		<-held.Done()
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, all[0].Exists("a"))
	})
}

// A token is raised where the grant has shares: on another server the share of a later
// holder may be older than that.
func TestFakeTimeQuorumRaisesWhereItHolds(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, clients, _ := fakeServers(t)
		mu := rlock.NewQuorumLock("a", clients, rlock.WithFencing())
		held, hold := lock(t, t.Context(), mu) // the servers learn the scripts
		require.NoError(t, hold.Unlock(held))
		all[2].holder("a", time.Minute)
		open := all[0].hold(isScript("floor"))
		_, _, err := mu.TryLock(t.Context())
		open()
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		time.Sleep(10 * time.Second)
		held, hold = lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
	})
}

// The request to one server is held back, until its caller has given it up, and the grant
// that a majority has made is released or is not: what it makes then is given back.
func TestFakeTimeQuorumLateRequest(t *testing.T) {
	for _, unlocked := range []bool{true, false} {
		t.Run("unlocked="+strconv.FormatBool(unlocked), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				all, _, mu := fakeServers(t)
				held, hold := lock(t, t.Context(), mu) // the servers learn the scripts
				require.NoError(t, hold.Unlock(held))
				time.Sleep(time.Second)
				open := all[2].hold(isScript("share"))
				held, hold = lock(t, t.Context(), mu)
				if unlocked {
					require.NoError(t, hold.Unlock(held))
				}
				time.Sleep(5 * time.Second) // longer than the client waits for an answer
				if !unlocked {
					require.NoError(t, hold.Unlock(held))
				}
				synctest.Wait()
				open()
				synctest.Wait()
				require.True(t, all[2].Exists("a"), "the test does not show what it should")
				time.Sleep(12 * time.Second)
				synctest.Wait()
				require.False(t, all[2].Exists("a"))
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
