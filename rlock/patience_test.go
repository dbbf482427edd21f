package rlock_test

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// denial is how a refusal begins and ends. reads: the server answers who only reads, as a polling call does
// while the lock is held.
type denial struct {
	begin, end [][]any
	reads      bool
}

// denials are refusals to serve a user "u" that an operator causes for a moment.
func denials() map[string]denial {
	full := []any{"acl", "setuser", "u", "on", ">secret", "~*", "&*", "+@all"}
	kick := []any{"client", "kill", "user", "u"}
	return map[string]denial{
		"user deleted, and made anew": {[][]any{{"acl", "deluser", "u"}}, [][]any{full}, false},
		"user reset":                  {[][]any{{"acl", "setuser", "u", "reset"}}, [][]any{full}, false},
		"user off and on":             {[][]any{{"acl", "setuser", "u", "off"}, kick}, [][]any{{"acl", "setuser", "u", "on"}}, false},
		"another password":            {[][]any{{"acl", "setuser", "u", "resetpass", ">new"}, kick}, [][]any{{"acl", "setuser", "u", "resetpass", ">secret"}}, false},
		"no right to a command":       {[][]any{{"acl", "setuser", "u", "-evalsha", "-eval"}}, [][]any{{"acl", "setuser", "u", "+@all"}}, false},
		"no right to the keys":        {[][]any{{"acl", "setuser", "u", "resetkeys"}}, [][]any{{"acl", "setuser", "u", "~*"}}, false},
		"a replica":                   {[][]any{{"replicaof", "127.0.0.1", "1"}}, [][]any{{"replicaof", "no", "one"}}, true},
		"too few replicas":            {[][]any{{"config", "set", "min-replicas-to-write", "1"}}, [][]any{{"config", "set", "min-replicas-to-write", "0"}}, true},
	}
}

// failures returns a function that says how many scripts about a key have failed.
func failures(rdb *redis.Client) func(key string) int {
	var mu sync.Mutex
	n := make(map[string]int)
	note := func(err error, cmds ...redis.Cmder) {
		mu.Lock()
		defer mu.Unlock()
		for _, cmd := range cmds {
			// Without a connection the commands have no errors yet.
			if err = cmp.Or(cmd.Err(), err); err == nil || redis.HasErrorPrefix(err, "NOSCRIPT") {
				continue
			}
			for _, arg := range cmd.Args() {
				if key, ok := arg.(string); ok {
					n[key]++
				}
			}
		}
	}
	rdb.AddHook(redistest.Hook{
		Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			note(err, cmd)
			return err
		},
		Pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			err := next(ctx, cmds)
			note(err, cmds...)
			return err
		},
	})
	return func(key string) int {
		mu.Lock()
		defer mu.Unlock()
		return n[key]
	}
}

// waitingCalls says how many calls of clients wait.
func waitingCalls(clients ...*rlock.Client) (n int64) {
	for _, c := range clients {
		for _, k := range c.Stats().Kinds {
			n += k.Waiting
		}
	}
	return n
}

// A server that refuses to serve the user for a moment costs no call that waits: neither its wait nor, as
// the calls of a client enter in their order, its place. A call that begins meanwhile fails.
func TestWaitingCallsOutliveAShortRefusal(t *testing.T) {
	for name, d := range denials() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			admin := srv.Client(t)
			do := func(commands [][]any) {
				for _, c := range commands {
					require.NoError(t, admin.Do(t.Context(), c...).Err())
				}
			}
			rdb := aclClient(t, srv, "~*", "&*", "+@all")
			failed := failures(rdb)
			c, other := clientOn(t, rdb, nil), newClient(t, srv, nil)
			for kind, lock := range map[string]func(c *rlock.Client) *rlock.Lock{
				"plain":   func(c *rlock.Client) *rlock.Lock { return c.NewLock("plain") },
				"fair":    func(c *rlock.Client) *rlock.Lock { return c.NewFairLock("fair") },
				"polling": func(c *rlock.Client) *rlock.Lock { return c.NewLock("polling", rlock.WithPolling(rlock.Polling{})) },
				"writer":  func(c *rlock.Client) *rlock.Lock { return c.NewRWLock("rw").Writer() },
				"reader":  func(c *rlock.Client) *rlock.Lock { return c.NewRWLock("rw").Reader() },
			} {
				if kind == "polling" && d.reads {
					continue
				}
				by := lock(other)
				if kind == "reader" {
					by = other.NewRWLock("rw").Writer()
				}
				held, hold, err := by.Lock(t.Context())
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						err := lock(c).Do(ctx, func(context.Context) error { return nil })
						assert.NoError(t, err, kind)
					})
				}
				redistest.Eventually(t, "all wait", func() bool { return waitingCalls(c) == 20 })
				time.Sleep(100 * time.Millisecond) // for the first answers
				before := failed(by.Name())
				do(d.begin)
				redistest.Eventually(t, "a waiter is refused", func() bool { return failed(by.Name()) > before })
				_, _, err = c.NewLock("free").TryLock(ctx)
				assert.ErrorIs(t, err, rlock.ErrUnavailable)
				time.Sleep(200 * time.Millisecond)
				do(d.end)
				assert.NoError(t, hold.Unlock(held))
				all.Wait()
				cancel()
			}
		})
	}
}

// A quorum lock as well, if a majority of its servers refuses.
func TestWaitingCallsOutliveAShortRefusalOfAMajority(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	var clients []*rlock.Client
	failed := make([]func(string) int, len(all))
	for i, srv := range all {
		rdb := aclClient(t, srv, "~*", "&*", "+@all")
		failed[i] = failures(rdb)
		clients = append(clients, clientOn(t, rdb, &rlock.Options{LeaseTime: quorumLease}))
	}
	held, hold := lock(t, t.Context(), all.lock(t))
	var waiters sync.WaitGroup
	for range 20 {
		waiters.Go(func() {
			assert.NoError(t, rlock.NewQuorumLock("a", clients).DoFor(t.Context(), 30*time.Second, func(context.Context) error { return nil }))
		})
	}
	redistest.Eventually(t, "all wait", func() bool { return waitingCalls(clients...) == 20 })
	time.Sleep(100 * time.Millisecond)
	for _, srv := range all[:2] {
		require.NoError(t, srv.Client(t).Do(t.Context(), "acl", "deluser", "u").Err())
	}
	redistest.Eventually(t, "a waiter is refused by both", func() bool { return failed[0]("a") > 0 && failed[1]("a") > 0 })
	time.Sleep(200 * time.Millisecond)
	for _, srv := range all[:2] {
		require.NoError(t, srv.Client(t).Do(t.Context(), "acl", "setuser", "u", "on", ">secret", "~*", "&*", "+@all").Err())
	}
	require.NoError(t, hold.Unlock(held))
	waiters.Wait()
}

// A multi lock that has one of its members goes on as well.
func TestMultiLockOutlivesAShortRefusal(t *testing.T) {
	t.Parallel()
	for name, rest := range map[string]func(c *rlock.Client) []*rlock.Lock{
		"one more":       func(c *rlock.Client) []*rlock.Lock { return []*rlock.Lock{c.NewLock("b")} },
		"several, alone": func(c *rlock.Client) []*rlock.Lock { return []*rlock.Lock{c.NewFairLock("b"), c.NewFairLock("c")} },
		"several, in one script": func(c *rlock.Client) []*rlock.Lock {
			return []*rlock.Lock{c.NewLock("b"), c.NewLock("c")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			rdb := aclClient(t, srv, "~*a*", "&*", "+@all") // ~*a* is the first member, with its queue and channels
			failed := failures(rdb)
			c := clientOn(t, rdb, nil)
			done := async(func() error {
				m := rlock.NewMultiLock(append(rest(c), c.NewFairLock("a"))...)
				return m.DoFor(t.Context(), 30*time.Second, func(context.Context) error { return nil })
			})
			redistest.Eventually(t, "refused", func() bool { return failed("b") > 1 })
			require.NoError(t, srv.Client(t).Do(t.Context(), "acl", "setuser", "u", "~*").Err())
			require.NoError(t, within(t, 20*time.Second, done))
		})
	}
}

// Where no repetition can help, Lock fails at once, and the error says what to do.
func TestHopelessServers(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	for name, tt := range map[string]struct{ addr, says string }{
		"no port":          {"localhost", "give host:port"},
		"an unknown port":  {"localhost:99999", "give host:port"},
		"a port by a name": {"localhost:redis-or-so", "give host:port"},
		"a URL":            {"redis://localhost:6379", "redis.ParseURL"},
		"a web server":     {web.Listener.Addr().String(), "not Redis"},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: tt.addr, DialerRetries: 1})
			defer func() { require.NoError(t, rdb.Close()) }()
			requireHopeless(t, rdb, tt.says)
		})
	}
	t.Run("a node of a cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t, 2, 0)
		requireHopeless(t, cluster.Another(cluster.Slot("a")).Client(t), "connect to the cluster")
	})
}

func requireHopeless(t *testing.T, rdb *redis.Client, says string) {
	t.Helper()
	count := countScripts(rdb)
	c := clientOn(t, rdb, nil)
	for method, call := range methods(c.NewLock("a")) {
		count.Store(0)
		err := call(t.Context())
		require.ErrorIs(t, err, rlock.ErrUnavailable, method)
		require.ErrorContains(t, err, says, method)
		require.LessOrEqual(t, count.Load(), int64(3), "%s: not repeated for the 30 s of a lease", method)
	}
}
