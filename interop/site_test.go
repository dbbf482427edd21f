package interop

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// site is one version of Redisson beside one server.
type site struct {
	topology                 string
	goTopology, javaTopology string // the same, or with other settings
	column                   string
	srv                      *redistest.Server
	rdb                      redis.UniversalClient
	run                      func() *exec.Cmd // a JVM
	java                     *process
	report                   *report
}

func (s *site) goParty(t *testing.T, lease time.Duration) party {
	t.Helper()
	return newGoParty(t, s.goTopology, s.srv.Addr(), lease)
}

func (s *site) javaParty(t *testing.T, lease time.Duration) party {
	t.Helper()
	return newRemoteParty(t, "Java", s.java, s.javaTopology, s.srv.Addr(), lease)
}

// newServer runs a server: alone, or as a cluster of one node.
func newServer(tb testing.TB, topology string) *redistest.Server {
	tb.Helper()
	if topology == "standalone" {
		return redistest.Start(tb)
	}
	return redistest.StartCluster(tb, 1, 0).Nodes[0]
}

// owner returns the only owner of a lock, and its hold count; "" if it is free.
func (s *site) owner(t *testing.T, name string) (owner, count string) {
	t.Helper()
	fields, err := s.rdb.HGetAll(t.Context(), name).Result()
	require.NoError(t, err)
	delete(fields, "mode") // of a read/write lock
	require.LessOrEqual(t, len(fields), 1, "%v", fields)
	for owner, count = range fields {
	}
	return owner, count
}

// ttl returns what is left of the lease, 0 or less if the lock is free.
func (s *site) ttl(t *testing.T, name string) time.Duration {
	t.Helper()
	left, err := s.rdb.PTTL(t.Context(), name).Result()
	require.NoError(t, err)
	return left
}

// later runs f in the background.
func later[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

// wait starts a lock call and returns when its client listens for the release. A message
// wakes only those threads of Redisson that are asleep when it comes: one in Java is asleep
// by then.
func (s *site) wait(t *testing.T, a actor, name string) <-chan acquired {
	t.Helper()
	got := later(func() acquired { return a.lock(0) })
	redistest.Eventually(t, "somebody waits for "+name, func() bool { return s.listeners(t, name) > 0 })
	if r, ok := a.(*remoteActor); ok && r.party.side == "Java" {
		redistest.Eventually(t, "it is asleep", func() bool {
			asleep, err := r.asleep()
			require.NoError(t, err)
			return asleep
		})
	}
	// The listener tries once more, and a Go client listens on for a while after
	// its last wait: leave the attempt some time.
	time.Sleep(10 * time.Millisecond)
	return got
}

// listeners counts those at the channels of a lock: of both kinds and both families,
// and those of single clients.
func (s *site) listeners(t *testing.T, name string) (n int64) {
	t.Helper()
	for _, family := range []struct {
		channels func(context.Context, string) *redis.StringSliceCmd
		count    func(context.Context, ...string) *redis.MapStringIntCmd
	}{{s.rdb.PubSubChannels, s.rdb.PubSubNumSub}, {s.rdb.PubSubShardChannels, s.rdb.PubSubShardNumSub}} {
		channels, err := family.channels(t.Context(), "*{"+name+"}*").Result()
		require.NoError(t, err)
		found, err := family.count(t.Context(), channels...).Result()
		require.NoError(t, err)
		for _, c := range found {
			n += c
		}
	}
	return n
}

// await returns what a lock call in the background came to.
func await(t *testing.T, got <-chan acquired) acquired {
	t.Helper()
	select {
	case a := <-got:
		require.NoError(t, a.err)
		return a
	case <-time.After(callLimit):
		t.Fatal("a waiter never got the lock")
		return acquired{}
	}
}

// unlocked gives a hold back, which must succeed, and returns when the release began.
func unlocked(t *testing.T, a actor) time.Time {
	t.Helper()
	when, err := a.unlock()
	require.NoError(t, err)
	return when.begun
}

// stillOut requires a lock call in the background to be waiting.
func stillOut(t *testing.T, got <-chan acquired, why string) {
	t.Helper()
	select {
	case a := <-got:
		t.Fatalf("the waiter got the lock: %s; %v", why, a.err)
	default:
	}
}
