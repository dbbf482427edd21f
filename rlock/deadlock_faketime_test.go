package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// members are calls that each hold a lock and wait for one more, and the clients of their processes.
type members struct {
	*fakeRedis
	log     logBuffer
	clients []*rlock.Client
	calls   []*member
	others  []*rlock.Hold
}

// member is a call that holds a lock and waits for another one.
type member struct {
	held context.Context
	hold *rlock.Hold
	*waiting
}

// client adds a process. Its locks have this lease.
func (m *members) client(t *testing.T, lease time.Duration) *rlock.Client {
	m.clients = append(m.clients, m.recordedClient(t, &rlock.Options{LeaseTime: lease, Logger: m.log.logger()}))
	return m.clients[len(m.clients)-1]
}

// member has a call hold a lock and begin to wait for the next one.
func (m *members) member(t *testing.T, mu, next *rlock.Lock) *member {
	t.Helper()
	held, hold := lock(t, t.Context(), mu)
	return m.waits(held, hold, next)
}

func (m *members) waits(held context.Context, hold *rlock.Hold, next *rlock.Lock) *member {
	c := &member{held, hold, begin(held, next)}
	m.calls = append(m.calls, c)
	return c
}

// deadlocks returns how many the clients have counted, and checks that as many are in the log.
func (m *members) deadlocks(t *testing.T) (n int64) {
	t.Helper()
	synctest.Wait()
	for _, c := range m.clients {
		n += c.Stats().Deadlocks
	}
	require.EqualValues(t, n, strings.Count(m.log.String(), "level=ERROR"), m.log.String())
	return n
}

// marks returns the deadlocks that the records show.
func (m *members) marks(t *testing.T) (all []string) {
	t.Helper()
	for _, id := range listed(t, m.rdb, "") {
		r, _ := readRecord(t, m.rdb, "", id)
		for _, e := range r.Entries {
			if e.Cycle != "" {
				all = append(all, e.Cycle)
			}
		}
	}
	return all
}

// ended returns the error of the only call that has ended.
func (m *members) ended(t *testing.T) (which *member, err *rlock.DeadlockError) {
	t.Helper()
	synctest.Wait()
	for _, c := range m.calls {
		select {
		case <-c.done:
			require.Nil(t, which, "two have ended")
			require.ErrorAs(t, c.err, &err)
			which = c
		default:
		}
	}
	require.NotNil(t, which, "none has ended")
	return which, err
}

// finish unlocks, first what this call holds.
func (m *members) finish(t *testing.T, first *member) {
	t.Helper()
	m.unlockOthers(t)
	require.NoError(t, first.hold.Unlock(t.Context()))
	var all sync.WaitGroup
	for _, c := range m.calls {
		if c != first {
			all.Go(func() {
				<-c.done
				if c.err == nil {
					if err := c.waiting.hold.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
				if err := c.hold.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
}

func (m *members) unlockOthers(t *testing.T) {
	t.Helper()
	for _, h := range m.others {
		require.NoError(t, h.Unlock(t.Context()))
	}
}

// leave ends all waits.
func (m *members) leave(t *testing.T) {
	t.Helper()
	m.unlockOthers(t)
	for _, c := range m.clients {
		closed := make(chan error, 1)
		go func() { closed <- closeSoon(c) }()
		defer func() { require.NoError(t, <-closed) }()
	}
	for _, c := range m.calls {
		<-c.done
		if c.err == nil { // another client has closed first
			require.NoError(t, c.waiting.hold.Unlock(t.Context()))
		} else {
			require.ErrorIs(t, c.err, rlock.ErrClosed)
		}
		require.NoError(t, c.hold.Unlock(t.Context()))
	}
}

// reads counts the keys that clients read, other than by scripts. Only the search for deadlocks and the log of long waits
// read any.
type reads struct{ all, now atomic.Int64 }

func (r *reads) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *reads) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hgetall" {
			r.all.Add(1)
			r.now.Add(1)
			defer r.now.Add(-1)
		}
		return next(ctx, cmd)
	}
}

func (r *reads) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// named returns a lock of a kind.
func named(c *rlock.Client, kind, name string, opts ...rlock.LockOption) *rlock.Lock {
	switch kind {
	case "fair":
		return c.NewFairLock(name, opts...)
	case "reader":
		return c.NewRWLock(name, opts...).Reader()
	case "writer":
		return c.NewRWLock(name, opts...).Writer()
	case "polling":
		return c.NewLock(name, append(opts, rlock.WithPolling(rlock.Polling{}))...)
	}
	return c.NewLock(name, opts...)
}

// ring has n calls, each of which holds a lock and waits for that of the next. The last begins to wait at last.
func ring(t *testing.T, n int, lease time.Duration, processes int, of func(c *rlock.Client, i int, waits bool) *rlock.Lock) (m *members, last time.Time) {
	m = &members{fakeRedis: newFakeRedis(t)}
	for i := range processes { // each has a record before it waits, and writes it at other times than the others
		_, hold := lock(t, t.Context(), m.client(t, lease).NewLock(fmt.Sprint("held ", i)))
		m.others = append(m.others, hold)
		time.Sleep(rand.N(10 * time.Second))
	}
	time.Sleep(20 * time.Second)
	var held []context.Context
	var holds []*rlock.Hold
	for i := range n {
		h, hold := lock(t, t.Context(), of(m.clients[i%processes], i, false))
		held, holds = append(held, h), append(holds, hold)
	}
	for i := range n {
		time.Sleep(rand.N(2 * lease))
		m.waits(held[i], holds[i], of(m.clients[i%processes], (i+1)%n, true))
		last = time.Now()
	}
	return m, last
}

// A deadlock is found within a lease and 12 s, whatever the lease, the number of locks and their kinds. One client logs it,
// counts it and shows it in its record, once, for as long as the deadlock lasts.
func TestFakeTimeDeadlock(t *testing.T) {
	plain := func(c *rlock.Client, i int, _ bool) *rlock.Lock { return c.NewLock(fmt.Sprint("lock ", i)) }
	tests := map[string]struct {
		n, processes int
		of           func(c *rlock.Client, i int, waits bool) *rlock.Lock
	}{
		"ABBA":            {2, 2, plain},
		"ABCA":            {3, 3, plain},
		"eight locks":     {8, 8, plain},
		"in one process":  {2, 1, plain},
		"in two of three": {3, 2, plain},
		"fair":            {2, 2, func(c *rlock.Client, i int, _ bool) *rlock.Lock { return c.NewFairLock(fmt.Sprint(i)) }},
		"polling":         {2, 2, func(c *rlock.Client, i int, _ bool) *rlock.Lock { return named(c, "polling", fmt.Sprint(i)) }},
		"readers for write": {2, 2, func(c *rlock.Client, i int, waits bool) *rlock.Lock {
			return named(c, map[bool]string{false: "reader", true: "writer"}[waits], fmt.Sprint(i))
		}},
		"writers for read": {3, 3, func(c *rlock.Client, i int, waits bool) *rlock.Lock {
			return named(c, map[bool]string{false: "writer", true: "reader"}[waits], fmt.Sprint(i))
		}},
		"kinds": {4, 4, func(c *rlock.Client, i int, _ bool) *rlock.Lock {
			return named(c, []string{"plain", "fair", "writer", "polling"}[i], fmt.Sprint(i))
		}},
	}
	leases := []time.Duration{500 * time.Millisecond, 3 * time.Second, 30 * time.Second, 5 * time.Minute}
	if testing.Short() {
		leases = leases[1:2]
	}
	for name, test := range tests {
		for _, lease := range leases {
			if lease > time.Minute && name != "ABBA" {
				continue
			}
			t.Run(fmt.Sprint(name, " ", lease), func(t *testing.T) {
				lease := lease
				redistest.Bubble(t, func(t *testing.T) {
					m, last := ring(t, test.n, lease, test.processes, test.of)
					time.Sleep(time.Until(last.Add(lease)))
					if lease < time.Second { // a wait is not in a record before
						lease = time.Second
					}
					require.Zero(t, m.deadlocks(t))
					time.Sleep(12 * time.Second)
					require.EqualValues(t, 1, m.deadlocks(t), "the last wait began %v ago", time.Since(last))
					for i := range test.n {
						require.Contains(t, m.log.String(), m.calls[i].hold.Owner()+" holds ")
					}
					time.Sleep(10*time.Second + 2*lease)
					require.EqualValues(t, 1, m.deadlocks(t), "it is reported once")
					require.Len(t, m.marks(t), 1, "by one client")
					m.leave(t)
				})
			})
		}
	}
}

// WithDeadlockError ends one call of those that have the option: that which has begun to wait last. When its caller has
// unlocked, the others go on.
func TestFakeTimeDeadlockError(t *testing.T) {
	for _, option := range [][]int{{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 1, 2}} {
		t.Run(fmt.Sprint(option), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				m, last := ring(t, 3, 3*time.Second, 3, func(c *rlock.Client, i int, waits bool) *rlock.Lock {
					if waits && slices.Contains(option, (i+2)%3) {
						return c.NewLock(fmt.Sprint("lock ", i), rlock.WithDeadlockError())
					}
					return c.NewLock(fmt.Sprint("lock ", i))
				})
				newest := option[len(option)-1]
				wait := 15 * time.Second
				if newest != 2 { // the search for this call began before the deadlock
					wait = 35 * time.Second
				}
				time.Sleep(time.Until(last.Add(wait)))
				which, err := m.ended(t)
				require.Same(t, m.calls[newest], which)
				require.EqualValues(t, 1, m.deadlocks(t))
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
				require.ErrorContains(t, err, "NewMultiLock")
				at := slices.Index(m.calls, which)
				for i, edge := range err.Cycle {
					next := (at + 1 + i) % 3
					require.Equal(t, rlock.DeadlockEdge{Lock: fmt.Sprint("lock ", next), Owner: m.calls[next].hold.Owner()}, edge)
				}
				require.Len(t, err.Cycle, 3)
				require.EqualValues(t, 1, m.clients[at].Stats().Kinds[0].Calls[rlock.OutcomeBusy])
				time.Sleep(time.Minute)
				m.ended(t) // no second one
				m.finish(t, which)
				require.EqualValues(t, 1, m.deadlocks(t))
			})
		})
	}
}

// A multi lock waits for a member while it holds those before, and so can be in a deadlock with a caller that uses another
// order.
func TestFakeTimeDeadlockOfAMultiLock(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		m := &members{fakeRedis: newFakeRedis(t)}
		one, other := m.client(t, 5*time.Second), m.client(t, 5*time.Second)
		second := m.member(t, one.NewLock("b"), one.NewLock("c")) // which is free: it has b and c
		<-second.done
		all := rlock.NewMultiLock(other.NewLock("a", rlock.WithDeadlockError()), other.NewLock("b", rlock.WithDeadlockError()))
		failed := make(chan error, 1)
		go func() { _, _, err := all.Lock(t.Context()); failed <- err }()
		time.Sleep(time.Minute)
		require.Zero(t, m.deadlocks(t))
		third := begin(second.waiting.held, one.NewLock("a"))
		time.Sleep(37 * time.Second)
		require.EqualValues(t, 1, m.deadlocks(t))
		err := <-failed
		var deadlock *rlock.DeadlockError
		require.ErrorAs(t, err, &deadlock)
		require.Equal(t, []string{"b", "a"}, []string{deadlock.Cycle[0].Lock, deadlock.Cycle[1].Lock})
		<-third.done
		require.NoError(t, third.err, "the multi lock has unlocked its member a")
		for _, h := range []*rlock.Hold{third.hold, second.waiting.hold, second.hold} {
			require.NoError(t, h.Unlock(t.Context()))
		}
	})
}

// No deadlock is reported where a call will go on, or can.
func TestFakeTimeNoDeadlock(t *testing.T) {
	const lease = time.Second
	ends := rlock.WithDeadlockError() // so that x reports what it finds, and not the call that has begun last
	again := func(ctx context.Context, mu *rlock.Lock, wait time.Duration) {
		for ctx.Err() == nil {
			if held, hold, err := mu.TryLockFor(ctx, wait); err == nil {
				_ = hold.Unlock(held)
			}
		}
	}
	tests := map[string]func(t *testing.T, m *members, x, y *rlock.Client){
		"the holder is slow": func(t *testing.T, m *members, x, y *rlock.Client) {
			lock(t, t.Context(), y.NewLock("b"))
			m.member(t, x.NewLock("a"), x.NewLock("b", ends))
		},
		"the last holder is slow": func(t *testing.T, m *members, x, y *rlock.Client) {
			z := m.client(t, lease)
			lock(t, t.Context(), z.NewLock("c"))
			m.member(t, y.NewLock("b"), y.NewLock("c"))
			m.member(t, x.NewLock("a"), x.NewLock("b", ends))
		},
		"two wait under their locks for a third": func(t *testing.T, m *members, x, y *rlock.Client) {
			lock(t, t.Context(), y.NewLock("c"))
			m.member(t, y.NewLock("b"), y.NewLock("c"))
			m.member(t, x.NewLock("a"), x.NewLock("c", ends))
		},
		"a call has left, and its caller holds its lock": func(t *testing.T, m *members, x, y *rlock.Client) {
			held, _ := lock(t, t.Context(), y.NewLock("b"))
			m.member(t, x.NewLock("a"), x.NewLock("b", ends))
			_, _, err := y.NewLock("a").TryLockFor(held, 5*time.Second)
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
		},
		"a call waits for short times": func(t *testing.T, m *members, x, y *rlock.Client) {
			held, _ := lock(t, t.Context(), y.NewLock("b"))
			m.member(t, x.NewLock("a"), x.NewLock("b", ends))
			go again(held, y.NewLock("a"), 8*time.Second)
		},
		"a lock is passed on in memory, to others with the same owner": func(t *testing.T, m *members, x, y *rlock.Client) {
			held, hold := lock(t, t.Context(), x.NewLock("a"))
			for range 3 {
				go func() {
					for {
						held, hold, err := y.NewLock("b", rlock.WithHandoff(1<<20, time.Hour)).Lock(t.Context())
						if err != nil {
							return
						}
						_, _, _ = y.NewLock("a").TryLockFor(held, 4*time.Second)
						_ = hold.Unlock(held)
					}
				}()
			}
			synctest.Wait()
			m.waits(held, hold, x.NewLock("b", ends))
		},
		"a context without the lock": func(t *testing.T, m *members, x, y *rlock.Client) {
			held, hold := lock(t, t.Context(), y.NewLock("b"))
			m.member(t, x.NewLock("a"), x.NewLock("b", ends))
			m.waits(rlock.Detach(held), hold, y.NewLock("a"))
		},
		"the lock of the context was passed on, with the same owner": func(t *testing.T, m *members, x, y *rlock.Client) {
			mu := y.NewLock("b", rlock.WithHandoff(1<<20, time.Hour))
			held, hold := lock(t, t.Context(), mu)
			next := begin(t.Context(), mu)
			synctest.Wait()
			require.NoError(t, hold.Unlock(held))
			<-next.done
			require.Equal(t, hold.Owner(), next.hold.Owner())
			m.member(t, x.NewLock("a"), x.NewLock("b", ends))
			begin(context.WithoutCancel(held), y.NewLock("a"))
		},
		"a process that hangs, and does not write its record anew": func(t *testing.T, m *members, x, _ *rlock.Client) {
			held, hold := lock(t, t.Context(), x.NewLock("a"))
			m.heldBy("b", somebody, time.Hour)
			id, _, _ := strings.Cut(somebody, ":")
			r := record.Record{Written: time.Now(), Entries: []record.Entry{{
				What: record.Waits, Name: "a", Since: time.Now(), Under: []record.Under{{Owner: somebody, Since: time.Now()}},
			}}}
			require.NoError(t, lua.WriteRecord(t.Context(), m.rdb, record.Key("", id), time.Hour, r.Fields()))
			m.waits(held, hold, x.NewLock("b", ends))
		},
		"a holder in Java": func(t *testing.T, m *members, x, _ *rlock.Client) {
			m.heldBy("b", redisson, time.Hour)
			m.member(t, x.NewLock("a"), x.NewLock("b", ends))
		},
		"a client without a record": func(t *testing.T, m *members, x, _ *rlock.Client) {
			y := m.fakeRedis.client(t, &rlock.Options{LeaseTime: lease, Logger: m.log.logger()})
			m.clients = append(m.clients, y)
			held, hold := lock(t, t.Context(), y.NewLock("b"))
			m.member(t, x.NewLock("a"), x.NewLock("b", ends))
			m.waits(held, hold, y.NewLock("a", ends))
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				m := &members{fakeRedis: newFakeRedis(t)}
				test(t, m, m.client(t, lease), m.client(t, lease))
				time.Sleep(time.Minute)
				require.Zero(t, m.deadlocks(t), m.log.String())
				require.Empty(t, m.marks(t))
				for _, c := range m.clients { // the holders do not unlock
					closing, cancel := context.WithCancel(t.Context())
					cancel()
					_ = c.Close(closing)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// Nothing is read before a call that owns a lock has waited for a lease, and nothing at all for other calls and without
// records. After that it is two keys in each lease for a lock, however many calls wait.
func TestFakeTimeDeadlockSearchIsCheap(t *testing.T) {
	const lease = 30 * time.Second
	tests := map[string]struct {
		anonymous, owns bool
		wait            time.Duration
		most            int64
	}{
		"less than a lease":   {false, true, lease, 0},
		"a call without lock": {false, false, 10 * time.Minute, 0},
		"no records":          {true, true, 10 * time.Minute, 0},
		"an hour":             {false, true, time.Hour, 2 * 120},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				var reads reads
				f.rdb.AddHook(&reads)
				slow, waits := f.client(t, nil), f.recordedClient(t, nil)
				if test.anonymous {
					waits = f.client(t, nil)
				}
				slowHeld, slowHold := lock(t, t.Context(), slow.NewLock("hot"))
				ctx, leave := context.WithCancel(t.Context())
				var all []*waiting
				var holds []*rlock.Hold
				for i := range 20 {
					held := ctx
					if test.owns {
						h, hold := lock(t, ctx, waits.NewLock(fmt.Sprint("user ", i)))
						held, holds = h, append(holds, hold)
					}
					all = append(all, begin(held, waits.NewLock("hot")))
				}
				time.Sleep(test.wait - time.Millisecond)
				synctest.Wait()
				logged := int64(0) // a long wait is logged with the record of the holder, at each doubling
				for at := lease; at < test.wait; at *= 2 {
					logged++
				}
				require.LessOrEqual(t, reads.all.Load(), test.most+logged)
				if test.most > 0 {
					require.Greater(t, reads.all.Load(), test.most/2)
				}
				leave()
				for _, w := range all {
					<-w.done
				}
				for _, h := range holds {
					require.NoError(t, h.Unlock(t.Context()))
				}
				require.NoError(t, slowHold.Unlock(slowHeld))
			})
		})
	}
}

// Many calls of two processes begin at the same moment to wait for each other's locks, each for another one. All deadlocks are
// found in time, although a client makes one look at a time, and each search leaves the others alone.
func TestFakeTimeManyDeadlocks(t *testing.T) {
	const n, lease = 100, 3 * time.Second
	redistest.Bubble(t, func(t *testing.T) {
		m := &members{fakeRedis: newFakeRedis(t)}
		x, y := m.client(t, lease), m.client(t, lease)
		var held []context.Context
		var holds []*rlock.Hold
		for i := range 2 * n {
			h, hold := lock(t, t.Context(), []*rlock.Client{x, y}[i%2].NewLock(fmt.Sprint(i)))
			held, holds = append(held, h), append(holds, hold)
		}
		for i := range 2 * n {
			m.waits(held[i], holds[i], []*rlock.Client{x, y}[i%2].NewLock(fmt.Sprint(i^1)))
		}
		time.Sleep(lease + 12*time.Second)
		require.EqualValues(t, n, m.deadlocks(t))
		m.leave(t)
	})
}

// The mark of a deadlock is at the wait of its call, and at no other wait for the same lock: it ends with the call.
func TestFakeTimeDeadlockIsMarkedAtItsCall(t *testing.T) {
	const lease = 3 * time.Second
	redistest.Bubble(t, func(t *testing.T) {
		m := &members{fakeRedis: newFakeRedis(t)}
		x, y := m.client(t, lease), m.client(t, lease)
		yHeld, yHold := lock(t, t.Context(), y.NewLock("b"))
		waits := begin(t.Context(), x.NewLock("b")) // owns no lock
		time.Sleep(time.Second)
		xHeld, xHold := lock(t, t.Context(), x.NewLock("a"))
		m.waits(yHeld, yHold, y.NewLock("a"))
		time.Sleep(time.Second)
		ctx, leave := context.WithCancel(xHeld)
		last := begin(ctx, x.NewLock("b"))
		time.Sleep(40 * time.Second)
		require.EqualValues(t, 1, m.deadlocks(t))
		require.Len(t, m.marks(t), 1)
		leave()
		<-last.done
		time.Sleep(11 * time.Second)
		require.Empty(t, m.marks(t), "the deadlock is over, but a call waits for the lock")
		require.NoError(t, xHold.Unlock(xHeld))
		<-m.calls[0].done
		require.NoError(t, m.calls[0].waiting.hold.Unlock(m.calls[0].waiting.held))
		require.NoError(t, yHold.Unlock(yHeld))
		finishAll(t, waits)
	})
}

// Deadlocks of quorum locks are not found, so the option is refused.
func TestFakeTimeDeadlockOfAQuorum(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, clients, _ := fakeServers(t)
		_, _, err := rlock.NewQuorumLock("a", clients, rlock.WithDeadlockError()).Lock(t.Context())
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
		require.ErrorContains(t, err, "WithDeadlockError")
	})
}

// Close waits for a search, also while Redis does not answer it.
func TestFakeTimeCloseDuringADeadlockSearch(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		m := &members{fakeRedis: newFakeRedis(t)}
		var reads reads
		m.rdb.AddHook(&reads)
		x, y := m.client(t, 3*time.Second), m.client(t, 3*time.Second)
		yHeld, yHold := lock(t, t.Context(), y.NewLock("b"))
		call := m.member(t, x.NewLock("a"), x.NewLock("b"))
		var caught atomic.Int64
		var open []func()
		for range 2 { // the log of long waits reads the record as well
			open = append(open, m.fakeRedis.hold(func(args []string) bool {
				match := args[0] == "hgetall" && strings.HasPrefix(args[1], "rlock_client:")
				if match {
					caught.Add(1)
				}
				return match
			}))
		}
		time.Sleep(4500 * time.Millisecond)
		require.Positive(t, caught.Load())
		require.Positive(t, reads.now.Load())
		began := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- closeSoon(x) }()
		<-call.done
		require.ErrorIs(t, call.err, rlock.ErrClosed)
		require.NoError(t, call.hold.Unlock(t.Context()))
		require.NoError(t, <-closed)
		require.Zero(t, reads.now.Load())
		require.Less(t, time.Since(began), 5*time.Second, "the time-out of go-redis")
		for _, f := range open {
			f()
		}
		require.NoError(t, yHold.Unlock(yHeld))
	})
}

// A search that fails finds the deadlock later.
func TestFakeTimeDeadlockSearchFails(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		m, last := ring(t, 2, 30*time.Second, 2, func(c *rlock.Client, i int, _ bool) *rlock.Lock { return c.NewLock(fmt.Sprint(i)) })
		time.Sleep(time.Until(last.Add(31 * time.Second)))
		m.deafDown.Store(true)
		time.Sleep(5 * time.Second)
		m.heal()
		require.Zero(t, m.deadlocks(t))
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, m.deadlocks(t))
		m.leave(t)
	})
}

// Callers in six processes acquire locks in a common order and hold them for as long as they like: no deadlock. Or they acquire
// them in any order: every deadlock ends, and no call waits for ever.
func TestFakeTimeCoursesOfDeadlocks(t *testing.T) {
	redistest.Long(t, "many courses")
	const lease = time.Second
	for _, ordered := range []bool{true, false} {
		t.Run(fmt.Sprint("in order: ", ordered), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				m := &members{fakeRedis: newFakeRedis(t)}
				end := time.Now().Add(15 * time.Minute)
				var all sync.WaitGroup
				var mu sync.Mutex
				done, deadlocks := 0, int64(0)
				for range 6 {
					c := m.client(t, lease)
					for range 2 {
						all.Go(func() {
							for time.Now().Before(end) {
								names := rand.Perm(6)[:2+rand.N(2)]
								if ordered {
									slices.Sort(names)
								}
								ctx, holds, failed := t.Context(), []*rlock.Hold(nil), error(nil)
								for _, n := range names {
									held, hold, err := c.NewLock(fmt.Sprint(n), rlock.WithDeadlockError()).Lock(ctx)
									if err != nil {
										failed = err
										break
									}
									ctx, holds = held, append(holds, hold)
									time.Sleep(rand.N(2 * lease))
								}
								if rand.N(4) == 0 {
									time.Sleep(rand.N(15 * time.Second))
								}
								for _, hold := range slices.Backward(holds) {
									if err := hold.Unlock(t.Context()); err != nil {
										t.Error(err)
									}
								}
								mu.Lock()
								if done++; failed != nil {
									done, deadlocks = done-1, deadlocks+1
									if _, ok := errors.AsType[*rlock.DeadlockError](failed); !ok {
										t.Error(failed)
									}
								}
								mu.Unlock()
							}
						})
					}
				}
				all.Wait()
				require.Less(t, time.Since(end), 10*time.Minute, "no call waits for ever")
				require.Equal(t, deadlocks, m.deadlocks(t))
				t.Logf("%d done, %d deadlocks", done, deadlocks)
				if ordered {
					require.Zero(t, deadlocks, m.log.String())
				} else {
					require.Positive(t, deadlocks)
				}
			})
		})
	}
}

// What a record says of calls that own locks can be read again.
func TestFakeTimeRecordOfACallThatOwnsLocks(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		m := &members{fakeRedis: newFakeRedis(t)}
		x, y := m.client(t, time.Minute), m.client(t, time.Minute)
		yHeld, yHold := lock(t, t.Context(), y.NewLock("b"))
		outer, outerHold := lock(t, t.Context(), x.NewLock("a 1"))
		inner, innerHold := lock(t, outer, x.NewLock("a 2"))
		nested, nestedHold := lock(t, inner, x.NewLock("a 1"))
		began := time.Now()
		w := begin(nested, x.NewLock("b", rlock.WithDeadlockError(), rlock.WithPurpose("under = a@1,b!")))
		third, thirdHold := lock(t, t.Context(), x.NewLock("a 3"))
		time.Sleep(time.Second)
		other := begin(third, x.NewLock("b"))
		time.Sleep(25 * time.Second)
		id, _, _ := strings.Cut(outerHold.Owner(), ":")
		r, _ := readRecord(t, m.rdb, "", id)
		e := entry(r, record.Waits, "b")
		require.Equal(t, 2, e.Count)
		require.Equal(t, "under = a@1,b!", e.Purpose)
		require.Equal(t, []record.Under{{Owner: outerHold.Owner(), Since: e.Since, Ends: true}, {Owner: innerHold.Owner(), Since: e.Since, Ends: true}, {Owner: thirdHold.Owner(), Since: e.Since.Add(time.Second)}}, e.Under)
		require.Equal(t, began.UnixMilli(), e.Since.UnixMilli())
		require.NoError(t, yHold.Unlock(yHeld))
		finishAll(t, w, other)
		for _, h := range []*rlock.Hold{thirdHold, nestedHold, innerHold, outerHold} {
			require.NoError(t, h.Unlock(t.Context()))
		}
	})
}
