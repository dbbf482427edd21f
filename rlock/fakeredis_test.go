package rlock_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
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

// fakeRedis is a server on the bubble's clock, and the network before it.
//
// What is called TestFakeTime runs in a bubble, whose clock moves only when every
// goroutine sleeps: a request takes no time at all, and instants are exact.
type fakeRedis struct {
	*miniredis.Miniredis
	rdb   *redis.Client
	start time.Time

	deafUp, deafDown atomic.Bool  // swallows requests, or replies
	deafSubscribe    atomic.Bool  // swallows SUBSCRIBE, and what follows on that connection
	late             atomic.Int64 // replies take so long, as a time.Duration
	jitter           atomic.Int64 // requests and replies take up to so long, at random, as a time.Duration
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
func (f *fakeRedis) cut() { f.closeThose(func(c *fakeConn) bool { return c.listens.Load() }) }

// cutAll closes all connections.
func (f *fakeRedis) cutAll() { f.closeThose(func(*fakeConn) bool { return true }) }

func (f *fakeRedis) closeThose(match func(*fakeConn) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		if match(c) {
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
		// go-redis keeps the timers of those who wait for a connection, also for clients in
		// other bubbles: nobody waits for one.
		PoolSize: 10_000, PipelinePoolSize: 10_000,
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
	f.jitter.Store(0)
	f.SetError("")
	f.Server().SetPreHook(f.hook)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.gates {
		g.open()
	}
	f.gates = nil
}

// client returns a client whose Close must succeed at the end of the test. It keeps no
// record: these tests count requests and keys.
func (f *fakeRedis) client(t *testing.T, opts *rlock.Options) *rlock.Client {
	if opts == nil {
		opts = &rlock.Options{}
	}
	anonymous := *opts
	anonymous.Identity = rlock.Anonymous()
	return f.recordedClient(t, &anonymous)
}

// recordedClient is client with what the options say about its record.
func (f *fakeRedis) recordedClient(t *testing.T, opts *rlock.Options) *rlock.Client {
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
	fc := &fakeConn{Conn: c, f: f, sent: make(chan transit, 1<<10), came: make(chan transit, 1<<12), closed: make(chan struct{})}
	go fc.carry() // both end with Close
	go fc.collect()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, fc)
	return fc, nil
}

// pauses returns the times between instants.
func pauses(at []time.Duration) (between []time.Duration) {
	for i := 1; i < len(at); i++ {
		between = append(between, at[i]-at[i-1])
	}
	return between
}

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

// longLease is a lease that no test sees the end of.
var longLease = rlock.WithLeaseTime(time.Hour)

// somebody is an owner of this library, in a client that is not there.
const somebody = "d2k7m3o6n88ekjf0v0vg:1"

// redisson is an owner of Redisson.
const redisson = "5f2b6f0e-90d1-4b0c-9d0f-6c43b6ac4d5f:1"

// fakeConn has buffers in both directions, as a real connection has: the server reads no
// request while it writes a reply, and holds its mutex while it writes a message.
type fakeConn struct {
	net.Conn
	f       *fakeRedis
	deaf    atomic.Bool
	listens atomic.Bool // has subscribed
	used    atomic.Bool // go-redis has set it up: it holds a mutex meanwhile, which stops the bubble's clock
	gap     atomic.Bool // has lost something: nothing comes through any more
	sent    chan transit
	came    chan transit
	rest    []byte // of the newest arrival; of who reads
	closed  chan struct{}
	once    sync.Once

	mu       sync.Mutex // guards deadline
	deadline time.Time  // of reading
}

// carry brings to the server what was written.
func (c *fakeConn) carry() {
	for {
		select {
		case r := <-c.sent:
			time.Sleep(time.Until(r.due))
			if _, err := c.Conn.Write(r.b); err != nil {
				return
			}
		case <-c.closed:
			return
		}
	}
}

func (c *fakeConn) Write(b []byte) (int, error) {
	request := strings.ToLower(string(b))
	if !strings.Contains(request, "\r\nhello\r\n") && !strings.Contains(request, "\r\nclient\r\n") {
		c.used.Store(true)
	}
	if strings.Contains(request, "\r\nsubscribe\r\n") {
		c.listens.Store(true)
		c.deaf.Store(c.deaf.Load() || c.f.deafSubscribe.Load())
	}
	if c.f.deafUp.Load() || c.deaf.Load() {
		return len(b), nil
	}
	select {
	case c.sent <- transit{slices.Clone(b), nil, c.arrives()}:
		return len(b), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

// transit is what is on its way to the server or back, or why nothing more will come.
type transit struct {
	b   []byte
	err error
	due time.Time // when it arrives
}

// collect takes what the server writes. After the end of that each read fails, not only the first.
func (c *fakeConn) collect() {
	defer close(c.came)
	for {
		b := make([]byte, 4096)
		n, err := c.Conn.Read(b)
		select {
		case c.came <- transit{b[:n], err, c.arrives()}:
		case <-c.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

func (c *fakeConn) Read(b []byte) (int, error) {
	for {
		if len(c.rest) > 0 {
			n := copy(b, c.rest)
			c.rest = c.rest[n:]
			return n, nil
		}
		a := c.next()
		if a.err != nil {
			return 0, a.err
		}
		if d := max(time.Duration(c.f.late.Load()), time.Until(a.due)); d > 0 {
			if err := c.delay(d); err != nil {
				return 0, err
			}
		}
		if c.listens.Load() && c.f.deafListeners.Load() {
			c.gap.Store(true)
		}
		if !c.f.deafDown.Load() && !c.gap.Load() {
			c.rest = a.b
		}
	}
}

// next returns what has come, as long as the reader has patience.
func (c *fakeConn) next() transit {
	c.mu.Lock()
	deadline := c.deadline
	c.mu.Unlock()
	var end <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		end = timer.C
	}
	select {
	case a, open := <-c.came:
		if !open {
			return transit{err: io.EOF}
		}
		return a
	case <-end:
		return transit{err: os.ErrDeadlineExceeded}
	case <-c.closed:
		return transit{err: net.ErrClosed}
	}
}

// arrives returns when something arrives that is sent now.
func (c *fakeConn) arrives() time.Time {
	most := time.Duration(c.f.jitter.Load())
	if most == 0 || !c.used.Load() {
		return time.Now()
	}
	return time.Now().Add(rand.N(most))
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
	timer := time.NewTimer(d)
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
	return nil
}

func (c *fakeConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *fakeConn) SetWriteDeadline(_ time.Time) error { return nil } // there is room

func (c *fakeConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// finish has waiters take the lock and give it back, one after the other.
func finish(t *testing.T, waiters ...*waiting) {
	t.Helper()
	for _, w := range waiters {
		held, hold := w.acquired(t)
		require.NoError(t, hold.Unlock(held))
	}
}

// finishAll is finish in whatever order they have the lock.
func finishAll(t *testing.T, waiters ...*waiting) {
	t.Helper()
	var all sync.WaitGroup
	for _, w := range waiters {
		all.Go(func() {
			<-w.done
			if assert.NoError(t, w.err) {
				assert.NoError(t, w.hold.Unlock(w.held))
			}
		})
	}
	all.Wait()
}

// row has locks wait in this order.
func (f *fakeRedis) row(t *testing.T, locks ...*rlock.Lock) (all []*waiting) {
	for _, mu := range locks {
		all = append(all, begin(t.Context(), mu))
		synctest.Wait()
	}
	return all
}

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
