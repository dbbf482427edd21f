package rlock_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
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

// endsCaller is a hook that ends the goroutine in which it runs, by a panic or by Goexit, at the
// next command that is sent in that goroutine: that of the caller, if the request is the only one
// under way. A panic elsewhere would end the program.
type endsCaller struct {
	how   func()
	after bool // when the command was sent
	in    atomic.Pointer[string]
	ended atomic.Int64 // how many
}

// goroutine names the one that calls it.
func goroutine() string {
	stack := make([]byte, 64)
	stack = stack[:runtime.Stack(stack, false)]
	return string(bytes.Fields(stack)[1])
}

func (e *endsCaller) arm() {
	id := goroutine()
	e.in.Store(&id)
}

func (e *endsCaller) hook() redistest.Hook {
	return redistest.Hook{Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if in := e.in.Load(); in == nil || *in != goroutine() {
			return next(ctx, cmd)
		}
		e.in.Store(nil)
		e.ended.Add(1)
		if e.after {
			_ = next(ctx, cmd)
		}
		e.how()
		return nil
	}}
}

// A hook of the client that panics, or ends the goroutine, makes its caller leave. The application
// may recover, as net/http does. No lock is then held, or renewed, for nobody.
func TestHookThatEndsItsCaller(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	for name, how := range map[string]func(){"panic": func() { panic("hook") }, "Goexit": runtime.Goexit} {
		for _, after := range []bool{false, true} {
			e := &endsCaller{how: how, after: after}
			hooked := srv.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
			hooked.AddHook(e.hook())
			c := clientOn(t, hooked, &rlock.Options{LeaseTime: time.Minute})
			for kind, of := range map[string]func(name string) rlock.Locker{
				"plain":  func(name string) rlock.Locker { return c.NewLock(name) },
				"fair":   func(name string) rlock.Locker { return c.NewFairLock(name) },
				"reader": func(name string) rlock.Locker { return c.NewRWLock(name).Reader() },
				"writer": func(name string) rlock.Locker { return c.NewRWLock(name).Writer() },
				"kept":   func(name string) rlock.Locker { return c.NewLock(name, rlock.WithRetention(time.Millisecond)) },
				"multi": func(name string) rlock.Locker {
					return rlock.NewMultiLock(c.NewLock(name), c.NewLock(name+"2"), c.NewFairLock(name+"3"))
				},
			} {
				for _, at := range []string{"Lock", "TryLock", "nested Lock", "nested Unlock", "Unlock"} {
					t.Run(fmt.Sprint(name, " ", after, " ", kind, " ", at), func(t *testing.T) {
						name := strings.ReplaceAll(t.Name(), "/", " ")
						mu := of(name)
						require.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil })) // the server knows the scripts, and answers fast
						armed := func(here string) {
							if here == at {
								e.arm()
							}
						}
						ended := make(chan struct{})
						go func() {
							defer close(ended)
							defer func() { _ = recover() }()
							work := func(ctx context.Context) error {
								armed("nested Lock")
								err := mu.Do(ctx, func(context.Context) error { armed("nested Unlock"); return nil })
								armed("Unlock")
								return err
							}
							armed("Lock")
							armed("TryLock")
							if at == "TryLock" {
								_ = mu.TryDo(t.Context(), work)
							} else {
								_ = mu.Do(t.Context(), work)
							}
						}()
						<-ended
						redistest.Eventually(t, "it is free", func() bool {
							return len(rdb.Keys(t.Context(), name+"*").Val()) == 0
						})
						require.NoError(t, mu.TryDo(t.Context(), func(context.Context) error { return nil }))
					})
				}
			}
			require.Positive(t, e.ended.Load())
			for _, kind := range c.Stats().Kinds {
				require.Zero(t, kind.Waiting, kind.Kind)
				require.Zero(t, kind.Held, kind.Kind)
			}
		}
	}
}

// The same for a request that the client makes for its waiters, in a goroutine of its own: the first waiter is who leaves.
// A hook that always ends it is not called again and again.
func TestHookThatEndsARequestForWaiters(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	for name, how := range map[string]func(){"panic": func() { panic("hook") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			holder := newClient(t, srv, nil).NewLock(name)
			held, hold := lock(t, t.Context(), holder)
			var armed atomic.Bool
			var ended atomic.Int64
			ask := isScript("ask")
			hooked := srv.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
			hooked.AddHook(redistest.Hook{Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if len(cmd.Args()) > 1 && armed.Load() && ask([]string{cmd.Name(), fmt.Sprint(cmd.Args()[1])}) &&
					bytes.Contains(debug.Stack(), []byte("askForLine")) { // a panic in a goroutine that sends for several would end the program
					ended.Add(1)
					how()
				}
				return next(ctx, cmd)
			}})
			mu := clientOn(t, hooked, nil).NewLock(name)
			type result struct {
				err   error
				panic any
			}
			done := make(chan result, 1)
			go func() {
				var r result
				defer func() { r.panic = recover(); done <- r }()
				_, _, r.err = mu.Lock(t.Context())
			}()
			redistest.Eventually(t, "it has a place", func() bool { return len(tickets(t, srv.Client(t), name)) == 1 })
			armed.Store(true)
			r := <-done
			armed.Store(false)
			if name == "panic" {
				require.Equal(t, "hook", r.panic)
			} else {
				require.ErrorIs(t, r.err, rlock.ErrUnavailable)
			}
			require.Less(t, ended.Load(), int64(100))
			require.NoError(t, hold.Unlock(held))
			require.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil }))
		})
	}
}

// A context ends while a request for the lock has no answer yet, and the request is not late. The error is ErrNotAcquired if a refusal
// is known, however old the request is, and if the request is too young to have an answer. Otherwise Redis
// is silent.
func TestFakeTimeContextEndsWhileARequestIsUnderWay(t *testing.T) {
	type lockFor func(ctx context.Context, wait time.Duration) error
	nothing := func(context.Context) error { return nil }
	waits := func(mu *rlock.Lock) lockFor {
		return func(ctx context.Context, wait time.Duration) error {
			return mu.DoFor(ctx, wait, nothing)
		}
	}
	plain := func(t *testing.T, opts ...rlock.LockOption) ([]*fakeRedis, *rlock.Lock, lockFor) {
		f := newFakeRedis(t)
		return []*fakeRedis{f}, f.client(t, nil).NewLock("a"), waits(f.client(t, nil).NewLock("a", opts...))
	}
	kinds := map[string]func(t *testing.T) (servers []*fakeRedis, other *rlock.Lock, call lockFor){
		"plain": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) { return plain(t) },
		"polling": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			return plain(t, rlock.WithPolling(rlock.Polling{}))
		},
		"Lock": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			f := newFakeRedis(t)
			mu := f.client(t, nil).NewLock("a")
			return []*fakeRedis{f}, f.client(t, nil).NewLock("a"), func(ctx context.Context, wait time.Duration) error {
				ctx, stop := context.WithTimeout(ctx, wait)
				defer stop()
				return mu.Do(ctx, nothing)
			}
		},
		"fair": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			f := newFakeRedis(t)
			return []*fakeRedis{f}, f.client(t, nil).NewFairLock("a"), waits(f.client(t, nil).NewFairLock("a"))
		},
		"writer": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			f := newFakeRedis(t)
			return []*fakeRedis{f}, f.client(t, nil).NewRWLock("a").Reader(), waits(f.client(t, nil).NewRWLock("a").Writer())
		},
		"reader": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			f := newFakeRedis(t)
			return []*fakeRedis{f}, f.client(t, nil).NewRWLock("a").Writer(), waits(f.client(t, nil).NewRWLock("a").Reader())
		},
		"multi": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			f := newFakeRedis(t)
			c := f.client(t, nil)
			mu := rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"))
			return []*fakeRedis{f}, f.client(t, nil).NewLock("a"), func(ctx context.Context, wait time.Duration) error {
				return mu.DoFor(ctx, wait, nothing)
			}
		},
		"quorum": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			all, _, mu := fakeServers(t)
			var others []*rlock.Client
			for _, f := range all {
				others = append(others, f.client(t, nil))
			}
			return all, rlock.NewQuorumLock("a", others), waits(mu)
		},
	}
	silent := func(all []*fakeRedis, yes bool) {
		for _, f := range all {
			f.deafDown.Store(yes)
		}
	}
	for name, kind := range kinds {
		for _, tt := range []struct {
			name   string
			held   bool          // by another client
			silent time.Duration // Redis is silent from then on
			wait   time.Duration
			want   error
		}{
			{"at the first request", true, 0, answerTime - 1, rlock.ErrNotAcquired},
			{"at the first request, for a free lock", false, 0, answerTime - 1, rlock.ErrNotAcquired},
			{"long after the first request", true, 0, answerTime, rlock.ErrUnavailable},
			{"at a later request", true, 500 * time.Millisecond, 1050 * time.Millisecond, rlock.ErrNotAcquired},
		} {
			t.Run(fmt.Sprint(name, " ", tt.name), func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					all, other, call := kind(t)
					require.NoError(t, call(t.Context(), time.Minute)) // answered: the servers are well
					if tt.held {
						held, hold := lock(t, t.Context(), other)
						defer func() { assert.NoError(t, hold.Unlock(held)) }()
					}
					failed := make(chan error, 2)
					silent(all, tt.silent == 0)
					for range cap(failed) { // the second waits behind the first; both end before the test does
						go func() { failed <- call(t.Context(), tt.wait) }()
					}
					if tt.silent > 0 {
						time.Sleep(tt.silent)
						synctest.Wait()
						silent(all, true)
					}
					one, two := <-failed, <-failed
					silent(all, false)
					for _, err := range []error{one, two} {
						require.ErrorIs(t, err, tt.want)
						require.ErrorIs(t, err, context.DeadlineExceeded)
					}
				})
			})
		}
	}
}

// answerTime is that of package rlock.
const answerTime = 5 * time.Millisecond
