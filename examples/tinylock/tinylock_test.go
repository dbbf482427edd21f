package tinylock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/examples/tinylock/step0"
	"github.com/go-rlock/rlock/examples/tinylock/step1"
	"github.com/go-rlock/rlock/examples/tinylock/step2"
	"github.com/go-rlock/rlock/examples/tinylock/step3"
	"github.com/go-rlock/rlock/examples/tinylock/step4"
	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// A release whose answer is lost is sent again for one lease, as step4 cannot know that it was executed. The checks lose
// answers, and one of them may be the answer to such a release.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, redistest.Dials, goleak.IgnoreAnyFunction("github.com/go-rlock/rlock/examples/tinylock/step4.(*hold).abandon"))
}

// locker is what a step has.
type locker interface {
	Lock(ctx context.Context) (held context.Context, unlock func() error, err error)
}

// step is a lock, and the check of what it has before others.
type step struct {
	name  string
	lock  func(rdb redis.UniversalClient, key string, lease time.Duration) locker
	check func(b *bench) error
}

var steps = []step{
	{"without an owner", func(rdb redis.UniversalClient, key string, lease time.Duration) locker {
		return &unowned{rdb, key, lease}
	}, nil},
	{"step0", func(rdb redis.UniversalClient, key string, lease time.Duration) locker {
		return step0.New(rdb, key, lease)
	}, unlocksOnlyItsOwn},
	{"step1", func(rdb redis.UniversalClient, key string, lease time.Duration) locker {
		return step1.New(rdb, key, lease)
	}, renewsAndTells},
	{"step2", func(rdb redis.UniversalClient, key string, lease time.Duration) locker {
		return step2.New(rdb, key, lease)
	}, nests},
	{"step3", func(rdb redis.UniversalClient, key string, lease time.Duration) locker {
		return step3.New(rdb, key, lease)
	}, hears},
	{"step4", func(rdb redis.UniversalClient, key string, lease time.Duration) locker {
		return step4.New(rdb, key, lease)
	}, repeats},
}

// Each step passes its check and those of the steps before. The step before fails.
func TestSteps(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	warm(t, srv)
	var wg sync.WaitGroup // they mostly wait, so all are run at once
	for i, s := range steps[1:] {
		for _, earlier := range steps[1 : i+2] {
			name := s.name + " passes the check of " + earlier.name
			wg.Go(func() { assert.NoError(t, earlier.check(&bench{t, srv, s, name}), name) })
		}
		name := steps[i].name + " fails the check of " + s.name
		wg.Go(func() {
			err := s.check(&bench{t, srv, steps[i], name})
			if assert.Error(t, err, name) {
				t.Logf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
}

// unowned is what a lock looks like that does not know its owner.
type unowned struct {
	rdb   redis.UniversalClient
	key   string
	lease time.Duration
}

func (l *unowned) Lock(ctx context.Context) (context.Context, func() error, error) {
	for {
		free, err := l.rdb.SetNX(ctx, l.key, 1, l.lease).Result()
		if err != nil || free {
			return ctx, func() error { return l.rdb.Del(context.WithoutCancel(ctx), l.key).Err() }, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// bench is where a check tries a step: its clients are like processes.
type bench struct {
	tb   testing.TB
	srv  *redistest.Server
	step step
	key  string
}

// warm has the server know the scripts: a check that counts requests, or loses one, is not to meet their sources.
func warm(t *testing.T, srv *redistest.Server) {
	_, unlock, err := step0.New(srv.Client(t), "warm", time.Minute).Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, unlock())
}

func (b *bench) client() *redis.Client { return b.clientAt(b.srv.Addr()) }

func (b *bench) clientAt(addr string) *redis.Client {
	return b.srv.Client(b.tb, func(o *redis.Options) { o.Addr, o.ContextTimeoutEnabled = addr, true })
}

func (b *bench) lock(rdb *redis.Client, lease time.Duration) locker {
	return b.step.lock(rdb, b.key, lease)
}

// within is a context for what should be done soon.
func (b *bench) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.tb.Context(), d)
	b.tb.Cleanup(cancel)
	return ctx
}

// soon is long enough for a machine that stands still for a moment, and shorter than what must not be waited for.
const soon = 3 * time.Second

// unlocksOnlyItsOwn has somebody delete the lock of a first holder, who unlocks when there is a second.
func unlocksOnlyItsOwn(b *bench) error {
	rdb := b.client()
	_, unlockFirst, err := b.lock(rdb, time.Minute).Lock(b.within(soon))
	if err != nil {
		return err
	}
	if err := rdb.Del(b.tb.Context(), b.key).Err(); err != nil {
		return err
	}
	_, unlockSecond, err := b.lock(rdb, time.Minute).Lock(b.within(soon))
	if err != nil {
		return err
	}
	_ = unlockFirst() // its error may be that the lock was lost
	if n, err := rdb.Exists(b.tb.Context(), b.key).Result(); err != nil || n == 0 {
		return errors.Join(err, errors.New("the first holder has unlocked what the second holds"))
	}
	return unlockSecond()
}

// renewsAndTells waits for a renewal, and then keeps all others from the server.
func renewsAndTells(b *bench) error {
	const lease = 4 * time.Second
	proxy, direct := netfault.New(b.tb, b.srv.Addr()), b.client()
	held, unlock, err := b.lock(b.clientAt(proxy.Addr()), lease).Lock(b.within(soon))
	if err != nil {
		return err
	}
	for before := lease; ; time.Sleep(10 * time.Millisecond) {
		left, err := direct.PTTL(b.tb.Context(), b.key).Result()
		if err != nil || left < 0 {
			return errors.Join(err, errors.New("nobody has renewed the lease"))
		}
		if left > before {
			break
		}
		before = left
	}
	proxy.DropUp(true)
	_, next, err := b.lock(direct, time.Minute).Lock(b.within(lease + soon))
	if err != nil {
		return err
	}
	if held.Err() == nil {
		return errors.New("there is a second holder, and the first one's context has not ended")
	}
	proxy.Heal()
	proxy.CutAll()
	_ = unlock()
	return next()
}

// nests locks once more below a lock, and unlocks as often.
func nests(b *bench) error {
	rdb := b.client()
	l := b.lock(rdb, time.Minute)
	outer, unlockOuter, err := l.Lock(b.within(soon))
	if err != nil {
		return err
	}
	defer func() { _ = unlockOuter() }()
	below, cancel := context.WithTimeout(outer, soon/3)
	defer cancel()
	_, unlockInner, err := b.lock(rdb, time.Minute).Lock(below)
	if err != nil {
		return fmt.Errorf("the context owns the lock, and waits for it: %w", err)
	}
	if err := errors.Join(unlockInner(), unlockInner()); err != nil { // the second time is the same unlock
		return err
	}
	if n, err := rdb.Exists(b.tb.Context(), b.key).Result(); err != nil || n == 0 || outer.Err() != nil {
		return errors.Join(err, errors.New("the inner unlock has ended the outer hold"))
	}
	if err := unlockOuter(); err != nil {
		return err
	}
	_, unlock, err := l.Lock(b.within(soon)) // free again
	if err != nil {
		return err
	}
	return unlock()
}

// hears has a waiter wait, and counts its requests; and has a lock released at the worst moment, after the waiter was
// refused and before it has subscribed.
func hears(b *bench) error {
	const lease = time.Minute
	wait := func(hold time.Duration, refused func(n int64, unlock func() error) error) (asked int64, err error) {
		_, unlock, err := b.lock(b.client(), lease).Lock(b.within(soon))
		if err != nil {
			return 0, err
		}
		var n atomic.Int64
		rdb := b.client()
		rdb.AddHook(redistest.Hook{Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() != "evalsha" {
				return next(ctx, cmd)
			}
			return errors.Join(next(ctx, cmd), refused(n.Add(1), unlock))
		}})
		done := make(chan error, 1)
		var release func() error
		go func() {
			var err error
			_, release, err = b.lock(rdb, lease).Lock(b.within(hold + soon))
			done <- err
		}()
		if hold > 0 {
			time.Sleep(hold)
			asked = n.Load()
			if err := unlock(); err != nil {
				return asked, err
			}
		}
		if err := <-done; err != nil {
			return asked, fmt.Errorf("the waiter was not woken: %w", err)
		}
		return asked, release()
	}
	asked, err := wait(soon, func(int64, func() error) error { return nil })
	if err != nil {
		return err
	}
	if asked > 3 {
		return fmt.Errorf("the waiter has asked %d times for a lock that was held all the time", asked)
	}
	_, err = wait(0, func(n int64, unlock func() error) error {
		if n == 1 {
			return unlock()
		}
		return nil
	})
	return err
}

// repeats loses an answer to a lock and to an unlock, and has a request arrive when its caller has given up.
func repeats(b *bench) error {
	const lease = time.Minute
	proxy, script := netfault.New(b.tb, b.srv.Addr()), netfault.Command("evalsha")
	far, near := b.lock(b.clientAt(proxy.Addr()), lease), b.lock(b.client(), lease)

	proxy.CutReplies(1, script)
	_, unlock, err := far.Lock(b.within(soon))
	if err != nil {
		return fmt.Errorf("an answer was lost, and so is the call: %w", err)
	}
	proxy.CutReplies(1, script)
	if err := unlock(); err != nil {
		return fmt.Errorf("an answer was lost, and so is the unlock: %w", err)
	}

	late := proxy.Hold(script)
	if _, _, err := far.Lock(b.within(soon / 10)); err == nil {
		return errors.New("a request has arrived that was held back")
	}
	if err := late.Deliver(b.within(soon)); err != nil {
		return err
	}
	_, unlock, err = near.Lock(b.within(soon))
	if err != nil {
		return fmt.Errorf("the lock belongs to a caller who has given up: %w", err)
	}
	return unlock()
}

// A tiny lock and a lock of package rlock exclude each other, and wake each other.
func TestBesideRlock(t *testing.T) {
	t.Parallel()
	const callers, rounds, lease = 3, 20, 30 * time.Second
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	locks, err := rlock.New(rdb, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, locks.Close(context.WithoutCancel(t.Context()))) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var inside atomic.Int32
	var times int // guarded by the lock
	work := func() {
		assert.EqualValues(t, 1, inside.Add(1))
		times++
		time.Sleep(time.Millisecond)
		inside.Add(-1)
	}
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds {
				assert.NoError(t, locks.NewLock("both").Do(ctx, func(context.Context) error { work(); return nil }))
			}
		})
		wg.Go(func() {
			for range rounds {
				_, unlock, err := step4.New(rdb, "both", lease).Lock(ctx)
				if assert.NoError(t, err) {
					work()
					assert.NoError(t, unlock())
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 2*callers*rounds, times)
}
