package rlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// The context of a whole queue ends. Whoever becomes the head by that must
// neither ask the server any more nor take a busy lock for a silent server.
func TestFakeTimeQueueLeavesAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		acquire func(ctx context.Context) (lua.Reply, error)
		want    error
	}{
		"busy": {func(context.Context) (lua.Reply, error) {
			time.Sleep(time.Millisecond)
			return lua.Reply{TTL: time.Hour}, nil
		}, ErrNotAcquired},
		"silent": {func(ctx context.Context) (lua.Reply, error) { return lua.Reply{}, hang(ctx) }, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				_, l, f := newFake(t)
				f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) { return tt.acquire(ctx) }
				leave := errors.New("leave")
				ctx, cancel := context.WithCancelCause(t.Context())
				errs := make(chan error, 1000)
				for range cap(errs) {
					go func() {
						_, _, err := l.Lock(ctx)
						errs <- err
					}()
				}
				sleepLong(2500 * time.Millisecond) // the head has seen how it stands
				require.Empty(t, errs)
				before := f.times("acquire")
				cancel(leave)
				synctest.Wait()
				require.Len(t, errs, cap(errs), "all leave at the same instant")
				other := make(map[string]int)
				for range cap(errs) {
					err := <-errs
					assert.ErrorIs(t, err, context.Canceled)
					assert.ErrorIs(t, err, leave)
					if !errors.Is(err, tt.want) {
						other[err.Error()]++
					}
				}
				assert.Empty(t, other, "all should be: %v", tt.want)
				assert.Equal(t, before, f.times("acquire"), "attempts for callers that have left")
			})
		})
	}
}

// The waiters of a busy lock end one after another, faster than the server
// answers: each becomes the head, asks, and is gone before it is refused. The
// server is well, and none of them may say otherwise.
func TestFakeTimeBusyIsNotUnavailable(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onAcquire = func(context.Context, int) (lua.Reply, error) {
			time.Sleep(time.Millisecond)
			return lua.Reply{TTL: time.Hour}, nil
		}
		errs := make(chan error, 100)
		for i := range cap(errs) {
			ctx := within(t, time.Second+time.Duration(i)*100*time.Microsecond)
			go func() {
				_, _, err := l.Lock(ctx)
				errs <- err
			}()
		}
		wrong := make(map[string]int)
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				wrong[err.Error()]++
			}
		}
		require.Empty(t, wrong)
	})
}

// Waiters leave a line from its ends and from the middle. The first is always the one that came before all others.
func TestOrderOfWaiters(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		a, first := f.enter(t, l, lua.Reply{TTL: time.Hour})
		all := []*waiter{first}
		for range 4 {
			all = append(all, behind(t, l))
		}
		q := a.queue
		for _, gone := range []int{2, 0, 4, 3, 1} {
			all[gone].leave()
			all[gone] = nil
			left, queued := slices.DeleteFunc(slices.Clone(all), func(w *waiter) bool { return w == nil }), []*waiter{}
			for w := a.first; w != nil; w = w.next {
				queued = append(queued, w)
			}
			require.Equal(t, left, queued)
			if len(left) > 0 {
				require.Same(t, left[len(left)-1], a.last)
			}
		}
		require.Nil(t, a.first)
		require.Nil(t, a.last)
		require.Empty(t, l.queues.byKey)
		require.Equal(t, []*queue{q}, l.queues.spare, "it is used again")
	})
}

// The holder is the newest grant that excludes others.
func TestHolderOfAQueue(t *testing.T) {
	reader, writer, newer := &grant{}, &grant{}, &grant{}
	writer.exclusives.Store(1)
	newer.exclusives.Store(1)
	require.Nil(t, new(queue).holder())
	require.Nil(t, (&queue{grants: []*grant{reader}}).holder(), "readers exclude nobody")
	require.Same(t, newer, (&queue{grants: []*grant{writer, newer, reader}}).holder())
}

// A waiter comes and goes behind many others.
func BenchmarkLeave(b *testing.B) {
	for _, n := range []int{1, 100_000} {
		b.Run(fmt.Sprintf("behind %d", n), func(b *testing.B) {
			rdb := redis.NewClient(&redis.Options{})
			defer rdb.Close()
			c, err := New(rdb, nil)
			require.NoError(b, err)
			l := c.NewLock("a")
			enter := func() *waiter {
				w := &waiter{lock: l, ctx: b.Context(), since: time.Now()}
				_, _, _ = l.queues.enter(w)
				return w
			}
			for range n + 1 { // the first is not refused yet
				enter()
			}
			for b.Loop() {
				enter().leave()
			}
		})
	}
}

// late is a fake whose next grant is over when its answer is read, as by a process that has
// stood still meanwhile.
type late struct {
	*fake
	next bool
}

func (k *late) Acquire(ctx context.Context, r lua.Runner, owner string, lease time.Duration, o kind.Options) (lua.Reply, error) {
	a, err := k.fake.Acquire(ctx, r, owner, lease, o)
	if k.next {
		k.next, a.Owner, a.Sent = false, owner, time.Now().Add(-lease)
	}
	return a, err
}

// Whoever waits asks again if a grant came too late to be held, a reader too, who asks before
// it queues; TryLock fails.
func TestFakeTimeLateGrantIsAskedForAgain(t *testing.T) {
	for _, reads := range []bool{false, true} {
		redistest.Bubble(t, func(t *testing.T) {
			c, l, f := newFake(t)
			if reads {
				l = c.NewRWLock("a").Reader()
			}
			k := &late{f, true}
			l.use(k)
			held, hold, err := l.Lock(t.Context())
			require.NoError(t, err, "reads: %v", reads)
			require.Len(t, f.calls("acquire"), 2)
			require.NoError(t, hold.Unlock(held))
			synctest.Wait() // the first has been released
			k.next = true
			_, _, err = l.TryLock(t.Context())
			require.ErrorIs(t, err, errLate)
		})
	}
}

// The client closes while a waiter asks once more.
func TestFakeTimeCloseDuringARepeatedAttempt(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		f.onAcquire = func(ctx context.Context, n int) (lua.Reply, error) {
			if n > 1 {
				return lua.Reply{}, hang(ctx)
			}
			return lua.Reply{TTL: time.Hour}, nil
		}
		errs := make(chan error, 1)
		go func() {
			_, _, err := l.Lock(t.Context())
			errs <- err
		}()
		sleepLong(100 * time.Millisecond)
		require.Len(t, f.calls("acquire"), 2)
		closed := make(chan error, 1)
		go func() { closed <- c.Close(t.Context()) }()
		synctest.Wait()
		require.Len(t, errs, 1)
		require.ErrorIs(t, <-errs, ErrClosed)
		require.NoError(t, <-closed)
	})
}

// curious is an error of the application, from a hook of its client say, that wants to know
// whether the goroutine that asks what it is holds a mutex. Others have it for a moment only.
type curious struct {
	mu   *sync.Mutex
	held *atomic.Bool
}

func (curious) Error() string { return "EOF" }

func (c curious) Is(error) bool {
	for range 100_000 {
		if c.mu.TryLock() {
			c.mu.Unlock()
			return false
		}
		runtime.Gosched()
	}
	c.held.Store(true)
	return false
}

func (c curious) As(any) bool { return c.Is(nil) }

func TestFakeTimeErrorsAreReadWithoutTheMutex(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		short := c.NewLock("a", WithLeaseTime(time.Second)) // its waiters give up before the first
		short.use(f)
		var held atomic.Bool
		f.onAcquire = func(context.Context, int) (lua.Reply, error) {
			time.Sleep(100 * time.Millisecond)
			return lua.Reply{}, curious{&l.queues.mu, &held}
		}
		var all sync.WaitGroup
		for _, mu := range []*Lock{l, short, short} {
			all.Go(func() {
				_, _, err := mu.Lock(within(t, time.Minute))
				assert.ErrorIs(t, err, ErrUnavailable)
			})
			synctest.Wait()
		}
		all.Wait()
		require.False(t, held.Load())
	})
}

// When a foreign owner has released the lock, the first in the queue asks at once, and for the others the first of their
// client soon, if they hear nothing of that.
func TestUnlockedByAForeignOwner(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		l := c.NewFairLock("a")
		l.use(f)
		asker := func(after time.Duration, first bool) *asker {
			a, w := f.enter(t, l, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 1, First: first}})
			t.Cleanup(func() { w.leave() })
			a.askAt = time.Now().Add(after)
			return a
		}
		one, two, three := asker(time.Hour, false), asker(time.Hour, true), asker(time.Hour, false)
		f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) { return lua.Reply{}, hang(ctx) }
		before := three.askAt
		l.withQueue(func(q *queue) {
			q.news.askAt = one.askAt
			q.unlocked()
			require.Equal(t, reaction, time.Until(q.news.askAt), "for who becomes the first of its client")
			require.True(t, two.asking, "it is the first in the queue")
			require.False(t, one.asking)
			require.Equal(t, reaction, time.Until(one.askAt), "for all of its client")
			require.False(t, three.asking)
			require.Equal(t, before, three.askAt)
			soon := time.Now().Add(10 * time.Millisecond)
			one.askAt = soon
			q.unlocked()
			require.Equal(t, soon, one.askAt)
		})
	})
}

// Every answer shows that the server is up, also the answer to a request that was sent before others got none. The
// time after which waiters give up starts anew with it.
func TestFakeTimeAnAnswerEndsTheTroubleOfAll(t *testing.T) {
	for name, granted := range map[string]bool{"granted": true, "refused": false} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				_, l, f := newFake(t)
				f.onAcquire = func(context.Context, int) (lua.Reply, error) {
					l.withQueue(func(q *queue) { // meanwhile, by another asker
						q.news.fails(errCut, time.Now())
						require.False(t, q.news.since.IsZero())
					})
					return lua.Reply{Acquired: granted, TTL: time.Second}, nil
				}
				w := newWaiter(t, l)
				_, a, err := l.queues.enter(w)
				require.NoError(t, err)
				q := a.queue
				g, err := a.askByCall(w)
				require.NoError(t, err)
				require.Equal(t, granted, g != nil)
				require.True(t, q.news.since.IsZero())
				require.NoError(t, q.news.trouble)
				if granted {
					g.forgo()
				} else {
					w.leave()
				}
			})
		})
	}
}

// The lock is held by another goroutine of the client, and so it is busy, whatever becomes of
// the requests that waiters make now and then, in case it was removed on the server: one that
// failed and whose caller has left, as another does before it would ask; or one that is not
// answered in time.
func TestFakeTimeBusyBehindOwnHolder(t *testing.T) {
	for name, tt := range map[string]struct {
		acquire func() (lua.Reply, error)
		waits   time.Duration // of the first
	}{
		"failed":       {func() (lua.Reply, error) { return lua.Reply{}, errCut }, keepAlive + time.Second},
		"not answered": {func() (lua.Reply, error) { time.Sleep(time.Second); return lua.Reply{TTL: time.Hour}, nil }, keepAlive + time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				_, l, f := newFake(t)
				held, hold, err := l.Lock(t.Context())
				require.NoError(t, err)
				f.onAcquire = func(context.Context, int) (lua.Reply, error) { return tt.acquire() }
				first, second := make(chan error, 1), make(chan error, 1)
				go func() { _, _, err := l.TryLockFor(t.Context(), tt.waits); first <- err }()
				time.Sleep(keepAlive)
				go func() { _, _, err := l.TryLockFor(t.Context(), 2*time.Second); second <- err }()
				require.ErrorIs(t, <-first, ErrNotAcquired)
				require.ErrorIs(t, <-second, ErrNotAcquired)
				require.NoError(t, held.Err(), "it is renewed")
				require.NoError(t, hold.Unlock(held))
			})
		})
	}
}

// A request fails and its caller leaves, while the others wait for a grant of their own client.
// The time after that in which nobody asked is no time without an answer: the next one asks.
func TestFakeTimeAnOldFailureIsNoSilence(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		l := c.NewLock("a", WithLeaseTime(3*time.Second))
		l.use(f)
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		var free atomic.Bool
		f.onAcquire = func(context.Context, int) (lua.Reply, error) {
			if time.Since(f.start) < 5500*time.Millisecond {
				return lua.Reply{}, errors.New("EOF")
			}
			return lua.Reply{Acquired: free.Load(), TTL: 3 * time.Second, Holder: hold.Owner()}, nil
		}
		var all sync.WaitGroup
		all.Go(func() {
			_, _, err := l.Lock(within(t, 5300*time.Millisecond)) // it asks after 5 s
			assert.Error(t, err)
		})
		synctest.Wait()
		for range 3 {
			all.Go(func() {
				_, next, err := l.Lock(within(t, time.Minute))
				if assert.NoError(t, err) {
					assert.NoError(t, next.Unlock(t.Context()))
				}
			})
			synctest.Wait()
		}
		time.Sleep(30 * time.Second)
		free.Store(true)
		require.NoError(t, hold.Unlock(held))
		all.Wait()
	})
}

// A waiter has had no answer since requests have failed, but not from before it came: so all of a line give up
// together, each after as long as it waits for an answer. When the newest failure is old nobody asks any more, and it
// says nothing.
func TestSilence(t *testing.T) {
	var n news
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	early, late := at(0), at(9)
	silent := func(came time.Time, now float64) time.Time { return n.silentSince(came, at(now)) }

	require.Zero(t, silent(early, 1))
	for s := 2.0; s < 30; s++ {
		n.fails(errCut, at(s))
	}
	require.Equal(t, at(2), silent(early, 30))
	require.Equal(t, late, silent(late, 30))
	require.Zero(t, silent(early, 29+longestFailure.Seconds()))

	n.fails(errCut, at(40)) // after a while without any request
	require.Equal(t, at(40), silent(early, 40))
	require.Equal(t, at(40), silent(late, 40))

	// An answer may be that to a request from before the newest failure. Which of the answered requests is the newest
	// goes by when they were sent.
	for _, sent := range []float64{1, 3, 2} {
		n.fails(errCut, at(41))
		n.answered(at(sent))
		require.Zero(t, silent(early, 41))
		require.NoError(t, n.trouble)
	}
	require.Equal(t, at(3), n.newest)
}

// Those of a line whose time without an answer is over get the error. The others wait on.
func TestFakeTimeWhoGivesUp(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		short := c.NewLock("a", WithLeaseTime(time.Second))
		short.use(f)
		require.Less(t, short.policy.Total, l.policy.Total)
		a, first := f.enter(t, l, lua.Reply{TTL: time.Hour})
		all := []*waiter{first, behind(t, short), behind(t, l)}
		given := func() (given []bool) {
			l.withQueue(func(*queue) {
				for _, w := range all {
					given = append(given, !w.waits())
				}
			})
			return given
		}
		f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) { return lua.Reply{}, hang(ctx) }
		began := time.Now()
		for time.Since(began) < short.policy.Total {
			a.report(errCut)
			require.Equal(t, []bool{false, false, false}, given())
			time.Sleep(time.Second)
		}
		a.report(errCut)
		require.Equal(t, []bool{false, true, false}, given())
		require.ErrorIs(t, short.failure(t.Context(), all[1].err), ErrUnavailable)
		a.report(nil)
		first.leave()
		all[2].leave()
	})
}

// Owners of this library are told from those of Redisson.
func TestOurs(t *testing.T) {
	for owner, want := range map[string]bool{
		"d2k7m3o6n88ekjf0v0vg:1": true, "d2k7m3o6n88ekjf0v0vg:4711": true,
		"5f2b6f0e-90d1-4b0c-9d0f-6c43b6ac4d5f:1": false, "": false, "x:1": false,
		"d2k7m3o6n88ekjf0v0v-:1": false, "d2k7m3o6n88ekjf0v0vgg:1": false,
	} {
		require.Equal(t, want, ours(owner), owner)
	}
}

// A message that grants the lock is trusted if it is known when that was at the earliest, and not for longer than the
// claim from then on. Otherwise the asker asks.
func TestGrantByMessage(t *testing.T) {
	const second = 1e6 // of the server
	for name, test := range map[string]struct {
		opts    []LockOption
		time    int64 // of the grant, after the waiter's newest answer
		late    bool  // the answer to another waiter is older than that, and came later
		token   int64
		after   time.Duration // when the message is looked at
		trusted bool
		since   time.Duration // when the window begins
	}{
		"at once":                         {trusted: true},
		"later":                           {time: 10 * second, after: 10 * time.Second, trusted: true, since: 10*time.Second - 102*time.Millisecond},
		"after half of the claim":         {time: 10 * second, after: 13 * time.Second},
		"longer than can be reckoned":     {time: 31 * second, after: 31 * time.Second},
		"before the newest answer":        {time: -1},
		"from the future":                 {time: 10 * second, after: time.Second},
		"before the ticket":               {time: -1, late: true},
		"of a fixed lease":                {opts: []LockOption{WithoutRenewal()}},
		"of a lock that asks replicas":    {opts: []LockOption{WithReplicas(1, time.Second)}},
		"without the token that it needs": {opts: []LockOption{WithFencing()}},
		"with the token that it needs":    {opts: []LockOption{WithFencing()}, token: 7, trusted: true},
		"with a token that it cannot use": {token: 7, trusted: true},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c, _, f := newFake(t)
				l := c.NewLock("a", test.opts...)
				if test.late {
					l = c.NewFairLock("a") // two of its calls may ask at a time
				}
				l.use(f)
				const there = 100 * second
				a, w := f.enter(t, l, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: there}})
				defer w.leave()
				if test.late {
					_, other := f.enter(t, l, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: there - 2}})
					defer other.leave()
				}
				sent := time.Now()
				now := sent.Add(test.after)
				m := lua.Message{Owner: a.owner.name, Granted: true, Time: there + test.time, Claim: 5 * time.Second, Token: test.token, Spare: 9}
				since, trusted := a.trusts(m, now)
				require.Equal(t, test.trusted, trusted)
				if !trusted {
					return
				}
				require.Equal(t, sent.Add(test.since), since)
				l.withQueue(func(q *queue) {
					a.message = m
					g := a.accept(now)
					require.False(t, a.message.Granted, "it is looked at once")
					require.Equal(t, since, g.sent)
					require.Equal(t, 5*time.Second, g.initialLease)
					require.Equal(t, l.terms.fenced, g.token == 7)
					require.Equal(t, l.terms.fenced, g.run.spare == 9)
					c.background(g.forgo)
				})
			})
		})
	}
}

// What was reserved for a waiter that leaves before a message was looked at is given back with the lock. A grant
// by a request keeps its token.
func TestTokensOfAMessageThatNobodyLookedAt(t *testing.T) {
	for _, owned := range []bool{false, true} {
		redistest.Bubble(t, func(t *testing.T) {
			c, _, f := newFake(t)
			l := c.NewLock("a", WithFencing())
			l.use(f)
			a, w := f.enter(t, l, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 1}})
			owner := a.owner.name
			asked := make(chan struct{})
			f.onAcquire = func(context.Context, int) (lua.Reply, error) {
				<-asked
				if owned {
					return lua.Reply{Acquired: true, Token: 3}, nil
				}
				return lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 1}}, nil
			}
			l.withQueue((*queue).askAll)
			synctest.Wait() // a request is under way
			l.hear(owner + " 2 6000 7 1024")
			if !owned {
				w.leave()
				synctest.Wait() // the owner is withdrawn before its answer comes
			}
			close(asked)
			synctest.Wait()
			if owned {
				<-w.served
				require.EqualValues(t, 3, w.grant.token)
				require.Empty(t, f.calls("release"))
				w.grant.forgo()
				return
			}
			require.Len(t, f.calls("release"), 2, "the second as the answer tells of a ticket")
			require.Equal(t, lua.Ending{Tickets: []string{owner}, Used: 7, Reserved: 7 + 1024}, f.ends[0])
		})
	}
}
