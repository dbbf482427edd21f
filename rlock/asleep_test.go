package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// play is a random course of clients that want the same lock, over connections on which
// everything takes its time, and break. It watches that nobody sleeps beside a lock that
// nobody uses.
type play struct {
	f      *fakeRedis
	fenced bool
	rw     bool          // all locks are the two sides of a read/write lock
	limit  time.Duration // for how long nobody may use a lock that somebody waits for
	what   []string      // takes part

	inside  atomic.Int64 // the weights of all sections
	waiting atomic.Int64 // calls that wait
	foreign atomic.Bool  // somebody in Java has the lock
}

// Limits are longer than a few round trips and the pause before a second attempt to connect,
// and shorter than the time after which a waiter asks of its own accord. Only that shows that
// the server has forgotten the queue. Others are longer than it takes to find out that a
// connection is deaf, or than two pauses of who polls, the first one to recall what is kept.
const (
	asleepFor        = minKeepAlive - 100*time.Millisecond
	asleepForLong    = 3 * time.Second
	asleepForLongest = keepAlive + keepAlive/10 + asleepFor
)

// exclusive is the weight of a section that excludes all others; that of a reader is 1.
const exclusive = 1000

// Courses are random by their seeds: always the same eight, or as many others as RLOCK_COURSES
// says. RLOCK_SEED repeats one: who takes part, and what they do, but not how long each
// message is on its way.
func TestFakeTimeNobodyIsAsleep(t *testing.T) {
	courses, random := 8, false
	if testing.Short() {
		courses = 1
	}
	if n, err := strconv.Atoi(os.Getenv("RLOCK_COURSES")); err == nil {
		courses, random = n, true
	}
	for i := range courses {
		seed := uint64(i)
		if random {
			seed = rand.Uint64()
		}
		if n, err := strconv.ParseUint(os.Getenv("RLOCK_SEED"), 10, 64); err == nil {
			seed = n
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Log("seed", seed)
				}
			}()
			redistest.Bubble(t, func(t *testing.T) { playOnce(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

// playOnce makes up a course, and watches it. In the end nothing may be left on the server.
func playOnce(t *testing.T, rng *rand.Rand) {
	f := newFakeRedis(t)
	p := &play{f: f, fenced: rng.IntN(3) == 0, rw: rng.IntN(4) == 0, limit: asleepFor}
	one := func(f func(rng *rand.Rand)) func() { // each part has a source of its own
		own := rand.New(rand.NewPCG(rng.Uint64(), 2))
		return func() { f(own) }
	}
	f.jitter.Store(int64([]time.Duration{time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond}[rng.IntN(3)]))
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	var all sync.WaitGroup
	for range 1 + rng.IntN(3) {
		c := f.client(t, nil)
		var what string
		for range 1 + rng.IntN(3) {
			mu, weight, is := p.lockOf(c, rng)
			what += " " + is
			all.Go(one(func(rng *rand.Rand) { p.visit(ctx, t, mu, weight, rng) }))
		}
		p.what = append(p.what, what)
	}
	if !p.rw && rng.IntN(2) == 0 {
		listens := rng.IntN(2) == 0
		p.what = append(p.what, fmt.Sprint("java, listens: ", listens))
		all.Go(one(func(rng *rand.Rand) { p.java(ctx, t, listens, rng) }))
	}
	switch rng.IntN(5) {
	case 0:
		p.what = append(p.what, "listeners are cut")
		all.Go(one(func(rng *rand.Rand) { p.faults(ctx, rng, f.cut) }))
	case 1:
		p.what = append(p.what, "all are cut")
		all.Go(one(func(rng *rand.Rand) { p.faults(ctx, rng, f.cutAll) }))
	case 2:
		p.what, p.limit = append(p.what, "listeners are deaf"), asleepForLong
		all.Go(one(func(rng *rand.Rand) {
			p.faults(ctx, rng, func() {
				f.deafListeners.Store(true)
				time.Sleep(p.pause(rng, 100*time.Millisecond))
				f.deafListeners.Store(false)
			})
		}))
	case 3:
		p.what, p.limit = append(p.what, "the queue is forgotten"), asleepForLongest
		all.Go(one(func(rng *rand.Rand) { p.faults(ctx, rng, func() { f.Del(lua.QueueOf("a")) }) }))
	}
	all.Go(func() { p.watch(ctx, t) })
	all.Wait()
	f.jitter.Store(0)
	time.Sleep(20 * time.Second)
	synctest.Wait()
	f.Del("redisson_lock_token:{a}")
	require.Empty(t, f.Keys())
}

// lockOf returns a lock of some kind and with some options, all for the same name.
func (p *play) lockOf(c *rlock.Client, rng *rand.Rand) (mu *rlock.Lock, weight int64, is string) {
	var opts []rlock.LockOption
	with := func(one string, o rlock.LockOption) { is, opts = is+" "+one, append(opts, o) }
	if p.fenced {
		with("fenced", rlock.WithFencing())
	}
	if rng.IntN(3) == 0 {
		with("not handed off", rlock.WithoutHandoff())
	}
	if p.rw {
		if rng.IntN(3) == 0 {
			return c.NewRWLock("a", opts...).Writer(), exclusive, "write" + is
		}
		return c.NewRWLock("a", opts...).Reader(), 1, "read" + is
	}
	switch rng.IntN(8) {
	case 0, 1, 2:
		return c.NewFairLock("a", opts...), exclusive, "fair" + is
	case 3:
		with("polled", rlock.WithPolling(rlock.Polling{}))
		p.limit = asleepForLong
	case 4:
		with("kept", rlock.WithRetention(100*time.Millisecond+time.Duration(rng.Int64N(int64(time.Second)))))
	}
	return c.NewLock("a", opts...), exclusive, "plain" + is
}

// visit goes in and out, and now and then leaves while it waits.
func (p *play) visit(ctx context.Context, t *testing.T, mu *rlock.Lock, weight int64, rng *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(p.pause(rng, 200*time.Millisecond))
		wait, leave := context.WithTimeout(t.Context(), time.Minute)
		if rng.IntN(4) == 0 {
			wait, leave = context.WithTimeout(t.Context(), p.pause(rng, 300*time.Millisecond))
		}
		p.waiting.Add(1)
		held, hold, err := mu.Lock(wait)
		p.waiting.Add(-1)
		if err != nil {
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.True(t, errors.Is(err, rlock.ErrNotAcquired) || errors.Is(err, rlock.ErrUnavailable), err)
			leave()
			continue
		}
		assert.LessOrEqual(t, p.inside.Add(weight), int64(exclusive))
		assert.False(t, p.foreign.Load())
		time.Sleep(p.pause(rng, 100*time.Millisecond))
		p.inside.Add(-weight)
		assert.NoError(t, hold.Unlock(held))
		leave()
	}
}

// pause is short as often as long.
func (p *play) pause(rng *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(float64(most) * rng.Float64() * rng.Float64() * rng.Float64())
}

// java takes the lock while it is free, and releases it, as Redisson does.
func (p *play) java(ctx context.Context, t *testing.T, listens bool, rng *rand.Rand) {
	const take = `if redis.call('exists', KEYS[1]) == 0 then
		redis.call('hset', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 30000) end
		return redis.call('hexists', KEYS[1], ARGV[1])`
	var heard <-chan *redis.Message
	if listens {
		s := p.f.rdb.Subscribe(t.Context(), channelOfA)
		defer func() { assert.NoError(t, s.Close()) }()
		heard = s.Channel(redis.WithChannelSize(1 << 16))
	}
	for ctx.Err() == nil {
		select {
		case <-time.After(p.pause(rng, 50*time.Millisecond)):
		case <-heard:
		}
		got, err := p.f.rdb.Eval(t.Context(), take, []string{"a"}, redisson).Int()
		for err != nil {
			got, err = p.f.rdb.Eval(t.Context(), take, []string{"a"}, redisson).Int()
		}
		if got == 0 {
			continue
		}
		p.foreign.Store(true)
		assert.Zero(t, p.inside.Load())
		time.Sleep(p.pause(rng, 300*time.Millisecond))
		p.foreign.Store(false)
		const release = `if redis.call('hdel', KEYS[1], ARGV[1]) == 1 then redis.call('publish', KEYS[2], '0') end return 1`
		for p.f.rdb.Eval(t.Context(), release, []string{"a", channelOfA}, redisson).Err() != nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// faults has a fault happen every few seconds.
func (p *play) faults(ctx context.Context, rng *rand.Rand, fault func()) {
	for ctx.Err() == nil {
		time.Sleep(2*time.Second + p.pause(rng, 4*time.Second))
		fault()
	}
}

// watch ends the course if a lock that somebody waits for is not used for too long.
func (p *play) watch(ctx context.Context, t *testing.T) {
	const tick = 5 * time.Millisecond
	idle := time.Duration(0)
	for ctx.Err() == nil || p.waiting.Load() > 0 {
		time.Sleep(tick)
		idle += tick
		if p.inside.Load() > 0 || p.waiting.Load() == 0 || p.foreign.Load() {
			idle = 0
		}
		if idle == p.limit {
			holder, _ := p.f.HKeys("a")
			queue, _ := p.f.SortedSet("rlock_queue:{a}")
			t.Errorf("after %v %d wait, and nobody has it; holder %v, queue %v, jitter %v; %q", p.f.now(), p.waiting.Load(), holder, queue,
				time.Duration(p.f.jitter.Load()), p.what)
		}
	}
}
