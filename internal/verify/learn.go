package verify

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
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
	hashes map[variety]map[string][]string
}

func lesson(t *testing.T, v variety) map[string][]string {
	if v == results {
		v = plain
	}
	lessons.mu.Lock()
	defer lessons.mu.Unlock()
	if lessons.hashes == nil {
		lessons.hashes = make(map[variety]map[string][]string)
	}
	if lessons.hashes[v] == nil {
		lessons.hashes[v] = learn(t, v)
	}
	return lessons.hashes[v]
}

// learnt matches the calls of the scripts that do something, also for several callers
// at once.
func learnt(w *world, what string) netfault.Match {
	hashes := lesson(w.T, w.row.lock)[what]
	require.NotEmpty(w, hashes)
	return func(args []string) bool {
		return len(args) > 1 && scripts(args) && slices.Contains(hashes, hashed(args[1]))
	}
}

// hashed returns a hash that is one, and that of a source.
func hashed(script string) string {
	if len(script) == 2*sha1.Size {
		return script
	}
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// learner watches what a lock sends in each of its situations.
type learner struct {
	t       *testing.T
	v       variety
	c       *rlock.Client
	other   *rlock.Client // is not watched
	spy     *spy
	renewed chan struct{}
	hashes  map[string][]string
}

// learn finds out: "acquire" is what is sent from the call of Lock to its return, be
// the lock free or not, of which "queue" is what only those send who have to wait;
// "count", "release" and "renew" are what they are called.
func learn(t *testing.T, v variety) map[string][]string {
	srv := redistest.Start(t)
	l := &learner{t: t, v: v, spy: &spy{}, renewed: make(chan struct{}, 100), hashes: make(map[string][]string)}
	proxy := netfault.New(t, srv.Addr())
	proxy.CutRandom(0, 0, l.spy.look)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	var err error
	l.c, err = rlock.New(rdb, &rlock.Options{Trace: rlock.Trace{Renewed: func(rlock.Renewal) { l.renewed <- struct{}{} }}})
	require.NoError(t, err)
	l.other, err = rlock.New(srv.Client(t), nil)
	require.NoError(t, err)

	for _, opts := range [][]rlock.LockOption{nil, {rlock.WithFencing()}} {
		l.uncontended(opts)
		l.contended(opts)
	}
	l.renewal()
	require.NoError(t, l.c.Close(context.Background()))
	require.NoError(t, l.other.Close(context.Background()))
	for a, x := range l.hashes {
		for b, y := range l.hashes {
			same := slices.ContainsFunc(x, func(hash string) bool { return slices.Contains(y, hash) })
			require.False(t, a != b && same && a != "queue" && b != "queue", "%s and %s look the same", a, b)
		}
	}
	return l.hashes
}

func (l *learner) lock(c *rlock.Client, opts ...rlock.LockOption) taker {
	switch l.v {
	case polling:
		return one(c.NewLock("learnt", append(opts, rlock.WithPolling(rlock.Polling{First: 5 * ms, Longest: 20 * ms}))...))
	case fair:
		return one(c.NewFairLock("learnt", opts...))
	case readWrite:
		return one(c.NewRWLock("learnt", opts...).Writer())
	case multi:
		return several(rlock.NewMultiLock(c.NewLock("learnt", opts...), c.NewLock("too", opts...)))
	}
	return one(c.NewLock("learnt", opts...))
}

// note files what was sent since the newest call. What is known to do something else
// may be sent at any time.
func (l *learner) note(what string) {
	for _, hash := range l.spy.sent() {
		if known := slices.Concat(slices.Collect(maps.Values(l.hashes))...); !slices.Contains(known, hash) {
			l.hashes[what] = append(l.hashes[what], hash)
		}
	}
}

func (l *learner) uncontended(opts []rlock.LockOption) {
	mu := l.lock(l.c, opts...)
	ctx, outer, err := mu.Lock(context.Background())
	require.NoError(l.t, err)
	l.note("acquire")
	ctx, inner, err := mu.Lock(ctx)
	require.NoError(l.t, err)
	l.note("count")
	require.NoError(l.t, inner.Unlock(ctx))
	l.note("count")
	require.NoError(l.t, outer.Unlock(ctx))
	l.note("release")
}

// contended waits for the lock, of which the other's release comes when it must have
// had its time to queue.
func (l *learner) contended(opts []rlock.LockOption) {
	held, hold, err := l.lock(l.other, opts...).Lock(context.Background())
	require.NoError(l.t, err)
	var done sync.WaitGroup
	done.Go(func() {
		time.Sleep(200 * ms)
		_ = hold.Unlock(held)
	})
	ctx, mine, err := l.lock(l.c, opts...).Lock(context.Background())
	require.NoError(l.t, err)
	before := slices.Clone(l.hashes["acquire"])
	l.note("acquire")
	for _, hash := range l.hashes["acquire"] {
		if !slices.Contains(before, hash) {
			l.hashes["queue"] = append(l.hashes["queue"], hash)
		}
	}
	done.Wait()
	require.NoError(l.t, mine.Unlock(ctx))
	l.note("release")
}

func (l *learner) renewal() {
	ctx, hold, err := l.lock(l.c, rlock.WithLeaseTime(4500*ms)).Lock(context.Background())
	require.NoError(l.t, err)
	l.note("acquire")
	select {
	case <-l.renewed:
	case <-ctx.Done():
		require.NoError(l.t, context.Cause(ctx), "before a renewal")
	}
	l.note("renew")
	require.NoError(l.t, hold.Unlock(ctx))
}

// spy remembers the scripts called, by hash.
type spy struct {
	mu     sync.Mutex // guards hashes
	hashes []string
}

// sent returns what was sent since the call before.
func (s *spy) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.hashes
	s.hashes = nil
	return sent
}

// look sees what passes a proxy.
func (s *spy) look(args []string) bool {
	if scripts(args) && len(args) > 1 && !strings.HasPrefix(args[1], "#!lua") { // a probe has that, and belongs to no call
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hashes = append(s.hashes, hashed(args[1]))
	}
	return false
}
