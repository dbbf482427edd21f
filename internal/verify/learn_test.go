package verify

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// lessons are the hashes of the scripts of each kind of lock by what they do, found
// out once by watching what a lock sends: the tests know the wire as little as a
// user does.
var lessons struct {
	mu     sync.Mutex // guards hashes
	hashes map[variety]map[string]string
}

func lesson(t *testing.T, v variety) map[string]string {
	if v == polling { // has the scripts of a plain lock
		v = plain
	}
	lessons.mu.Lock()
	defer lessons.mu.Unlock()
	if lessons.hashes == nil {
		lessons.hashes = make(map[variety]map[string]string)
	}
	if lessons.hashes[v] == nil {
		lessons.hashes[v] = learn(t, v)
	}
	return lessons.hashes[v]
}

// learnt matches the calls of a script.
func learnt(w *world, script string) netfault.Match {
	hash := lesson(w.T, w.row.lock)[script]
	require.NotEmpty(w, hash)
	return func(args []string) bool {
		if len(args) < 2 || !scripts(args) {
			return false
		}
		sum := sha1.Sum([]byte(args[1]))
		return args[1] == hash || hex.EncodeToString(sum[:]) == hash
	}
}

func learn(t *testing.T, v variety) map[string]string {
	spy := &spy{}
	proxy := netfault.New(t, redistest.Start(t).Addr())
	proxy.CutRandom(0, 0, spy.look)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	renewed := make(chan struct{}, 100)
	c, err := rlock.New(rdb, &rlock.Options{Trace: rlock.Trace{Renewed: func(string, time.Time) { renewed <- struct{}{} }}})
	require.NoError(t, err)
	hashes := make(map[string]string)

	newLock := func(opts ...rlock.LockOption) *rlock.Lock {
		switch v {
		case fair:
			return c.NewFairLock("learnt", opts...)
		case readWrite:
			return c.NewRWLock("learnt", opts...).Writer()
		case multi:
			return rlock.NewMultiLock(c.NewLock("learnt", opts...), c.NewLock("too", opts...))
		}
		return c.NewLock("learnt", opts...)
	}
	mu := newLock()
	ctx, outer, err := mu.Lock(context.Background())
	require.NoError(t, err)
	hashes["acquire"] = spy.newest()
	ctx, inner, err := mu.Lock(ctx)
	require.NoError(t, err)
	hashes["count"] = spy.newest()
	require.NoError(t, inner.Unlock(ctx))
	require.NoError(t, outer.Unlock(ctx))
	hashes["release"] = spy.newest()
	ctx, hold, err := newLock(rlock.WithLeaseTime(4500 * ms)).Lock(context.Background())
	require.NoError(t, err)
	select {
	case <-renewed:
	case <-ctx.Done():
		require.NoError(t, context.Cause(ctx), "before a renewal")
	}
	hashes["renew"] = spy.newest()
	require.NoError(t, hold.Unlock(ctx))
	require.NoError(t, c.Close(context.Background()))
	for a, x := range hashes {
		for b, y := range hashes {
			require.False(t, a != b && x == y, "%s and %s look the same", a, b)
		}
	}
	return hashes
}

// spy remembers the newest script called by its hash.
type spy struct {
	mu   sync.Mutex // guards hash
	hash string
}

func (s *spy) newest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hash
}

// look sees what passes a proxy.
func (s *spy) look(args []string) bool {
	if scripts(args) && len(args) > 1 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.hash = args[1]; len(s.hash) != 2*sha1.Size {
			sum := sha1.Sum([]byte(args[1]))
			s.hash = hex.EncodeToString(sum[:])
		}
	}
	return false
}
