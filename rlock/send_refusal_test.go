package rlock_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// countScripts counts the scripts that a client is given, also those in pipelines: on a machine
// that stands still a lone request gets no connection in time, and those after it go by
// pipelines. The server does not count what it refuses.
func countScripts(rdb *redis.Client) *atomic.Int64 {
	var n atomic.Int64
	rdb.AddHook(redistest.Sees(func(_ context.Context, cmd redis.Cmder) {
		if strings.HasPrefix(cmd.Name(), "eval") {
			n.Add(1)
		}
	}))
	return &n
}

// aclClient returns a client of srv as a user with these ACL rules.
func aclClient(t *testing.T, srv *redistest.Server, rules ...string) *redis.Client {
	t.Helper()
	args := []any{"acl", "setuser", "u", "reset", "on", ">secret"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	require.NoError(t, srv.Client(t).Do(t.Context(), args...).Err())
	return srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "u", "secret" })
}

// What will not change by waiting is returned at once, by every method, after
// as few commands as it takes to know.
func TestPermanentRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		client   func(t *testing.T) *redis.Client
		commands int64
		wants    []string
		reads    bool // Inspect works
	}{
		"no password": {
			client: func(t *testing.T) *redis.Client {
				return newServer(t, "--requirepass", "topsecret").Client(t)
			},
			commands: 1, wants: []string{"NOAUTH", "check user name and password"},
		},
		"wrong password": {
			client: func(t *testing.T) *redis.Client {
				return newServer(t, "--requirepass", "topsecret").Client(t, func(o *redis.Options) { o.Password = "wrongsecret" })
			},
			commands: 1, wants: []string{"WRONGPASS", "check user name and password"},
		},
		"no EVALSHA": {
			client: func(t *testing.T) *redis.Client {
				return aclClient(t, newServer(t), "+@all", "-evalsha", "-eval", "~*", "&*")
			},
			commands: 1, wants: []string{"NOPERM", "evalsha", "rlock doctor"},
		},
		"no EVAL": {
			client: func(t *testing.T) *redis.Client {
				return aclClient(t, newServer(t), "+@all", "-eval", "~*", "&*")
			},
			commands: 2, wants: []string{"NOPERM", "eval", "rlock doctor"},
		},
		"not these keys": {
			client: func(t *testing.T) *redis.Client {
				return aclClient(t, newServer(t), "+@all", "~other:*", "&*")
			},
			commands: 2, wants: []string{"NOPERM", "key"},
		},
		"keys for reading only": {
			client: func(t *testing.T) *redis.Client {
				return aclClient(t, newServer(t), "+@all", "%R~*", "&*")
			},
			commands: 2, wants: nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "keys for reading only" {
				redistest.Since7(t, "rights to read only")
			}
			rdb := tt.client(t)
			count := countScripts(rdb)
			for method := range methods(nil) {
				c := clientOn(t, rdb, nil)
				call := methods(c.NewLock("a"))[method]
				before := count.Load()
				start := time.Now()
				err := call(t.Context())
				require.ErrorIs(t, err, rlock.ErrUnavailable, method)
				require.NotErrorIs(t, err, rlock.ErrNotAcquired, "%s: busy and refused are not the same", method)
				require.ErrorContains(t, err, `"a"`, method)
				for _, want := range tt.wants {
					require.ErrorContains(t, err, want, method)
				}
				require.NotContains(t, err.Error(), "secret", method)
				require.Less(t, time.Since(start), 20*time.Second, "%s: not repeated for the 30 s of a lease", method)
				limit := tt.commands
				if strings.Contains(err.Error(), "NOPERM") {
					limit *= 2 // it may strike in the middle of a script: what that left is released
				}
				require.LessOrEqual(t, count.Load()-before, limit, method)
				require.NoError(t, closeSoon(c)) // nothing of it is counted from here on
			}
		})
	}
}

// A user who may do everything but one command of the acquire script. Whatever
// it did before is undone.
func TestScriptWithoutCommand(t *testing.T) {
	for _, command := range []string{"pttl", "hset", "pexpire", "hlen"} {
		t.Run(command, func(t *testing.T) {
			srv := newServer(t)
			rdb := srv.Client(t)
			if command == "hlen" { // needed to refuse
				_, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
				defer func() { require.NoError(t, hold.Unlock(t.Context())) }()
			}
			mu := clientOn(t, aclClient(t, srv, "+@all", "-"+command, "~*", "&*"), nil).NewLock("a")
			start := time.Now()
			_, _, err := mu.Lock(t.Context())
			require.ErrorIs(t, err, rlock.ErrUnavailable)
			require.Less(t, time.Since(start), 20*time.Second, "not repeated for the 30 s of a lease")
			if command != "hlen" {
				redistest.Eventually(t, "nothing is left", func() bool {
					return rdb.Exists(t.Context(), "a").Val() == 0
				})
			}
			require.ErrorContains(t, err, "ACL", "what to do about it")
		})
	}
}

// A user who may not call HDEL acquires and cannot release: that is a refusal
// of the server's, not a lock that somebody else has taken.
func TestReleaseWithoutCommand(t *testing.T) {
	srv := newServer(t)
	mu := clientOn(t, aclClient(t, srv, "+@all", "-hdel", "~*", "&*"), &rlock.Options{LeaseTime: 3 * time.Second}).NewLock("a")
	held, hold, err := mu.Lock(t.Context())
	if err != nil {
		return // better still
	}
	err = hold.Unlock(held)
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.NotErrorIs(t, err, rlock.ErrLeaseLost)
}

// A server out of memory grants nothing, but what is held can be renewed, nested
// and unlocked.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	srv := newServer(t, "--maxmemory-policy", "noeviction")
	rdb := srv.Client(t)
	counted := srv.Client(t)
	count := countScripts(counted)
	mu := newClient(t, srv, &rlock.Options{LeaseTime: 10 * time.Second}).NewLock("a")
	held, hold := lock(t, t.Context(), mu)
	c := clientOn(t, counted, nil)
	require.NoError(t, c.NewLock("b").Do(t.Context(), func(context.Context) error { return nil }))
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())

	for name, fencing := range map[string][]rlock.LockOption{"plain": nil, "fenced": {rlock.WithFencing()}} {
		t.Run(name, func(t *testing.T) {
			before := count.Load()
			_, _, err := c.NewLock("b", fencing...).Lock(t.Context())
			require.ErrorIs(t, err, rlock.ErrUnavailable)
			require.ErrorContains(t, err, "OOM")
			require.ErrorContains(t, err, "maxmemory")
			require.LessOrEqual(t, count.Load()-before, int64(2))
			require.Zero(t, rdb.Exists(t.Context(), "b").Val())
		})
	}

	awaitUntil(t, srv, "a", hold, 11*time.Second)
	_, nested := lock(t, held, mu)
	require.Equal(t, 2, holds(t, rdb, "a"))
	require.NoError(t, nested.Unlock(held))
	require.NoError(t, held.Err())
	require.NoError(t, hold.Unlock(held))
	require.Zero(t, holds(t, rdb, "a"))
}

// A replica may become the master: Lock waits for that, without haste.
func TestReadOnlyReplica(t *testing.T) {
	t.Parallel()
	master, replica := newServer(t, "--repl-diskless-sync-delay", "0"), newServer(t)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	rdb := replica.Client(t)
	require.NoError(t, rdb.ReplicaOf(t.Context(), host, port).Err())
	redistest.Eventually(t, "the replica is in step", func() bool {
		return strings.Contains(rdb.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	counted := replica.Client(t)
	count := countScripts(counted)
	mu := clientOn(t, counted, nil).NewLock("a")

	_, _, err = mu.TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.NotErrorIs(t, err, rlock.ErrNotAcquired)
	require.ErrorContains(t, err, "READONLY")
	require.ErrorContains(t, err, "connect to the master")
	require.LessOrEqual(t, count.Load(), int64(4), "one attempt on each idle connection, and one on a new one: EVALSHA, and EVAL for an unknown script")

	redistest.Eventually(t, "it is told why", func() bool { // a machine that stands still for a second has no answer at all
		count.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		deadline, _ := ctx.Deadline()
		start := time.Now()
		_, _, err = mu.Lock(ctx)
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, time.Now().Before(deadline))
		require.Less(t, time.Since(start), time.Second+slack)
		require.LessOrEqual(t, count.Load(), int64(40), "a busy loop")
		return strings.Contains(err.Error(), "READONLY")
	})

	done := async(func() error { return mu.Do(t.Context(), func(context.Context) error { return nil }) })
	seen := count.Load()
	redistest.Eventually(t, "another attempt", func() bool { return count.Load() > seen+2 })
	require.NoError(t, rdb.ReplicaOf(t.Context(), "NO", "ONE").Err())
	require.NoError(t, within(t, 10*time.Second, done), "promoted")
}

// The announcement of a release is refused: the lock is free all the same, and
// the operator hears of it once.
func TestPublishRefused(t *testing.T) {
	srv := newServer(t)
	log := &logBuffer{}
	c := clientOn(t, aclClient(t, srv, "+@all", "~*", "resetchannels"), &rlock.Options{Logger: log.logger()})
	for range 3 {
		held, hold := lock(t, t.Context(), c.NewLock("a"))
		require.NoError(t, hold.Unlock(held))
		require.Zero(t, holds(t, srv.Client(t), "a"))
	}
	require.NoError(t, c.Close(t.Context())) // which waits for the log
	require.Equal(t, 1, strings.Count(log.String(), "refuses to announce releases"), log.String())
	require.Contains(t, log.String(), "redisson_lock__channel:{a}")
	require.Contains(t, log.String(), "level=WARN")
}

// ForceUnlock frees the lock too when it may not tell anybody.
func TestForceUnlockPublishRefused(t *testing.T) {
	srv := newServer(t)
	mu := clientOn(t, aclClient(t, srv, "+@all", "~*", "resetchannels"), nil).NewLock("a")
	_, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
	removed, err := mu.ForceUnlock(t.Context())
	require.NoError(t, err)
	require.True(t, removed)
	requireUnlockedTooLate(t, hold.Unlock(t.Context()))
}

// A connection that cannot be set up carries nothing: the error is told at once, and nothing may be
// left that Close would have to wait for.
func TestConnectionThatIsNotSetUp(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	down := errors.New("vault down")
	rdb := srv.Client(t, func(o *redis.Options) {
		o.CredentialsProviderContext = func(context.Context) (string, string, error) { return "", "", down }
	})
	c, err := rlock.New(rdb, nil)
	require.NoError(t, err)
	_, _, err = c.NewLock("a").TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.ErrorIs(t, err, down)
	var all sync.WaitGroup
	for range 300 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, _, err := c.NewLock("a").TryLock(ctx)
			assert.ErrorIs(t, err, rlock.ErrUnavailable)
		})
	}
	all.Wait()
	_, _, err = c.NewLock("a").TryLock(t.Context())
	require.ErrorIs(t, err, down)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, c.Close(ended), "nothing is left")
}
