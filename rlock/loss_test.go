package rlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// requireLost checks what a holder is told of its loss.
func requireLost(t testing.TB, held context.Context, hold *rlock.Hold, name string) {
	t.Helper()
	require.ErrorIs(t, held.Err(), context.Canceled)
	cause := context.Cause(held)
	require.ErrorIs(t, cause, rlock.ErrLeaseLost)
	var lost *rlock.LostError
	require.ErrorAs(t, cause, &lost)
	require.Equal(t, name, lost.Name)
	require.Equal(t, hold.Token(), lost.Token)
	require.NotEmpty(t, lost.Err)
}

// requireUnlockedTooLate fails the test unless err is that of an Unlock after the lock
// was lost. On a busy machine the answer to its first attempt may come too late: then
// nobody can tell whether that has released the lock.
func requireUnlockedTooLate(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, rlock.ErrLeaseLost)
	}
}

func TestLossByRemoval(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second
	for _, tt := range []struct {
		name   string
		remove func(t *testing.T, rdb *redis.Client, other *rlock.Client)
	}{
		{"force-unlocked", func(t *testing.T, _ *redis.Client, other *rlock.Client) {
			ok, err := other.NewLock("a").ForceUnlock(t.Context())
			require.NoError(t, err)
			require.True(t, ok)
		}},
		{"deleted", func(t *testing.T, rdb *redis.Client, _ *rlock.Client) {
			require.NoError(t, rdb.Del(t.Context(), "a").Err())
		}},
		{"flushed", func(t *testing.T, rdb *redis.Client, _ *rlock.Client) {
			require.NoError(t, rdb.FlushAll(t.Context()).Err())
		}},
		{"taken over by another client", func(t *testing.T, rdb *redis.Client, other *rlock.Client) {
			require.NoError(t, rdb.Del(t.Context(), "a").Err())
			held, hold := lock(t, t.Context(), other.NewLock("a", rlock.WithLeaseTime(time.Hour)))
			t.Cleanup(func() { assert.NoError(t, hold.Unlock(held)) })
		}},
		{"taken over by a foreign owner without TTL", func(t *testing.T, rdb *redis.Client, _ *rlock.Client) {
			require.NoError(t, rdb.Del(t.Context(), "a").Err())
			require.NoError(t, rdb.HSet(t.Context(), "a", "5f2b6f0e-90d1-4b0c-9d0f-6c43b6ac4d5f:1", 1).Err())
		}},
		{"overwritten by a string", func(t *testing.T, rdb *redis.Client, _ *rlock.Client) {
			require.NoError(t, rdb.Set(t.Context(), "a", "text", time.Hour).Err())
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			rdb := srv.Client(t)
			var losses atomic.Int64
			c := newClient(t, srv, &rlock.Options{LeaseTime: lease, Trace: rlock.Trace{Lost: func(rlock.Loss) { losses.Add(1) }}})
			mu := c.NewLock("a", rlock.WithFencing())
			held, hold := lock(t, t.Context(), mu)
			inner, innerHold := lock(t, held, mu)
			require.NotZero(t, hold.Token())

			tt.remove(t, rdb, newClient(t, srv, nil))
			value, ttl := dump(t, rdb, "a")
			ends(t, lease/3+slack, "the next renewal tells", held.Done())
			requireLost(t, held, hold, "a")
			requireLost(t, inner, innerHold, "a")

			_, _, err := mu.Lock(context.WithoutCancel(held))
			require.ErrorIs(t, err, rlock.ErrLeaseLost)
			_, _, err = mu.Lock(held)
			require.ErrorIs(t, err, rlock.ErrLeaseLost)
			require.ErrorIs(t, innerHold.Unlock(inner), rlock.ErrLeaseLost)
			require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
			require.ErrorIs(t, hold.Unlock(held), rlock.ErrNotHeld)
			requireLost(t, held, hold, "a")
			redistest.Eventually(t, "the trace is told", func() bool { return losses.Load() > 0 })
			require.EqualValues(t, 1, losses.Load())

			valueNow, ttlNow := dump(t, rdb, "a")
			require.Equal(t, value, valueNow, "nobody else's key is touched")
			require.LessOrEqual(t, ttlNow, ttl)
		})
	}
}

// A lock whose TTL somebody has removed does not end with its lease. Its holder releases
// it even if it comes too late to that.
func TestLossOfALockWithoutTTL(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	const lease = 3 * time.Second // long enough to remove the TTL on a busy machine
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithLeaseTime(lease), rlock.WithoutRenewal())
	held, hold := lock(t, t.Context(), mu)
	require.NoError(t, rdb.Persist(t.Context(), "a").Err())
	<-held.Done()
	time.Sleep(lease)
	require.EqualValues(t, 1, rdb.Exists(t.Context(), "a").Val())
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
	requireFree(t, rdb, slack, "a")
}

// However Redis disappears, the holder is told before the server can grant the
// lock to somebody else.
func TestLossWhileUnreachable(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	for _, tt := range []struct {
		name  string
		fault func(t *testing.T, srv *redistest.Server, p *netfault.Proxy)
		heal  func(srv *redistest.Server)
	}{
		{"server stopped", func(_ *testing.T, srv *redistest.Server, _ *netfault.Proxy) { srv.Stop() }, (*redistest.Server).Cont},
		{"server paused", func(t *testing.T, srv *redistest.Server, _ *netfault.Proxy) {
			require.NoError(t, srv.Client(t).Do(t.Context(), "client", "pause", 2*lease.Milliseconds(), "all").Err())
		}, nil},
		{"requests vanish", func(_ *testing.T, _ *redistest.Server, p *netfault.Proxy) { p.DropUp(true) }, nil},
		{"replies vanish", func(_ *testing.T, _ *redistest.Server, p *netfault.Proxy) { p.DropDown(true) }, nil},
		{"connections refused", func(_ *testing.T, _ *redistest.Server, p *netfault.Proxy) { p.Refuse(true); p.CutAll() }, nil},
		{"replies late", func(_ *testing.T, _ *redistest.Server, p *netfault.Proxy) { p.Delay(0, 2*lease) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			c, p := through(t, srv, &rlock.Options{LeaseTime: lease})
			held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithFencing()))
			lostAt := make(chan time.Time, 1)
			context.AfterFunc(held, func() { lostAt <- time.Now() })
			rival := newClient(t, srv, nil).NewLock("a", rlock.WithFencing())

			stalls := redistest.WatchStalls()
			defer stalls.Stop()
			tt.fault(t, srv, p)
			ends(t, lease+slack, "lost", held.Done()) // whatever the state of the last renewal
			lost := <-lostAt
			requireLost(t, held, hold, "a")
			require.Less(t, lost, hold.Until().Add(stalls.Total()))
			t.Logf("%v before the end of the window", hold.Until().Sub(lost))

			if tt.heal != nil {
				tt.heal(srv)
			}
			rivalHeld, rivalHold := lock(t, t.Context(), rival)
			require.Less(t, lost, time.Now())
			require.Greater(t, rivalHold.Token(), hold.Token())
			heal(p)
			require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
			require.Equal(t, 1, holds(t, srv.Client(t), "a"), "the rival's lock is untouched")
			require.NoError(t, rivalHold.Unlock(rivalHeld))
		})
	}
}

// The order of "told" and "granted to another" by one clock, over many losses: whoever
// looks is told always. A goroutine that is started then may get its turn later, where all
// cores are busy: for the exact instant see TestFakeTimeHeldContextEndsAtTheExactInstant.
func TestLossComesBeforeTheNextGrant(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	const lease = 3 * time.Second
	c, p := through(t, srv, &rlock.Options{LeaseTime: lease})
	rival := newClient(t, srv, nil)
	margin, early := time.Hour, 0
	for i := range 6 {
		name := "a" + strconv.Itoa(i)
		held, hold := lock(t, t.Context(), c.NewLock(name))
		lostAt := make(chan time.Time, 1)
		context.AfterFunc(held, func() { lostAt <- time.Now() })
		p.DropUp(i%2 == 0)
		p.DropDown(i%2 != 0)
		rivalHeld, rivalHold := lock(t, t.Context(), rival.NewLock(name)) // the TTL ends
		granted, err := time.Now(), held.Err()
		require.Error(t, err)
		heal(p)
		if lost := within(t, time.Minute, lostAt); lost.Before(granted) {
			early++
			margin = min(margin, granted.Sub(lost))
		}
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
		require.NoError(t, rivalHold.Unlock(rivalHeld))
	}
	require.Positive(t, early, "told before the rival was inside")
	t.Logf("%d of 6 were told before, least margin: %v", early, margin)
}

// agreeable is an error that says that it is any other.
type agreeable struct{}

func (agreeable) Error() string { return "agreeable" }
func (agreeable) Is(error) bool { return true }

func TestLossJoinsTheErrorOfDo(t *testing.T) {
	own := errors.New("own error")
	works := map[string]func(ctx context.Context) error{
		"nil":               func(context.Context) error { return nil },
		"own":               func(context.Context) error { return own },
		"wrapped own":       func(context.Context) error { return fmt.Errorf("work: %w", own) },
		"the context's":     func(ctx context.Context) error { return ctx.Err() },
		"the cause":         context.Cause,
		"own and context's": func(ctx context.Context) error { return errors.Join(own, ctx.Err()) },
		"yes to everything": func(context.Context) error { return agreeable{} },
	}
	for i, kind := range []string{"lock", "multi"} {
		for name, fn := range works {
			for _, awaited := range []bool{true, false} {
				// In fake time, as an answer that is late on a busy machine leaves it open what an Unlock has found.
				t.Run(fmt.Sprintf("%s, %s, awaited %v", kind, name, awaited), func(t *testing.T) {
					redistest.Bubble(t, func(t *testing.T) {
						rdb := rlocktest.NewServer(t).Client()
						c := clientOn(t, rdb, &rlock.Options{LeaseTime: 3 * time.Second})
						a := c.NewLock("a")
						mu := []rlock.Locker{a, rlock.NewMultiLock(a, c.NewLock("b"))}[i]
						var returned error
						err := mu.Do(t.Context(), func(ctx context.Context) error {
							_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error { // somebody else has it
								p.Del(ctx, a.Name())
								p.HSet(ctx, a.Name(), "somebody", 1)
								return nil
							})
							require.NoError(t, err)
							if awaited {
								ends(t, 10*time.Second, "told", ctx.Done())
							}
							returned = fn(ctx)
							return returned
						})
						require.ErrorIs(t, err, rlock.ErrLeaseLost)
						var lost *rlock.LostError
						require.ErrorAs(t, err, &lost)
						require.Equal(t, a.Name(), lost.Name)
						require.Equal(t, 1, strings.Count(err.Error(), lost.Error()), "said once: %v", err)
						if returned != nil {
							require.ErrorIs(t, err, returned)
						}
					})
				})
			}
		}
	}
}

func TestLossInTheMiddleOfNesting(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	for _, next := range []string{"Lock", "Unlock"} {
		t.Run("before a nested "+next, func(t *testing.T) {
			mu := newClient(t, srv, nil).NewLock("a") // lease 30 s: no renewal will tell
			h1, hold1 := lock(t, t.Context(), mu)
			h2, hold2 := lock(t, h1, mu)
			h3, hold3 := lock(t, h2, mu)
			require.NoError(t, rdb.Del(t.Context(), "a").Err())
			rivalHeld, rivalHold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
			value, _ := dump(t, rdb, "a")

			if next == "Lock" {
				_, hold, err := mu.Lock(h3)
				require.ErrorIs(t, err, rlock.ErrLeaseLost)
				require.Nil(t, hold)
			}
			require.ErrorIs(t, hold3.Unlock(h3), rlock.ErrLeaseLost)
			requireLost(t, h1, hold1, "a")
			requireLost(t, h2, hold2, "a")
			require.Zero(t, mu.HoldCount(h1), "a lost lock is not owned, whether its holds are unlocked or not")
			require.ErrorIs(t, hold2.Unlock(h2), rlock.ErrLeaseLost)
			require.ErrorIs(t, hold1.Unlock(h1), rlock.ErrLeaseLost)
			got, _ := dump(t, rdb, "a")
			require.Equal(t, value, got)
			require.NoError(t, rivalHold.Unlock(rivalHeld))
		})
	}
}

// holder is a process that holds a lock. args: address, name, lease. It answers
// to lines: "look" with what its context says at once and what Unlock returns.
func holder(args []string) {
	lease, err := time.ParseDuration(args[2])
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: args[0]})
	c, err := rlock.New(rdb, &rlock.Options{LeaseTime: lease})
	if err != nil {
		panic(err)
	}
	held, hold, err := c.NewLock(args[1], rlock.WithFencing()).Lock(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println("held", hold.Token())
	fmt.Println("proof", hold.Proof())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		err := held.Err() // the first look
		fmt.Println("look", err != nil, errors.Is(context.Cause(held), rlock.ErrLeaseLost))
		fmt.Println("unlock", errors.Is(hold.Unlock(held), rlock.ErrLeaseLost))
	}
}

func TestLossOfAStoppedProcess(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	for range 2 {
		child := redistest.Spawn(t, "holder", srv.Addr(), "a", "2s")
		token, err := strconv.ParseInt(child.Expect("held ", 10*time.Second), 10, 64)
		require.NoError(t, err)
		child.Stop()
		_, err = child.Stdin.Write([]byte("look\n"))
		require.NoError(t, err)

		rivalHeld, rivalHold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a", rlock.WithFencing()))
		require.Greater(t, rivalHold.Token(), token, "the resource can tell who is late")
		before, ttlBefore := dump(t, rdb, "a")
		child.Cont()
		require.Equal(t, "true true", child.Expect("look ", 10*time.Second))
		require.Equal(t, "true", child.Expect("unlock ", 10*time.Second))
		after, ttlAfter := dump(t, rdb, "a")
		require.Equal(t, before, after)
		require.LessOrEqual(t, ttlAfter, ttlBefore)
		require.NoError(t, rivalHeld.Err())
		require.NoError(t, rivalHold.Unlock(rivalHeld))
		require.NoError(t, child.Stdin.Close())
		require.NoError(t, child.Wait(10*time.Second))
	}
}

// A process that was stopped while its request was under way must not take the
// old answer for a lock.
func TestStoppedWhileAcquiring(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	rival := newClient(t, srv, nil).NewLock("a", rlock.WithFencing())
	_, first := lock(t, t.Context(), rival) // the server knows the scripts
	require.NoError(t, first.Unlock(t.Context()))
	require.Zero(t, holds(t, rdb, "a")) // it is connected
	p := netfault.New(t, srv.Addr())
	held := p.Hold(isScript("try"))
	child := redistest.Spawn(t, "holder", p.Addr(), "a", "2s") // it asks for 5 s
	require.NoError(t, held.Wait(t.Context()))
	child.Stop()
	require.NoError(t, held.Deliver(t.Context()))
	require.Equal(t, 1, holds(t, rdb, "a"))
	rivalHeld, rivalHold, err := rival.TryLockFor(t.Context(), time.Minute) // the child's lease is over
	require.NoError(t, err)
	child.Cont()
	_, err = child.Stdin.Write([]byte("look\n"))
	require.NoError(t, err)
	awaitHearing(t, rdb, "a", 1) // the child waits
	require.NoError(t, rivalHold.Unlock(rivalHeld))
	token, err := strconv.ParseInt(strings.TrimSpace(child.Expect("held ", 10*time.Second)), 10, 64)
	require.NoError(t, err)
	require.Greater(t, token, rivalHold.Token())
	require.Equal(t, "false false", child.Expect("look ", 10*time.Second))
	require.Equal(t, "false", child.Expect("unlock ", 10*time.Second))
}

// lapse is when a lease that is not renewed is given up: its length, less the
// drift, less the guard.
func lapse(lease time.Duration) time.Duration {
	return lease - (lease/100 + 2*time.Millisecond) - max(lease/10, 2*time.Millisecond)
}

// silences are the ways in which a server gives no useful answer.
var silences = map[string]func(*fakeRedis){
	"requests vanish": func(f *fakeRedis) { f.deafUp.Store(true) },
	"replies vanish":  func(f *fakeRedis) { f.deafDown.Store(true) },
	"errors":          func(f *fakeRedis) { f.SetError("LOADING Redis is loading the dataset in memory") },
	"replies late":    func(f *fakeRedis) { f.late.Store(int64(time.Hour)) },
}

func TestFakeTimeHeldContextEndsAtTheExactInstant(t *testing.T) {
	for name, fault := range silences {
		for _, lease := range []time.Duration{100 * time.Millisecond, 30 * time.Second, time.Hour} {
			t.Run(name+"/"+lease.String(), func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					var renewed atomic.Value
					f := newFakeRedis(t)
					c := f.client(t, &rlock.Options{LeaseTime: lease, Trace: rlock.Trace{
						Renewed: func(r rlock.Renewal) { renewed.Store(r.Until) },
					}})
					held, hold := lock(t, t.Context(), c.NewLock("a"))
					require.Equal(t, f.start.Add(lease-lease/100-2*time.Millisecond), hold.Until())

					time.Sleep(3*lease + 1) // some renewals
					synctest.Wait()
					until := hold.Until()
					require.Equal(t, renewed.Load(), until)
					fault(f)

					end := until.Add(-max(lease/10, 2*time.Millisecond))
					time.Sleep(time.Until(end) - 1)
					synctest.Wait()
					require.NoError(t, held.Err())
					time.Sleep(time.Nanosecond)
					<-held.Done()
					require.Equal(t, end, time.Now())
					require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)

					f.heal()
					require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
				})
			})
		}
	}
}

// Nobody asks the server about a lease that is not renewed. So it is noticed only at the end
// of the lease that the lock was removed.
func TestFakeTimeFixedLeaseIsRemoved(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a", rlock.WithLeaseTime(20*time.Second), rlock.WithoutRenewal()))
		require.True(t, f.Del("a"))
		<-held.Done()
		require.Equal(t, lapse(20*time.Second), f.now())
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
	})
}
