package verify

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
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

// learnt matches the calls of a script, also in company.
func learnt(w *world, script string) netfault.Match {
	hash, joint := lesson(w.T, w.row.lock)[script], lesson(w.T, plain)["joint"]
	require.NotEmpty(w, hash)
	return func(args []string) bool {
		if len(args) < 2 || !scripts(args) {
			return false
		}
		switch hashed(args[1]) {
		case hash:
			return true
		case joint:
			return partOf(args, script)
		}
		return false
	}
}

// partOf tells whether a joint script acquires, or releases, one of its locks: of
// the three arguments for each the last one is empty, or a channel.
func partOf(args []string, script string) bool {
	keys, err := strconv.Atoi(args[2])
	if err != nil {
		return false
	}
	for i := 3 + keys + 2; i < len(args); i += 3 {
		if script == "acquire" && args[i] == "" || script == "release" && args[i] != "" {
			return true
		}
	}
	return false
}

// hashed returns a hash that is one, and that of a source.
func hashed(script string) string {
	if len(script) == 2*sha1.Size {
		return script
	}
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

func learn(t *testing.T, v variety) map[string]string {
	spy := &spy{seen: make(map[string]bool)}
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
	if v == plain {
		hashes["joint"] = learnJoint(t, c, spy, hashes)
	}
	require.NoError(t, c.Close(context.Background()))
	for a, x := range hashes {
		for b, y := range hashes {
			require.False(t, a != b && x == y, "%s and %s look the same", a, b)
		}
	}
	return hashes
}

// learnJoint finds out how many requests at once are made.
func learnJoint(t *testing.T, c *rlock.Client, spy *spy, known map[string]string) string {
	for range 100 {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				assert.NoError(t, c.NewLock("learnt "+strconv.Itoa(i)).Do(context.Background(), func(context.Context) error { return nil }))
			})
		}
		wg.Wait()
		spy.mu.Lock()
		for hash := range spy.seen {
			if !slices.Contains(slices.Collect(maps.Values(known)), hash) {
				spy.mu.Unlock()
				return hash
			}
		}
		spy.mu.Unlock()
	}
	require.Fail(t, "requests at the same time do not become one script")
	return ""
}

// spy remembers the newest script called, and all of them, by hash.
type spy struct {
	mu   sync.Mutex // guards what follows
	hash string
	seen map[string]bool
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
		s.hash = hashed(args[1])
		s.seen[s.hash] = true
	}
	return false
}
