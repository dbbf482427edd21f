package rlock

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/lua"
)

// fake is a kind whose answers a test chooses, on the clock of a bubble. It
// grants, counts and releases at once, unless told otherwise.
type fake struct {
	client   *Client
	start    time.Time
	renewals *redis.Client     // that the server's answers to renewals come from: it renews all
	signal   kind.Subscription // what waiters hear by; nil: what never becomes live

	onAcquire func(ctx context.Context, n int) (lua.Reply, error) // n counts the calls from 1
	onCount   func(ctx context.Context, n int) error
	onRelease func(ctx context.Context, n int) (lua.Released, error)

	mu   sync.Mutex // guards what follows
	log  []noted
	ends []lua.Ending // of the releases
}

// noted is a recorded call.
type noted struct {
	at    time.Duration
	name  string
	owner string
	holds int
}

// newFake returns a client without a server, and a lock of that kind
// whose lease is 30 s.
func newFake(t *testing.T) (*Client, *Lock, *fake) {
	rdb := redis.NewClient(&redis.Options{
		Addr:     "127.0.0.1:1",
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network") },
		PoolSize: 10_000, PipelinePoolSize: 10_000, // nobody waits for a connection: see fakeredis_test.go
	})
	c, err := New(rdb, nil)
	require.NoError(t, err)
	f := &fake{client: c, start: time.Now(), renewals: hooked(t, renewing(int64(1)))}
	l := c.NewLock("a")
	l.use(f)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, c.Close(ctx))
		assert.NoError(t, rdb.Close())
	})
	return c, l, f
}

// note records a call and returns how many of its name there were.
func (f *fake) note(name, owner string, holds int) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, noted{time.Since(f.start), name, owner, holds})
	for _, c := range f.log {
		if c.name == name {
			n++
		}
	}
	return n
}

// calls returns the recorded calls of a name.
func (f *fake) calls(name string) (all []noted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.log {
		if c.name == name {
			all = append(all, c)
		}
	}
	return all
}

// times returns when the calls of a name were made.
func (f *fake) times(name string) (at []time.Duration) {
	for _, c := range f.calls(name) {
		at = append(at, c.at)
	}
	return at
}

func (f *fake) Key() string { return "a" }

func (f *fake) Gathers(bool) bool { return false } // it sends nothing

func (f *fake) Subscribe(e kind.Events) kind.Subscription {
	if f.signal != nil {
		return f.signal
	}
	return f.client.server.Hub.Subscribe("channel", func(string) { e.Released() }, e.Changed)
}

// live is a signal that would be heard.
type live struct{}

func (live) Live() bool { return true }
func (live) Close()     {}

// silentSignal is one by which nothing would be heard.
type silentSignal struct{}

func (silentSignal) Live() bool { return false }
func (silentSignal) Close()     {}

// newWaiter is a call that begins now.
func newWaiter(t *testing.T, l *Lock) *waiter {
	return &waiter{lock: l, ctx: t.Context(), since: time.Now()}
}

// enter has a call begin that asks by itself, and gives it that answer: a refusal, so it waits.
func (f *fake) enter(t *testing.T, l *Lock, answer lua.Reply) (a *asker, w *waiter) {
	t.Helper()
	f.onAcquire = func(context.Context, int) (lua.Reply, error) { return answer, nil }
	w = newWaiter(t, l)
	_, a, err := l.queues.enter(w)
	require.NoError(t, err)
	require.NotNil(t, a)
	g, err := a.askByCall(w)
	require.NoError(t, err)
	require.Nil(t, g)
	return a, w
}

func (f *fake) Acquire(ctx context.Context, _ lua.Runner, owner string, _ time.Duration, _ kind.Options) (lua.Reply, error) {
	n := f.note("acquire", owner, 1)
	if f.onAcquire != nil {
		r, err := f.onAcquire(ctx, n)
		r.Leftover = r.Place.Held()
		return r, err
	}
	return lua.Reply{Acquired: true}, nil
}

func (f *fake) SetCount(ctx context.Context, _ lua.Runner, owner string, _ time.Duration, holds kind.Count) (lua.Released, error) {
	n := f.note("count", owner, holds.Exclusive)
	if f.onCount != nil {
		return lua.Released{}, f.onCount(ctx, n)
	}
	return lua.Released{}, nil
}

func (f *fake) GrantChannel() string { return lua.GrantChannel(f.Key(), f.client.id) }

func (f *fake) UnlockChannel() string { return lua.UnlockChannel(f.Key()) }

func (f *fake) Release(ctx context.Context, _ lua.Runner, owner string, e lua.Ending) (lua.Released, error) {
	n := f.note("release", owner, 0)
	f.mu.Lock()
	f.ends = append(f.ends, e)
	f.mu.Unlock()
	if f.onRelease != nil {
		return f.onRelease(ctx, n)
	}
	return lua.Released{}, nil
}

func (f *fake) Renewals(owner string, lease time.Duration) []kind.Renewal {
	return []kind.Renewal{{RDB: f.renewals, Renewal: lua.Renewal{Grant: lua.Grant{Key: "a", Owner: owner}, Lease: lease}}}
}

func (f *fake) Force(context.Context) (bool, error) { return true, nil }

func (f *fake) Inspect(context.Context) (lua.State, error) { return lua.State{}, nil }

func hang(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func sleepLong(d time.Duration) { time.Sleep(d); synctest.Wait() }

func within(t *testing.T, d time.Duration) context.Context { return deadline(t, d, nil) }

func deadline(t *testing.T, d time.Duration, cause error) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), d, cause)
	t.Cleanup(cancel)
	return ctx
}
