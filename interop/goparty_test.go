package interop

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// options are those of a client. In a cluster the default finds out that the
// server has sharded channels; cluster-off is without them, cluster-both uses
// them and others.
func options(topology string, lease time.Duration) *rlock.Options {
	o := &rlock.Options{LeaseTime: lease}
	switch topology {
	case "cluster-off":
		o.ShardedPubSub = rlock.ShardedOff
	case "cluster-both":
		o.ShardedPubSub = rlock.ShardedBoth
	}
	return o
}

// dial connects to a server the way its topology asks for.
func dial(topology, addr string) redis.UniversalClient {
	if strings.HasPrefix(topology, "cluster") {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
	}
	o := &redis.Options{Addr: addr}
	if topology == small {
		o.PoolSize, o.PipelinePoolSize = 2, 1
	}
	return redis.NewClient(o)
}

// goParty is a client of this library.
type goParty struct {
	client *rlock.Client
	rdb    redis.UniversalClient
}

func newGoParty(tb testing.TB, topology, addr string, lease time.Duration) *goParty {
	tb.Helper()
	rdb := dial(topology, addr)
	c, err := rlock.New(rdb, options(topology, lease))
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

func (p *goParty) look(kind, name string) (map[string]int64, time.Duration, error) {
	s, err := p.lock(kind, name).Inspect(context.Background())
	if len(s.Holds) == 0 {
		s.TTL = -1
	}
	return s.Holds, s.TTL, err
}

func (p *goParty) forceUnlock(kind, name string) (bool, error) {
	return p.lock(kind, name).ForceUnlock(context.Background())
}

func (p *goParty) lock(kind, name string, opts ...rlock.LockOption) *rlock.Lock {
	switch kind {
	case "fenced":
		return p.client.NewLock(name, append(opts, rlock.WithFencing())...)
	case "read":
		return p.client.NewRWLock(name, opts...).Reader()
	case "write":
		return p.client.NewRWLock(name, opts...).Writer()
	}
	return p.client.NewLock(name, opts...)
}

// goActor owns through the context of its innermost hold.
type goActor struct {
	party      *goParty
	kind, name string
	held       *[]heldLock // innermost last; of all kinds
}

type heldLock struct {
	kind string
	ctx  context.Context
	hold *rlock.Hold
}

func newGoActor(p *goParty, kind, name string) *goActor {
	return &goActor{p, kind, name, new([]heldLock)}
}

func (a *goActor) as(kind string) actor { return &goActor{a.party, kind, a.name, a.held} }

// ctx is the one that owns what the actor holds.
func (a *goActor) ctx() context.Context {
	if held := *a.held; len(held) > 0 {
		return held[len(held)-1].ctx
	}
	return context.Background()
}

func (a *goActor) mutex(lease time.Duration) *rlock.Lock {
	if lease > 0 {
		return a.party.lock(a.kind, a.name, rlock.WithLeaseTime(lease), rlock.WithoutRenewal())
	}
	return a.party.lock(a.kind, a.name)
}

func (a *goActor) keep(ctx context.Context, hold *rlock.Hold) {
	*a.held = append(*a.held, heldLock{a.kind, ctx, hold})
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
	for i, h := range slices.Backward(*a.held) {
		if h.kind == a.kind {
			*a.held = slices.Delete(*a.held, i, i+1)
			begun := time.Now()
			err := h.hold.Unlock(h.ctx)
			return span{begun, time.Now()}, err
		}
	}
	return span{}, rlock.ErrNotHeld
}

func (a *goActor) holdCount() (int, error) { return a.mutex(0).HoldCount(a.ctx()), nil }

func (a *goActor) work(most int, d time.Duration, checked bool) (shift, error) {
	return a.shift(most, d, func(held context.Context, s *shift) (int64, error) {
		if !checked {
			return 0, nil
		}
		return visit(held, a.party.rdb, a.name, a.kind == "read", &s.violations)
	})
}

// shift goes through critical sections in which inside is called: it returns the
// place of the section in the order.
func (a *goActor) shift(most int, d time.Duration, inside func(context.Context, *shift) (int64, error)) (s shift, err error) {
	ctx, mu := context.Background(), a.mutex(0)
	for end := time.Now().Add(d); len(s.sections) < most && time.Now().Before(end); {
		one := section{asked: time.Now()}
		held, hold, err := mu.Lock(ctx)
		if err != nil {
			return s, err
		}
		one.acquired, one.token = time.Now(), hold.Token()
		one.place, err = inside(held, &s)
		one.released = time.Now()
		if err := errors.Join(err, hold.Unlock(held)); err != nil {
			return s, err
		}
		one.done = time.Now()
		s.sections = append(s.sections, one)
	}
	return s, nil
}

// alone is what a writer counts for among those inside, and more than all readers.
const alone = 1000

// visit is what a checked section does. A reader reads the counter behind the
// lock; anybody else adds 1 to it, in a way that loses updates unless it is alone.
// It returns the counter.
func visit(ctx context.Context, rdb redis.UniversalClient, name string, shared bool, violations *int) (int64, error) {
	weight, bearable := int64(alone), int64(0)
	if shared {
		weight, bearable = 1, alone-1
	}
	inside, err := rdb.IncrBy(ctx, name+":inside", weight).Result()
	if err != nil {
		return 0, err
	}
	if inside-weight > bearable {
		*violations++
	}
	place, err := rdb.Get(ctx, name+":counter").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, err
	}
	if !shared {
		place++
		if err := rdb.Set(ctx, name+":counter", place, 0).Err(); err != nil {
			return 0, err
		}
	}
	inside, err = rdb.DecrBy(ctx, name+":inside", weight).Result()
	if inside > bearable {
		*violations++
	}
	return place, err
}
