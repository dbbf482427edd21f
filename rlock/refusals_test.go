package rlock_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
				require.ErrorIs(t, err, rlock.ErrRefused, method)
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
	t.Parallel()
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
			require.NotErrorIs(t, err, rlock.ErrRefused, "memory may be free again soon")
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
	require.NotErrorIs(t, err, rlock.ErrRefused, "it may become the master")
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
			_, _, err := c.NewLock("a").TryLock(t.Context())
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

// The application has all connections for single commands. A lock is acquired and released
// all the same, by those for pipelines, also if only one goroutine asks.
func TestNoConnectionForSingleCommands(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	for name, obeys := range map[string]bool{"default": false, "ContextTimeoutEnabled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			small := srv.Client(t, func(o *redis.Options) { o.PoolSize, o.ContextTimeoutEnabled = 1, obeys })
			mu := clientOn(t, small, nil).NewLock(name)
			for range 2 { // the answers are fast
				held, hold := lock(t, t.Context(), mu)
				require.NoError(t, hold.Unlock(held))
			}
			application := small.Conn()
			defer func() { require.NoError(t, application.Close()) }()
			require.NoError(t, application.Ping(t.Context()).Err())
			for range 2 {
				held, hold := lock(t, t.Context(), mu)
				inner, nested := lock(t, held, mu)
				require.NoError(t, nested.Unlock(inner))
				require.NoError(t, hold.Unlock(held))
			}
		})
	}
}

// Many waiters with a deadline each, on a busy lock of a server that is well.
func TestBusyIsNotUnavailable(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a")
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
	start := time.Now()
	errs := make(chan error, 500)
	for range cap(errs) {
		go func() {
			_, _, err := mu.TryLockFor(t.Context(), time.Until(start.Add(2*time.Second)))
			errs <- err
		}()
	}
	wrong := make(map[string]int)
	for range cap(errs) {
		if err := <-errs; !errors.Is(err, rlock.ErrNotAcquired) || errors.Is(err, rlock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			wrong[err.Error()]++
		}
	}
	took := time.Since(start)
	require.NoError(t, hold.Unlock(held))
	require.Empty(t, wrong)
	require.Less(t, took, 2*time.Second+slack)
}

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

// outcomes returns functions that say how many scripts about a key have failed, and how many have not.
func outcomes(rdb *redis.Client) (failed, answered func(key string) int) {
	var mu sync.Mutex
	n, well := make(map[string]int), make(map[string]int)
	note := func(err error, cmds ...redis.Cmder) {
		mu.Lock()
		defer mu.Unlock()
		for _, cmd := range cmds {
			// Without a connection the commands have no errors yet.
			err := cmp.Or(cmd.Err(), err)
			count := n
			if err == nil {
				count = well
			} else if redis.HasErrorPrefix(err, "NOSCRIPT") {
				continue
			}
			for _, arg := range cmd.Args() {
				if key, ok := arg.(string); ok {
					count[key]++
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
	of := func(count map[string]int) func(key string) int {
		return func(key string) int {
			mu.Lock()
			defer mu.Unlock()
			return count[key]
		}
	}
	return of(n), of(well)
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
	t.Parallel()
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
			failed, answered := outcomes(rdb)
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
				before := answered(by.Name())
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						err := lock(c).Do(ctx, func(context.Context) error { return nil })
						assert.NoError(t, err, kind)
					})
				}
				redistest.Eventually(t, "all wait", func() bool { return waitingCalls(c) == 20 })
				first := 1
				if kind == "fair" { // each call has a request of its own
					first = 20
				}
				redistest.Eventually(t, "the first requests are answered", func() bool { return answered(by.Name()) >= before+first })
				time.Sleep(100 * time.Millisecond) // for the client, which has the answers
				unserved := failed(by.Name())
				do(d.begin)
				redistest.Eventually(t, "a waiter is refused", func() bool { return failed(by.Name()) > unserved })
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
	failed, answered := make([]func(string) int, len(all)), make([]func(string) int, len(all))
	for i, srv := range all {
		rdb := aclClient(t, srv, "~*", "&*", "+@all")
		failed[i], answered[i] = outcomes(rdb)
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
	redistest.Eventually(t, "a waiter is answered by each", func() bool {
		return !slices.ContainsFunc(answered, func(n func(string) int) bool { return n("a") == 0 })
	})
	time.Sleep(100 * time.Millisecond) // for the clients, which have the answers
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
			failed, _ := outcomes(rdb)
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
		require.ErrorIs(t, err, rlock.ErrRefused, method)
		require.ErrorContains(t, err, says, method)
		require.LessOrEqual(t, count.Load(), int64(3), "%s: not repeated for the 30 s of a lease", method)
	}
}

// The first waiter of a client asks the server for all its waiters of a fair lock. If it
// gives up because of an error, which it does 5 s after the first refusal, the next one asks at once, and
// does not wait until the first would have asked again. So all give up together. A call that has not waited
// fails at once.
func TestFakeTimeFirstGivesUpInTrouble(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		mu := f.client(t, nil).NewFairLock("a")
		var waiters []*waiting
		for range 3 {
			waiters = append(waiters, begin(t.Context(), mu))
			synctest.Wait()
		}
		time.Sleep(time.Second)
		queue, began := queueOf(t, f.rdb, "a"), time.Now()
		f.SetError("NOPERM this user has no permissions to access one of the keys used as arguments")
		require.Equal(t, 1, f.Publish("rlock_channel:{a}:"+clientOf(queue[0]), queue[0]))
		for _, call := range methods(f.client(t, nil).NewLock("b")) {
			require.ErrorIs(t, call(t.Context()), rlock.ErrUnavailable)
		}
		_, _, err := mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		unserved := f.client(t, nil).NewLock("c")
		for _, w := range []*waiting{begin(t.Context(), mu), begin(t.Context(), unserved), begin(t.Context(), unserved), begin(t.Context(), unserved)} {
			<-w.done
			require.ErrorIs(t, w.err, rlock.ErrUnavailable)
		}
		require.Equal(t, began, time.Now())
		for _, w := range waiters {
			<-w.done
			require.ErrorIs(t, w.err, rlock.ErrUnavailable)
		}
		took := time.Since(began)
		require.GreaterOrEqual(t, took, 5*time.Second)
		require.LessOrEqual(t, took, 5500*time.Millisecond)
		f.heal()
		time.Sleep(time.Second)
		require.Empty(t, tickets(t, f.rdb, "a"))
	})
}

// If the first waiter leaves while its request is refused, the next one asks at once: the refusal may be over.
func TestFakeTimeNextAsksInTrouble(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		mu := f.client(t, nil).NewFairLock("a")
		ctx, leave := context.WithCancel(t.Context())
		first := begin(ctx, mu)
		synctest.Wait()
		rest, stop := context.WithCancel(t.Context())
		second := begin(rest, mu)
		time.Sleep(12 * time.Second)
		queue := queueOf(t, f.rdb, "a")
		f.SetError("NOPERM this user has no permissions to access one of the keys used as arguments")
		require.Equal(t, 1, f.Publish("rlock_channel:{a}:"+clientOf(queue[0]), queue[0]))
		time.Sleep(100 * time.Millisecond)
		f.heal()
		asked := f.askedFor(queue[1])
		leave()
		<-first.done
		synctest.Wait()
		require.Equal(t, asked+1, f.askedFor(queue[1]))
		stop()
		<-second.done
		require.ErrorIs(t, second.err, rlock.ErrNotAcquired)
		time.Sleep(time.Second)
		require.Empty(t, tickets(t, f.rdb, "a"))
	})
}

// A call that waits behind a grant of its own client outlives a refusal as well: that grant is an answer.
// The bound counts from the first refusal since an answer, so two short refusals are no long one.
func TestFakeTimeShortRefusals(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		c := f.client(t, nil)
		_, hold := lock(t, t.Context(), c.NewLock("a"))
		w := begin(t.Context(), c.NewLock("a", longLease)) // is not handed that grant
		synctest.Wait()
		ask := f.hold(func(args []string) bool { return isScript("try")(args) || isScript("ask")(args) })
		require.NoError(t, hold.Unlock(t.Context()))
		synctest.Wait()
		f.holder("a", time.Hour)
		for range 3 {
			f.SetError("NOPERM this user has no permissions to access one of the keys used as arguments")
			ask()
			time.Sleep(4 * time.Second)
			f.heal()
			time.Sleep(6 * time.Second)
		}
		f.release(t, somebody)
		_, hold = w.acquired(t)
		require.NoError(t, hold.Unlock(t.Context()))
	})
}

// A waiter gives up when nobody has got an answer for as long as its own lease, also behind
// one that waits for longer.
func TestFakeTimeSilenceIsAsLongAsTheOwnLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		f.deafUp.Store(true)
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, _, err := c.NewLock("a", longLease).Lock(ctx)
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		for lease, bound := range map[time.Duration]time.Duration{time.Second: 5 * time.Second, 30 * time.Second: 30 * time.Second, time.Minute: time.Minute} {
			all.Go(func() {
				_, _, err := c.NewLock("a", rlock.WithLeaseTime(lease)).Lock(t.Context())
				assert.ErrorIs(t, err, rlock.ErrUnavailable)
				assert.ErrorContains(t, err, "no answer in time")
				assert.GreaterOrEqual(t, f.now(), bound)
				assert.LessOrEqual(t, f.now(), bound+5*time.Second, "a single attempt that was under way, and a pause")
			})
		}
		time.Sleep(2 * time.Minute)
		leave()
		all.Wait()
		f.heal()
	})
}

// On a server that says nothing, or whose answers are lost, a call returns at the end of
// its context: to the instant, whatever it was doing.
func TestFakeTimeCallsLeaveASilentServer(t *testing.T) {
	const patience = 700 * time.Millisecond
	calls := map[string]func(ctx, held context.Context, c *rlock.Client) error{
		"lock": func(ctx, _ context.Context, c *rlock.Client) error {
			return errOf(c.NewLock("b").Lock(ctx))
		},
		"lock for": func(_, _ context.Context, c *rlock.Client) error {
			return errOf(c.NewLock("b").TryLockFor(context.Background(), patience))
		},
		"trylock": func(ctx, _ context.Context, c *rlock.Client) error {
			return errOf(c.NewLock("b").TryLock(ctx))
		},
		"do": func(ctx, _ context.Context, c *rlock.Client) error {
			return c.NewLock("b").Do(ctx, func(context.Context) error { return nil })
		},
		"nested": func(_, held context.Context, c *rlock.Client) error {
			return errOf(c.NewLock("a").TryLockFor(held, patience))
		},
		"behind its own client": func(ctx, _ context.Context, c *rlock.Client) error {
			return errOf(c.NewLock("a").Lock(ctx))
		},
		"fair": func(ctx, _ context.Context, c *rlock.Client) error {
			return errOf(c.NewFairLock("b").Lock(ctx))
		},
		"reader": func(ctx, _ context.Context, c *rlock.Client) error {
			return errOf(c.NewRWLock("b").Reader().Lock(ctx))
		},
		"multi": func(ctx, _ context.Context, c *rlock.Client) error {
			return errOf(rlock.NewMultiLock(c.NewLock("b"), c.NewLock("c")).Lock(ctx))
		},
	}
	for name, call := range calls {
		for _, lost := range []string{"requests", "answers"} {
			t.Run(name+", "+lost+" are lost", func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					f := newFakeRedis(t)
					c := f.client(t, nil)
					held, hold := lock(t, t.Context(), c.NewLock("a"))
					silent := &f.deafUp
					if lost == "answers" {
						silent = &f.deafDown
					}
					silent.Store(true)
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					err := call(ctx, held, c)
					require.Equal(t, patience, time.Since(began))
					require.ErrorIs(t, err, context.DeadlineExceeded)
					silent.Store(false)
					require.NoError(t, hold.Unlock(held))
					time.Sleep(40 * time.Second) // a lease, and what is released late
					synctest.Wait()
					require.Empty(t, f.Keys())
				})
			})
		}
	}
}
