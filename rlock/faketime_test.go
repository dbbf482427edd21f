package rlock_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// The tests of this file run in a bubble, whose clock moves only when every
// goroutine sleeps: a request takes no time at all, and instants are exact.

// fakeRedis is a server on the bubble's clock, and the network before it.
type fakeRedis struct {
	*miniredis.Miniredis
	rdb   *redis.Client
	start time.Time

	deafUp, deafDown atomic.Bool  // swallows requests, or replies
	deafSubscribe    atomic.Bool  // swallows SUBSCRIBE, and what follows on that connection
	late             atomic.Int64 // replies take so long, as a time.Duration
	denySubscribe    atomic.Bool  // answers NOPERM to it
	deafListeners    atomic.Bool  // swallows what connections get that have subscribed

	mu    sync.Mutex // guards what follows
	log   []request
	conns []*fakeConn
	gates []*gate
}

// gate keeps the next matching request back.
type gate struct {
	match  func(args []string) bool
	caught bool
	open   func()
	passed chan struct{}
}

// hold keeps the next matching request back until open is called.
func (f *fakeRedis) hold(match func(args []string) bool) (open func()) {
	g := &gate{match: match, passed: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.passed) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gates = append(f.gates, g)
	return g.open
}

// cut closes the connections that have subscribed.
func (f *fakeRedis) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		if c.listens.Load() {
			_ = c.Close()
		}
	}
}

// request is one that the server got.
type request struct {
	at   time.Duration // since the start
	args []string      // in lower case: the command
}

func newFakeRedis(t *testing.T) *fakeRedis {
	f := &fakeRedis{Miniredis: miniredis.NewMiniRedis(), start: time.Now()}
	f.ClockTTL(true)
	f.rdb = redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:1", // not a name: a resolver has no place in a bubble
		Dialer: func(context.Context, string, string) (net.Conn, error) { return f.dial() },
	})
	require.NoError(t, f.rdb.Ping(t.Context()).Err()) // starts the server
	f.heal()
	t.Cleanup(func() {
		assert.NoError(t, f.rdb.Close())
		f.Close()
	})
	return f
}

// heal ends all faults.
func (f *fakeRedis) heal() {
	f.deafUp.Store(false)
	f.deafDown.Store(false)
	f.deafSubscribe.Store(false)
	f.deafListeners.Store(false)
	f.denySubscribe.Store(false)
	f.late.Store(0)
	f.SetError("")
	f.Server().SetPreHook(f.hook)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.gates {
		g.open()
	}
	f.gates = nil
}

// client returns a client whose Close must succeed at the end of the test.
func (f *fakeRedis) client(t *testing.T, opts *rlock.Options) *rlock.Client {
	c, err := rlock.New(f.rdb, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		f.heal()
		require.NoError(t, closeSoon(c))
	})
	return c
}

func (f *fakeRedis) now() time.Duration { return time.Since(f.start) }

func (f *fakeRedis) hook(p *server.Peer, command string, args ...string) bool {
	f.mu.Lock()
	words := append([]string{strings.ToLower(command)}, args...)
	f.log = append(f.log, request{f.now(), words})
	var caught *gate
	for _, g := range f.gates {
		if !g.caught && g.match(words) {
			g.caught, caught = true, g
			break
		}
	}
	f.mu.Unlock()
	if caught != nil {
		<-caught.passed
	}
	if strings.EqualFold(command, "subscribe") && f.denySubscribe.Load() {
		p.WriteError("NOPERM this user has no permissions to run the 'subscribe' command")
		return true
	}
	return false
}

// scripts returns when the server got each call of a script.
func (f *fakeRedis) scripts(name string) (at []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.log {
		if isScript(name)(r.args) {
			at = append(at, r.at)
		}
	}
	return at
}

// teach makes the server know the scripts, so that each request is one command.
func (f *fakeRedis) teach(t *testing.T) {
	for _, name := range []string{"try", "ask", "ask_fair", "release", "renew"} {
		for _, word := range scripts(name) {
			if len(word) > 40 { // a source
				require.NoError(t, f.rdb.ScriptLoad(t.Context(), word).Err())
			}
		}
	}
}

// askedFor returns how often the server was asked for a lock on behalf of an owner. One
// request may be for several of a client.
func (f *fakeRedis) askedFor(owner string) (n int) {
	try, ask, fair := isScript("try"), isScript("ask"), isScript("ask_fair")
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.log {
		if (try(r.args) || ask(r.args) || fair(r.args)) && slices.Contains(r.args, owner) {
			n++
		}
	}
	return n
}

// asked returns when the server was asked for a lock.
func (f *fakeRedis) asked() []time.Duration {
	return slices.Sorted(slices.Values(slices.Concat(f.scripts("try"), f.scripts("ask"), f.scripts("ask_fair"))))
}

func (f *fakeRedis) dial() (net.Conn, error) {
	c, err := f.Dial()
	if err != nil {
		return nil, err
	}
	fc := &fakeConn{Conn: c, f: f, sent: make(chan []byte, 1<<10), closed: make(chan struct{})}
	go fc.carry() // ends with Close
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, fc)
	return fc, nil
}

// fakeConn has a buffer for what is written, as a real connection has: the server
// reads no request while it writes a reply.
type fakeConn struct {
	net.Conn
	f       *fakeRedis
	deaf    atomic.Bool
	listens atomic.Bool // has subscribed
	gap     atomic.Bool // has lost something: nothing comes through any more
	sent    chan []byte
	closed  chan struct{}
	once    sync.Once

	mu       sync.Mutex // guards deadline
	deadline time.Time  // of reading
}

// carry brings to the server what was written.
func (c *fakeConn) carry() {
	for {
		select {
		case b := <-c.sent:
			if _, err := c.Conn.Write(b); err != nil {
				return
			}
		case <-c.closed:
			return
		}
	}
}

func (c *fakeConn) Write(b []byte) (int, error) {
	if strings.Contains(strings.ToLower(string(b)), "\r\nsubscribe\r\n") {
		c.listens.Store(true)
		c.deaf.Store(c.deaf.Load() || c.f.deafSubscribe.Load())
	}
	if c.f.deafUp.Load() || c.deaf.Load() {
		return len(b), nil
	}
	select {
	case c.sent <- slices.Clone(b):
		return len(b), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *fakeConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil {
			return n, err
		}
		if d := time.Duration(c.f.late.Load()); d > 0 {
			if err := c.delay(d); err != nil {
				return 0, err
			}
		}
		if c.listens.Load() && c.f.deafListeners.Load() {
			c.gap.Store(true)
		}
		if !c.f.deafDown.Load() && !c.gap.Load() {
			return n, nil
		}
	}
}

// delay holds up what was read, as long as the reader has patience.
func (c *fakeConn) delay(d time.Duration) error {
	c.mu.Lock()
	left := time.Until(c.deadline)
	impatient := !c.deadline.IsZero() && left < d
	c.mu.Unlock()
	if impatient {
		d = left
	}
	timer := time.NewTimer(max(d, time.Nanosecond)) // the race detector of Go 1.26.8 crashes on a timer of 0 in a bubble
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
		return net.ErrClosed
	}
	if impatient {
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (c *fakeConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

func (c *fakeConn) SetDeadline(t time.Time) error      { return c.SetReadDeadline(t) }
func (c *fakeConn) SetWriteDeadline(_ time.Time) error { return nil } // there is room

func (c *fakeConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// pauses returns the times between instants.
func pauses(at []time.Duration) (between []time.Duration) {
	for i := 1; i < len(at); i++ {
		between = append(between, at[i]-at[i-1])
	}
	return between
}

// lapse is when a lease that is not renewed is given up: its length, less the
// drift, less the guard.
func lapse(lease time.Duration) time.Duration {
	return lease - (lease/100 + 2*time.Millisecond) - max(lease/10, 2*time.Millisecond)
}

func TestFakeTimeHeldContextEndsAtTheExactInstant(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*fakeRedis){
		"requests vanish": func(f *fakeRedis) { f.deafUp.Store(true) },
		"replies vanish":  func(f *fakeRedis) { f.deafDown.Store(true) },
		"errors":          func(f *fakeRedis) { f.SetError("LOADING Redis is loading the dataset in memory") },
		"replies late":    func(f *fakeRedis) { f.late.Store(int64(time.Hour)) },
	} {
		for _, lease := range []time.Duration{100 * time.Millisecond, 30 * time.Second, time.Hour} {
			t.Run(name+"/"+lease.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
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

func TestFakeTimeFixedLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a", rlock.WithLeaseTime(20*time.Second), rlock.WithoutRenewal())
		held, hold := lock(t, t.Context(), mu)
		<-held.Done()
		require.Equal(t, lapse(20*time.Second), f.now())
		require.Empty(t, f.scripts("renew"))
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
		require.False(t, f.Exists("a"), "the rest of the lease is given back")
	})
}

func TestFakeTimeAnHourOfRenewals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a")) // lease 30 s
		time.Sleep(time.Hour)
		synctest.Wait()
		require.NoError(t, held.Err())
		at := slices.Compact(f.scripts("renew")) // the first one is sent twice: the server has to learn the script
		require.GreaterOrEqual(t, at[0], 5*time.Second)
		require.LessOrEqual(t, at[0], 10*time.Second)
		for _, d := range pauses(at) {
			require.Equal(t, 10*time.Second, d)
		}
		require.InDelta(t, 360, len(at), 1)
		require.NoError(t, hold.Unlock(held))
	})
}

func TestFakeTimeRenewalIsRetriedWithinTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a"))
		f.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(lapse(30*time.Second) - time.Millisecond)
		f.heal()
		time.Sleep(time.Minute)
		require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost, "a millisecond is too late for the next attempt")
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)

		held, hold = lock(t, t.Context(), f.client(t, nil).NewLock("b"))
		f.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(20 * time.Second) // one attempt in at most 5 s, the bound of a single one
		f.heal()
		time.Sleep(time.Minute)
		require.NoError(t, held.Err())
		require.NoError(t, hold.Unlock(held))
	})
}

// longLease is a lease that no test sees the end of.
var longLease = rlock.WithLeaseTime(time.Hour)

// somebody is an owner of this library, in a client that is not there.
const somebody = "d2k7m3o6n88ekjf0v0vg:1"

// redisson is an owner of Redisson.
const redisson = "5f2b6f0e-90d1-4b0c-9d0f-6c43b6ac4d5f:1"

// holder makes somebody the holder, without a TTL if ttl is 0.
func (f *fakeRedis) holder(key string, ttl time.Duration) { f.heldBy(key, somebody, ttl) }

// foreign makes an owner of Redisson the holder of "a".
func (f *fakeRedis) foreign(ttl time.Duration) { f.heldBy("a", redisson, ttl) }

func (f *fakeRedis) heldBy(key, owner string, ttl time.Duration) {
	f.HSet(key, owner, "1")
	if ttl > 0 {
		f.SetTTL(key, ttl)
	}
}

// How often one waits to ask again if nothing is heard.
func TestFakeTimePauses(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	often := slices.Repeat([]time.Duration{100 * ms}, 20) // by the first in line
	for _, tt := range []struct {
		name   string
		holder string
		ttl    time.Duration // 0: none
		fault  func(*fakeRedis)
		want   []time.Duration // between the requests, but for a random part
	}{
		{"no TTL", somebody, 0, nil, append([]time.Duration{0}, slices.Repeat([]time.Duration{time.Second}, 10)...)},
		{"long", somebody, time.Hour, nil, append([]time.Duration{0}, slices.Repeat([]time.Duration{keepAlive}, 10)...)},
		{"long, foreign", redisson, time.Hour, nil, append([]time.Duration{0}, slices.Repeat([]time.Duration{keepAlive}, 10)...)},
		{"no answer to SUBSCRIBE", somebody, time.Hour, func(f *fakeRedis) { f.deafSubscribe.Store(true) }, append([]time.Duration{50 * ms, 100 * ms}, often...)},
		{"SUBSCRIBE refused", somebody, time.Hour, func(f *fakeRedis) { f.denySubscribe.Store(true) }, append([]time.Duration{0, 100 * ms}, often...)},
		{"SUBSCRIBE refused, foreign", redisson, time.Hour, func(f *fakeRedis) { f.denySubscribe.Store(true) }, append([]time.Duration{0, 100 * ms}, often...)},
		{"no TTL and no answer to SUBSCRIBE", somebody, 0, func(f *fakeRedis) { f.deafSubscribe.Store(true) }, append([]time.Duration{50 * ms, 100 * ms}, often...)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, nil).NewLock("a")
				f.heldBy("a", tt.holder, tt.ttl)
				f.teach(t)
				if tt.fault != nil {
					tt.fault(f)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go mu.Lock(ctx)
				for len(f.asked()) <= len(tt.want)+1 {
					time.Sleep(time.Second)
				}
				cancel()
				synctest.Wait()
				// Behind a foreign holder there are two channels to be confirmed.
				got := slices.CompactFunc(pauses(f.asked()), func(a, b time.Duration) bool { return a == 0 && b == 0 })
				require.GreaterOrEqual(t, len(got), len(tt.want))
				for i, want := range tt.want {
					require.GreaterOrEqual(t, got[i], want, "%v", got[:i+1])
					require.LessOrEqual(t, got[i], want+want/10+10*ms, "%v", got[:i+1])
				}
			})
		})
	}
}

func TestFakeTimeWaiterSleepsUntilTheTTLEnds(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, nil).NewLock("a")
			f.foreign(7 * time.Second)
			_, hold := lock(t, t.Context(), mu)
			require.GreaterOrEqual(t, f.now(), 7*time.Second)
			require.Less(t, f.now(), 7*time.Second+5*time.Millisecond)
			require.NoError(t, hold.Unlock(t.Context()))
		})
	}
}

func TestFakeTimeDeafWaiterHearsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a")
		f.foreign(time.Hour)
		f.denySubscribe.Store(true)
		go func() {
			held, hold, err := mu.Lock(t.Context())
			if assert.NoError(t, err) {
				assert.NoError(t, hold.Unlock(held))
			}
		}()
		time.Sleep(20 * time.Second)
		f.denySubscribe.Store(false) // an operator corrects the ACL
		time.Sleep(12 * time.Second) // a refused channel is asked for again after 30 s
		synctest.Wait()
		before := len(f.asked())
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.LessOrEqual(t, len(f.asked())-before, int(20*time.Second/keepAlive), "the subscription is confirmed: no more polling")
		f.Del("a")
		f.Publish("redisson_lock__channel:{a}", "0")
		synctest.Wait()
		require.Len(t, f.scripts("release"), 2, "EVALSHA and EVAL, at once")
	})
}

func TestFakeTimeQueueIsFIFO(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a")
		_, hold := lock(t, t.Context(), mu)
		var order []int
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				_ = mu.Do(t.Context(), func(context.Context) error {
					order = append(order, i)
					return nil
				})
			})
			synctest.Wait() // it is in the queue
		}
		require.NoError(t, hold.Unlock(t.Context()))
		all.Wait()
		require.True(t, slices.IsSorted(order), "%v", order)
		require.Len(t, order, 50)
	})
}

func TestFakeTimeUnavailable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		lease, want time.Duration
		fault       func(*fakeRedis)
	}{
		{"silent, short lease", time.Second, 5 * time.Second, func(f *fakeRedis) { f.deafUp.Store(true) }},
		{"silent, long lease", 30 * time.Second, 30 * time.Second, func(f *fakeRedis) { f.deafUp.Store(true) }},
		{"errors, short lease", time.Second, 5 * time.Second, func(f *fakeRedis) { f.SetError("LOADING …") }},
		{"errors, long lease", 30 * time.Second, 30 * time.Second, func(f *fakeRedis) { f.SetError("LOADING …") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, &rlock.Options{LeaseTime: tt.lease}).NewLock("a")
				tt.fault(f)
				_, _, err := mu.Lock(t.Context())
				require.ErrorIs(t, err, rlock.ErrUnavailable)
				require.NotErrorIs(t, err, rlock.ErrNotAcquired)
				require.Equal(t, tt.want, f.now())
			})
		})
	}
}

// Whoever queued from the start has waited as long as the head when Redis has
// not answered for all that time, and must not wait as long again behind it.
func TestFakeTimeQueueGivesUpWithItsHead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, &rlock.Options{LeaseTime: time.Second}).NewLock("a")
		f.deafUp.Store(true)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, _, err := mu.Lock(t.Context())
				assert.ErrorIs(t, err, rlock.ErrUnavailable)
			})
		}
		all.Wait()
		require.LessOrEqual(t, f.now(), 6*time.Second, "5 s, and a little for those behind")
	})
}

func TestFakeTimeTryLockIsBounded(t *testing.T) {
	t.Parallel()
	for lease, want := range map[time.Duration]time.Duration{
		300 * time.Millisecond: 100 * time.Millisecond,
		30 * time.Second:       2 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, &rlock.Options{LeaseTime: lease}).NewLock("a")
			f.deafUp.Store(true)
			_, _, err := mu.TryLock(t.Context())
			require.ErrorIs(t, err, rlock.ErrUnavailable)
			require.Equal(t, want, f.now())
		})
	}
}

func TestFakeTimeLateAnswerIsNoGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, &rlock.Options{LeaseTime: 6 * time.Second}).NewLock("a")
		f.late.Store(int64(2500 * time.Millisecond)) // an attempt may take 2 s
		held, hold, err := mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.Nil(t, hold)
		require.Equal(t, t.Context(), held)
		f.late.Store(0)
		time.Sleep(2600 * time.Millisecond) // a connection for the release may have been made slowly, too
		synctest.Wait()
		require.False(t, f.Exists("a"), "its owner is released")
		require.NotEmpty(t, f.scripts("release"))
		require.Empty(t, f.scripts("renew"))
	})
}

func TestFakeTimeUnlockTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, &rlock.Options{UnlockTimeout: 3 * time.Second}).NewLock("a")
		held, hold := lock(t, t.Context(), mu)
		f.deafUp.Store(true)
		err := hold.Unlock(held)
		require.Equal(t, 3*time.Second, f.now())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.True(t, f.Exists("a"))
		require.ErrorIs(t, context.Cause(held), rlock.ErrUnlocked)

		time.Sleep(4 * time.Second)
		f.deafUp.Store(false)
		time.Sleep(3 * time.Second) // the attempt under way, and a back-off
		synctest.Wait()
		require.False(t, f.Exists("a"), "released in the background")
		require.Empty(t, f.scripts("renew"))
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrNotHeld)
	})
}

// release ends the grant of an owner, as its client would.
func (f *fakeRedis) release(t *testing.T, owner string) {
	t.Helper()
	_, err := lua.Release(t.Context(), f.rdb, lua.Grant{Key: "a", Queue: lua.QueueOf("a"), Owner: owner}, lua.Ending{})
	require.NoError(t, err)
}

// grantTo returns a message that grants the lock to an owner, so long ago.
func (f *fakeRedis) grantTo(owner string, ago time.Duration, token int64) string {
	return fmt.Sprint(owner, " ", time.Now().Add(-ago).UnixMicro(), " ", longestClaim.Milliseconds(), " ", token, " 0")
}
