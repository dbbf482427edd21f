package interop

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// party is one side of a case: a client with connections of its own.
type party interface {
	String() string // "Go" or "Java"
	actor(kind, name string) actor
	// look reads the lock as this side sees it: hold counts by owner, and what is
	// left of the lease, negative if the lock is free.
	look(name string) (holds map[string]int64, ttl time.Duration, err error)
	forceUnlock(name string) (bool, error)
}

// actor is what owns a lock: a thread in Java, a chain of contexts in Go. Its
// methods are called by one goroutine at a time.
type actor interface {
	// lock waits for the lock, or nests. The lease is renewed if it is 0 and
	// fixed otherwise.
	lock(lease time.Duration) acquired
	tryLock() (bool, error)
	unlock() (span, error)
	// holdCount is how often this actor holds the lock, by its own account.
	holdCount() (int, error)
	// work goes through critical sections: so many, or as many as fit in d.
	work(most int, d time.Duration, checked bool) (shift, error)
}

type acquired struct {
	span
	token int64 // 0 for a kind without
	err   error
}

// section is one critical section of a shift.
type section struct {
	asked, acquired, released, done time.Time
	place, token                    int64
	side                            string // filled in by who mixes shifts
}

type shift struct {
	violations int // others seen inside
	sections   []section
}

// lostBy tells that err says, in its side's way, that the actor does not hold
// the lock it gives back.
func lostBy(err error) bool {
	var remote *remoteError
	return errors.Is(err, rlock.ErrLeaseLost) ||
		errors.As(err, &remote) && remote.class == "IllegalMonitorStateException"
}

// dial connects to a server the way its topology asks for.
func dial(topology, addr string) redis.UniversalClient {
	if topology == "cluster" {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
	}
	return redis.NewClient(&redis.Options{Addr: addr})
}

// goParty is a client of this library.
type goParty struct {
	client *rlock.Client
	rdb    redis.UniversalClient
}

func newGoParty(tb testing.TB, topology, addr string, lease time.Duration) *goParty {
	tb.Helper()
	rdb := dial(topology, addr)
	c, err := rlock.New(rdb, &rlock.Options{LeaseTime: lease})
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(tb, c.Close(ctx), "everything must be unlocked by now")
		require.NoError(tb, rdb.Close())
	})
	return &goParty{c, rdb}
}

func (p *goParty) String() string { return "Go" }

func (p *goParty) actor(kind, name string) actor { return newGoActor(p, kind, name) }

func (p *goParty) look(name string) (map[string]int64, time.Duration, error) {
	s, err := p.client.NewLock(name).Inspect(context.Background())
	if len(s.Holds) == 0 {
		s.TTL = -1
	}
	return s.Holds, s.TTL, err
}

func (p *goParty) forceUnlock(name string) (bool, error) {
	return p.client.NewLock(name).ForceUnlock(context.Background())
}

// goActor owns through the context of its innermost hold.
type goActor struct {
	party *goParty
	name  string
	opts  []rlock.LockOption
	held  []heldLock // innermost last
}

type heldLock struct {
	ctx  context.Context
	hold *rlock.Hold
}

func newGoActor(p *goParty, kind, name string) *goActor {
	a := &goActor{party: p, name: name}
	if kind == "fenced" {
		a.opts = append(a.opts, rlock.WithFencing())
	}
	return a
}

// ctx is the one that owns what the actor holds.
func (a *goActor) ctx() context.Context {
	if n := len(a.held); n > 0 {
		return a.held[n-1].ctx
	}
	return context.Background()
}

func (a *goActor) mutex(lease time.Duration) *rlock.Lock {
	opts := a.opts
	if lease > 0 {
		opts = append(opts[:len(opts):len(opts)], rlock.WithLeaseTime(lease), rlock.WithoutRenewal())
	}
	return a.party.client.NewLock(a.name, opts...)
}

func (a *goActor) keep(ctx context.Context, hold *rlock.Hold) {
	a.held = append(a.held, heldLock{ctx, hold})
}

func (a *goActor) lock(lease time.Duration) acquired {
	begun := time.Now()
	ctx, hold, err := a.mutex(lease).TryLockFor(a.ctx(), callLimit)
	got := acquired{span: span{begun, time.Now()}, err: err}
	if err == nil {
		a.keep(ctx, hold)
		got.token = hold.Token()
	}
	return got
}

func (a *goActor) tryLock() (bool, error) {
	ctx, hold, err := a.mutex(0).TryLock(a.ctx())
	if errors.Is(err, rlock.ErrNotAcquired) {
		return false, nil
	}
	if err == nil {
		a.keep(ctx, hold)
	}
	return err == nil, err
}

func (a *goActor) unlock() (span, error) {
	n := len(a.held) - 1
	if n < 0 {
		return span{}, rlock.ErrNotHeld
	}
	h := a.held[n]
	a.held = a.held[:n]
	begun := time.Now()
	err := h.hold.Unlock(h.ctx)
	return span{begun, time.Now()}, err
}

func (a *goActor) holdCount() (int, error) { return a.mutex(0).HoldCount(a.ctx()), nil }

func (a *goActor) work(most int, d time.Duration, checked bool) (s shift, err error) {
	ctx, rdb := context.Background(), a.party.rdb
	mu := a.mutex(0)
	for end := time.Now().Add(d); len(s.sections) < most && time.Now().Before(end); {
		one := section{asked: time.Now()}
		held, hold, err := mu.Lock(ctx)
		if err != nil {
			return s, err
		}
		one.acquired, one.token = time.Now(), hold.Token()
		if checked {
			one.place, err = raise(held, rdb, a.name, &s.violations)
		}
		one.released = time.Now()
		if err := errors.Join(err, hold.Unlock(held)); err != nil {
			return s, err
		}
		one.done = time.Now()
		s.sections = append(s.sections, one)
	}
	return s, nil
}

// raise adds 1 to the counter behind a lock, in a way that loses updates unless
// it is alone, and returns the result.
func raise(ctx context.Context, rdb redis.UniversalClient, name string, violations *int) (int64, error) {
	inside, err := rdb.Incr(ctx, name+":inside").Result()
	if err != nil {
		return 0, err
	}
	if inside != 1 {
		*violations++
	}
	place, err := rdb.Get(ctx, name+":counter").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, err
	}
	place++
	if err := rdb.Set(ctx, name+":counter", place, 0).Err(); err != nil {
		return 0, err
	}
	inside, err = rdb.Decr(ctx, name+":inside").Result()
	if inside != 0 {
		*violations++
	}
	return place, err
}

// remoteParty is a client in a peer: Redisson, or this library in another process.
type remoteParty struct {
	side, client string
	process      *process
}

func newRemoteParty(tb testing.TB, side string, p *process, topology, addr string, lease time.Duration) *remoteParty {
	tb.Helper()
	r := &remoteParty{side, p.newActor(), p}
	require.NoError(tb, p.call(r.client, "open", r.client, topology, addr, lease.Milliseconds()).err)
	tb.Cleanup(func() {
		if err := p.call(r.client, "close", r.client).err; err != errGone {
			require.NoError(tb, err)
		}
	})
	return r
}

func (p *remoteParty) String() string { return p.side }

func (p *remoteParty) actor(kind, name string) actor {
	return &remoteActor{p, p.process.newActor(), kind, name}
}

func (p *remoteParty) ask(command, name string) answer {
	return p.process.call(p.client, command, p.client, "plain", name)
}

func (p *remoteParty) look(name string) (map[string]int64, time.Duration, error) {
	fields, left := p.ask("holds", name), p.ask("ttl", name)
	holds := make(map[string]int64)
	var errs []error
	for field := range strings.FieldsSeq(fields.value) {
		owner, count, _ := strings.Cut(field, "=")
		n, err := strconv.ParseInt(count, 10, 64)
		holds[owner], errs = n, append(errs, err)
	}
	ms, err := strconv.ParseInt(left.value, 10, 64)
	return holds, time.Duration(ms) * time.Millisecond, errors.Join(append(errs, err, fields.err, left.err)...)
}

func (p *remoteParty) forceUnlock(name string) (bool, error) {
	a := p.ask("forceUnlock", name)
	return a.value == "true", a.err
}

type remoteActor struct {
	party          *remoteParty
	id, kind, name string
}

func (a *remoteActor) call(command string, args ...any) answer {
	return a.party.process.call(a.id, command, append([]any{a.party.client, a.kind, a.name}, args...)...)
}

func (a *remoteActor) lock(lease time.Duration) acquired {
	got := a.call("lock", lease.Milliseconds())
	token, err := strconv.ParseInt(got.value, 10, 64)
	if got.err != nil {
		err = got.err
	}
	return acquired{got.span, token, err}
}

func (a *remoteActor) tryLock() (bool, error) {
	got := a.call("tryLock", 0)
	return got.value == "true", got.err
}

func (a *remoteActor) unlock() (span, error) {
	got := a.call("unlock")
	return got.span, got.err
}

func (a *remoteActor) holdCount() (int, error) {
	got := a.call("holdCount")
	n, err := strconv.Atoi(got.value)
	return n, errors.Join(err, got.err)
}

func (a *remoteActor) work(most int, d time.Duration, checked bool) (shift, error) {
	mode := "empty"
	if checked {
		mode = "checked"
	}
	got := a.call("work", most, d.Milliseconds(), mode)
	if got.err != nil {
		return shift{}, got.err
	}
	return parseShift(got.value)
}

func (s shift) String() string {
	var b strings.Builder
	fmt.Fprint(&b, s.violations)
	for _, o := range s.sections {
		fmt.Fprintf(&b, " %d:%d:%d:%d:%d:%d", o.asked.UnixMicro(), o.acquired.UnixMicro(),
			o.released.UnixMicro(), o.done.UnixMicro(), o.place, o.token)
	}
	return b.String()
}

func parseShift(text string) (s shift, err error) {
	first, rest, _ := strings.Cut(text, " ")
	if s.violations, err = strconv.Atoi(first); err != nil {
		return s, err
	}
	for field := range strings.FieldsSeq(rest) {
		var n [6]int64
		parts := strings.Split(field, ":")
		if len(parts) != len(n) {
			return s, fmt.Errorf("a section with %d parts: %s", len(parts), field)
		}
		for i, part := range parts {
			if n[i], err = strconv.ParseInt(part, 10, 64); err != nil {
				return s, err
			}
		}
		s.sections = append(s.sections, section{
			asked: time.UnixMicro(n[0]), acquired: time.UnixMicro(n[1]),
			released: time.UnixMicro(n[2]), done: time.UnixMicro(n[3]), place: n[4], token: n[5],
		})
	}
	return s, nil
}

// lockName returns a name that no other case uses, and no word of the protocol.
var lockNames atomic.Int64

func lockName() string { return "interop-" + strconv.FormatInt(lockNames.Add(1), 10) }
