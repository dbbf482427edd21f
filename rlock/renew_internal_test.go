package rlock

import (
	"context"
	"strconv"
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
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/watchdog"
)

// elsewhere is a fake whose renewals go to a server of its own.
type elsewhere struct {
	*fake
	key string
	rdb *redis.Client
}

func (e elsewhere) Key() string { return e.key }

func (e elsewhere) Renewals(owner string, lease time.Duration) []kind.Renewal {
	return []kind.Renewal{{RDB: e.rdb, Renewal: lua.Renewal{Grant: lua.Grant{Key: e.key, Owner: owner}, Lease: lease}}}
}

// renewing is a server that answers renewals with 1 or 0, or not at all if answer is nil.
func renewing(answer any) redis.Hook {
	return redistest.Answers(func(ctx context.Context, cmds ...redis.Cmder) error {
		if answer == nil {
			return hang(ctx)
		}
		for _, cmd := range cmds {
			cmd.(interface{ SetVal(any) }).SetVal(answer)
		}
		return nil
	})
}

// hooked returns a client whose answers come from a hook.
func hooked(t *testing.T, h redis.Hook) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	rdb.AddHook(h)
	return rdb
}

// A lock that was removed on one node is lost as soon as that has said so, also while
// another hangs that is asked in the same batch.
func TestFakeTimeLossBesideANodeThatHangs(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		var held []context.Context
		var due []watchdog.Renewal[*grant]
		for key, answer := range map[string]any{"gone": int64(0), "there": int64(1), "hangs": nil} {
			l := c.NewLock(key)
			l.use(elsewhere{f, key, hooked(t, renewing(answer))})
			ctx, hold, err := l.Lock(t.Context())
			require.NoError(t, err)
			defer func() { _ = hold.Unlock(ctx) }()
			held = append(held, ctx)
			due = append(due, watchdog.Renewal[*grant]{Key: hold.grant, Duration: l.terms.lease})
		}
		start, done := time.Now(), make(chan []error, 1)
		go func() { done <- c.renew(within(t, 5*time.Second), due) }()
		synctest.Wait()
		for i, d := range due {
			require.Equal(t, d.Key.lock.key == "gone", held[i].Err() != nil, d.Key.lock.key)
		}
		errs := <-done
		require.Equal(t, 5*time.Second, time.Since(start))
		for i, d := range due {
			require.Equal(t, d.Key.lock.key != "there", errs[i] != nil)
			require.Equal(t, d.Key.lock.key == "gone", errs[i] == watchdog.ErrRefused)
		}
	})
}

// slowRenewing is a server that answers each pipeline of renewals after a while, whatever
// its context says, and counts how many there are at a time.
type slowRenewing struct {
	takes atomic.Int64 // a time.Duration

	mu        sync.Mutex
	now, most int
}

func newSlowRenewing(takes time.Duration) *slowRenewing {
	s := new(slowRenewing)
	s.takes.Store(int64(takes))
	return s
}

func (s *slowRenewing) hook() redis.Hook {
	return redistest.Answers(func(_ context.Context, cmds ...redis.Cmder) error {
		s.add(1)
		defer s.add(-1)
		time.Sleep(time.Duration(s.takes.Load()))
		for _, cmd := range cmds {
			cmd.(interface{ SetVal(any) }).SetVal(int64(1))
		}
		return nil
	})
}

func (s *slowRenewing) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += n
	s.most = max(s.most, s.now)
}

func (s *slowRenewing) seen() (now, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.most
}

// spread is a fake whose renewals go to several servers.
type spread struct {
	*fake
	parts []elsewhere
}

func (s spread) Key() string { return s.parts[0].key }

func (s spread) Renewals(owner string, lease time.Duration) (all []kind.Renewal) {
	for _, p := range s.parts {
		all = append(all, p.Renewals(owner, lease)...)
	}
	return all
}

// crowd are holds of a client, each with a part of its lease on each of the servers.
func crowd(t *testing.T, c *Client, f *fake, name string, n int, servers ...*slowRenewing) (due []watchdog.Renewal[*grant]) {
	var clients []*redis.Client
	for _, s := range servers {
		clients = append(clients, hooked(t, s.hook()))
	}
	for i := range n {
		l := c.NewLock(name + strconv.Itoa(i))
		s := spread{fake: f}
		for _, rdb := range clients {
			s.parts = append(s.parts, elsewhere{f, l.name, rdb})
		}
		l.use(s)
		ctx, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = hold.Unlock(ctx) })
		due = append(due, watchdog.Renewal[*grant]{Key: hold.grant, Duration: l.terms.lease})
	}
	return due
}

// alone renews one hold by a batch of its own.
func alone(t *testing.T, c *Client, d watchdog.Renewal[*grant], patience time.Duration) error {
	return c.renew(within(t, patience), []watchdog.Renewal[*grant]{d})[0]
}

// However many batches are due, a server is sent few at a time, so that they need none of
// the connections that the application may have taken. All are answered.
func TestFakeTimeRenewalsThatCrowd(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		s := newSlowRenewing(10 * time.Millisecond)
		start := time.Now()
		var all sync.WaitGroup
		for _, d := range crowd(t, c, f, "crowd", 60, s) {
			all.Go(func() { assert.NoError(t, alone(t, c, d, time.Second)) })
		}
		all.Wait()
		_, most := s.seen()
		require.Equal(t, 4, most)
		require.Equal(t, 150*time.Millisecond, time.Since(start))
	})
}

// A server that hangs keeps its places until the contexts of its pipelines end, also if
// go-redis keeps the pipelines for longer. Another server has places of its own.
func TestFakeTimeRenewalsBesideACrowd(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		hangs := newSlowRenewing(time.Minute)
		crowded, other := crowd(t, c, f, "hangs", 20, hangs), crowd(t, c, f, "well", 1, newSlowRenewing(0))
		start := time.Now()
		var sent, waited sync.WaitGroup
		for _, d := range crowded[:4] {
			sent.Go(func() { _ = alone(t, c, d, time.Second) })
		}
		synctest.Wait()
		for _, d := range crowded[4:] {
			waited.Go(func() { assert.Equal(t, request.ErrCrowded, alone(t, c, d, time.Second/2)) })
		}
		synctest.Wait()
		now, _ := hangs.seen()
		require.Equal(t, 4, now)
		require.NoError(t, alone(t, c, other[0], time.Second))
		require.Zero(t, time.Since(start))

		waited.Wait()
		require.Equal(t, time.Second/2, time.Since(start))
		hangs.takes.Store(0)
		require.NoError(t, alone(t, c, crowded[4], time.Second))
		require.Equal(t, time.Second, time.Since(start))
		sent.Wait()
		require.Equal(t, time.Minute, time.Since(start))
	})
}

// A slow server of a quorum is sent all renewals, though the others' answers are enough.
func TestFakeTimeRenewalsOfAQuorumThatCrowd(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		slow := newSlowRenewing(time.Second)
		for _, d := range crowd(t, c, f, "quorum", 20, slow, newSlowRenewing(0), newSlowRenewing(0)) {
			require.NoError(t, alone(t, c, d, 5*time.Second))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		_, most := slow.seen()
		require.GreaterOrEqual(t, most, 20, "and copies of some")
	})
}
