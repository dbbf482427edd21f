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
	"github.com/go-rlock/rlock/watchdog"
)

// slowRenewing is a server that answers each pipeline of renewals after a while, whatever
// its context says, and counts how many there are at a time.
type slowRenewing struct {
	renewing
	takes atomic.Int64 // a time.Duration

	mu        sync.Mutex
	now, most int
}

func newSlowRenewing(takes time.Duration) *slowRenewing {
	s := &slowRenewing{renewing: renewing{int64(1)}}
	s.takes.Store(int64(takes))
	return s
}

func (s *slowRenewing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	answer := s.renewing.ProcessPipelineHook(next)
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.add(1)
		defer s.add(-1)
		time.Sleep(time.Duration(s.takes.Load()))
		return answer(ctx, cmds)
	}
}

func (s *slowRenewing) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += n
	s.most = max(s.most, s.now)
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

// on returns a client of s.
func on(t *testing.T, s *slowRenewing) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	rdb.AddHook(s)
	return rdb
}

// crowd are holds of a client on one server, each of which is renewed by itself.
func crowd(t *testing.T, c *Client, f *fake, s *slowRenewing, name string, n int) (due []watchdog.Renewal[*grant]) {
	rdb := on(t, s)
	for i := range n {
		l := c.NewLock(name + strconv.Itoa(i))
		l.use(elsewhere{f, l.name, rdb})
		ctx, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = hold.Unlock(ctx) })
		due = append(due, watchdog.Renewal[*grant]{Key: hold.grant, Duration: l.lease})
	}
	return due
}

// However many batches are due, a server is sent few at a time, so that they need none of
// the connections that the application may have taken. All are answered.
func TestFakeTimeRenewalsThatCrowd(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		s := newSlowRenewing(10 * time.Millisecond)
		start := time.Now()
		var all sync.WaitGroup
		for _, d := range crowd(t, c, f, s, "crowd", 60) {
			all.Go(func() { assert.Equal(t, []error{nil}, c.renew(within(t, time.Second), []watchdog.Renewal[*grant]{d})) })
		}
		all.Wait()
		require.Equal(t, 4, s.most)
		require.Equal(t, 150*time.Millisecond, time.Since(start))
	})
}

// A server that hangs keeps its places until the contexts of its pipelines end, also if
// go-redis keeps the pipelines for longer. Another server has places of its own.
func TestFakeTimeRenewalsBesideACrowd(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		hangs := newSlowRenewing(time.Minute)
		crowded, other := crowd(t, c, f, hangs, "hangs", 20), crowd(t, c, f, newSlowRenewing(0), "well", 1)
		start := time.Now()
		var sent, waited sync.WaitGroup
		for _, d := range crowded[:4] {
			sent.Go(func() { c.renew(within(t, time.Second), []watchdog.Renewal[*grant]{d}) })
		}
		synctest.Wait()
		for _, d := range crowded[4:] {
			waited.Go(func() {
				assert.Equal(t, []error{request.ErrCrowded}, c.renew(within(t, time.Second/2), []watchdog.Renewal[*grant]{d}))
			})
		}
		synctest.Wait()
		require.Equal(t, 4, hangs.now)
		require.Equal(t, []error{nil}, c.renew(within(t, time.Second), other))
		require.Zero(t, time.Since(start))

		waited.Wait()
		require.Equal(t, time.Second/2, time.Since(start))
		hangs.takes.Store(0)
		require.Equal(t, []error{nil}, c.renew(within(t, time.Second), crowded[4:5]))
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
		servers := []*redis.Client{on(t, slow), on(t, newSlowRenewing(0)), on(t, newSlowRenewing(0))}
		for i := range 20 {
			l := c.NewLock("quorum" + strconv.Itoa(i))
			parts := spread{fake: f}
			for _, rdb := range servers {
				parts.parts = append(parts.parts, elsewhere{f, l.name, rdb})
			}
			l.use(parts)
			ctx, hold, err := l.Lock(t.Context())
			require.NoError(t, err)
			defer func() { _ = hold.Unlock(ctx) }()
			renewal := []watchdog.Renewal[*grant]{{Key: hold.grant, Duration: l.lease}}
			require.Equal(t, []error{nil}, c.renew(within(t, 5*time.Second), renewal))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 20, slow.most)
	})
}
