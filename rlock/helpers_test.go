package rlock_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// tester is a *testing.T or a *rapid.T.
type tester interface {
	require.TestingT
	Helper()
}

// newServer runs a redis-server until the test ends.
func newServer(tb testing.TB, args ...string) *redistest.Server {
	tb.Helper()
	return redistest.Start(tb, args...)
}

// newClient returns a client of srv. The test has to unlock everything: the
// client is closed when the test ends, and that must succeed.
func newClient(tb testing.TB, srv *redistest.Server, opts *rlock.Options) *rlock.Client {
	tb.Helper()
	return clientOn(tb, srv.Client(tb), opts)
}

// clientOn is newClient on a given connection.
func clientOn(tb testing.TB, rdb redis.UniversalClient, opts *rlock.Options) *rlock.Client {
	tb.Helper()
	c, err := rlock.New(rdb, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, closeSoon(c)) })
	return c
}

// closeSoon closes c; the error of a Close that takes longer than half a minute matches
// context.DeadlineExceeded. What is released in the background may take two leases.
func closeSoon(c *rlock.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return c.Close(ctx)
}

type unlocker interface {
	Unlock(ctx context.Context) error
}

// locker is a Lock or a MultiLock, with its type of hold.
type locker[H unlocker] interface {
	Lock(ctx context.Context) (context.Context, H, error)
	TryLock(ctx context.Context) (context.Context, H, error)
	TryLockFor(ctx context.Context, wait time.Duration) (context.Context, H, error)
}

// lock locks mu, which must be possible within half a minute.
func lock[H unlocker](t tester, ctx context.Context, mu locker[H]) (context.Context, H) {
	t.Helper()
	held, hold, err := mu.TryLockFor(ctx, 30*time.Second)
	require.NoError(t, err)
	return held, hold
}

// hgetall returns what the server holds under key.
func hgetall(t tester, rdb redis.UniversalClient, key string) map[string]string {
	t.Helper()
	fields, err := rdb.HGetAll(context.Background(), key).Result()
	require.NoError(t, err)
	return fields
}

// holds returns the hold count on the server, 0 if the lock is free. There must
// be no other field than that of the owner.
func holds(t tester, rdb redis.UniversalClient, key string) int {
	t.Helper()
	fields := hgetall(t, rdb, key)
	require.LessOrEqual(t, len(fields), 1, "%v", fields)
	for owner, value := range fields {
		require.Regexp(t, `^[0-9a-v]{20}:[1-9][0-9]*$`, owner)
		n, err := strconv.Atoi(value)
		require.NoError(t, err)
		require.Positive(t, n)
		return n
	}
	return 0
}

// lockKeys returns all keys but the records of clients, which say who held or waited for
// a moment: they stay until the next record, or Close.
func lockKeys(tb testing.TB, rdb redis.UniversalClient) []string {
	tb.Helper()
	keys, err := rdb.Keys(context.Background(), "*").Result()
	require.NoError(tb, err)
	return slices.DeleteFunc(keys, isRecord)
}

// isRecord reports whether a key is that of a record, or of the list of records.
func isRecord(key string) bool { return strings.HasPrefix(key, "rlock_client") }

// isProbe reports whether a command is one of those that clients send now and then, to find
// out whether their subscription is sound.
func isProbe(c redistest.Command) bool {
	name := strings.ToLower(c.Args[0])
	channel := 1
	if name == "eval" { // around the publication
		channel = 3
	}
	return slices.Contains([]string{"eval", "publish", "spublish"}, name) && strings.Contains(c.Args[channel], "rlock-probe:")
}

// sent returns the names of the commands that clients send while f runs, less
// those that only set up a connection, or find out whether one is sound, and those that
// tell who waits on a slow machine.
func sent(tb testing.TB, srv *redistest.Server, f func()) []string {
	tb.Helper()
	m := srv.Monitor(tb)
	defer m.Stop()
	f()
	var names []string
	for _, c := range m.Commands() {
		name := strings.ToLower(c.Args[0])
		if slices.ContainsFunc(c.Args, isRecord) || isProbe(c) {
			continue
		}
		if c.Client != "lua" && !slices.Contains([]string{"hello", "client", "auth"}, name) {
			names = append(names, name)
		}
	}
	return names
}

func TestMain(m *testing.M) {
	redistest.RunChild(map[string]func(args []string){"fips": fips, "holder": holder, "member": ringMember, "waiters": waiters})
	// Parallel tests mostly wait for a lease to end; the default is the number of cores.
	_ = flag.Set("test.parallel", "16")
	logging.Disable() // go-redis' own: every refused dial of a test whose server is gone
	goleak.VerifyTestMain(m, redistest.Dials)
}

// longestClaim is how long the lock is kept at most for whoever was granted it and does
// not say so. The first waiter of a client asks after keepAlive of its own accord, after
// minKeepAlive if few wait, and not for long yet, and each time up to a tenth of that later.
const (
	longestClaim = 2500 * time.Millisecond
	keepAlive    = 5 * time.Second
	minKeepAlive = 900 * time.Millisecond

	asksPerSecond = 20 // of all that wait, until each asks after keepAlive
)

// askedIn is how often a waiter asks of its own accord in a wait, at most, if few others wait.
func askedIn(wait time.Duration) (n int) {
	for at := minKeepAlive; at <= wait; n++ {
		at += min(max(at, minKeepAlive), keepAlive)
	}
	return n
}

// ticket is what an owner has left in the queue on the server.
type ticket struct {
	owner string
	place int64
	claim time.Duration
	hears bool
}

// tickets returns those of a plain lock or a read/write lock, in their order.
func tickets(tb tester, rdb redis.UniversalClient, name string) (all []ticket) {
	tb.Helper()
	for _, queue := range []string{lua.QueueOf(name), lua.QueueOfRW(name)} {
		members, err := rdb.ZRangeWithScores(context.Background(), queue, 0, -1).Result()
		require.NoError(tb, err)
		for _, m := range members {
			if score, owner := int64(m.Score), m.Member.(string); owner[0] != '!' { // otherwise it is the record of the newest grant
				all = append(all, ticket{owner, score / 4 / 8192, time.Duration(score/4%8192) * time.Millisecond, score%4 != 0})
			}
		}
	}
	return all
}

// queueOf returns the owners who wait, in their order.
func queueOf(tb tester, rdb redis.UniversalClient, name string) (owners []string) {
	tb.Helper()
	for _, t := range tickets(tb, rdb, name) {
		owners = append(owners, t.owner)
	}
	return owners
}

// awaitQueue returns when so many wait, all of them listening or not.
func awaitQueue(tb testing.TB, rdb redis.UniversalClient, name string, n int) {
	tb.Helper()
	redistest.Eventually(tb, fmt.Sprint(n, " in the queue of ", name), func() bool { return len(tickets(tb, rdb, name)) == n })
}

// awaitHearing returns when so many wait and hear, as the server knows: they send
// nothing more.
func awaitHearing(tb testing.TB, rdb redis.UniversalClient, name string, n int) {
	tb.Helper()
	redistest.Eventually(tb, fmt.Sprint(n, " hear what becomes of ", name), func() bool { return hearing(tb, rdb, name) == n })
}

func hearing(tb testing.TB, rdb redis.UniversalClient, name string) (n int) {
	tb.Helper()
	for _, t := range tickets(tb, rdb, name) {
		if t.hears {
			n++
		}
	}
	return n
}

// awaitListener returns when a waiter will be told of a release: it has a ticket and
// hears; or, if the lock has no queue, it is subscribed.
func awaitListener(tb testing.TB, rdb redis.UniversalClient, name string) {
	tb.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	redistest.Eventually(tb, "a waiter is told of a release of "+name, func() bool {
		n, err := rdb.PubSubNumSub(context.Background(), channel).Result()
		require.NoError(tb, err)
		return n[channel] > 0 || hearing(tb, rdb, name) > 0 || rdb.ZCard(context.Background(), lua.QuorumOf(name)).Val() > 0
	})
}

// requireNothing requires that lock and queue are gone soon.
func requireNothing(tb testing.TB, rdb redis.UniversalClient, name string) {
	tb.Helper()
	redistest.Eventually(tb, "nothing is left of "+name, func() bool {
		return rdb.Exists(context.Background(), name).Val()+rdb.Exists(context.Background(), lua.QueueOf(name)).Val()+rdb.Exists(context.Background(), lua.QueueOfRW(name)).Val() == 0
	})
}

// clientOf returns the client of an owner.
func clientOf(owner string) string {
	client, _, _ := strings.Cut(owner, ":")
	return client
}

// refusals returns options under which a client tells of each refused attempt.
func refusals() (*rlock.Options, <-chan struct{}) {
	c := make(chan struct{}, 1<<16)
	return &rlock.Options{LeaseTime: forever, Trace: rlock.Trace{Waiting: func(context.Context, rlock.Refusal) {
		select {
		case c <- struct{}{}:
		default:
		}
	}}}, c
}

// grant is what a Lock call in the background returned.
type grant struct {
	at   time.Time
	held context.Context
	hold *rlock.Hold
	err  error
}

func lockAsync(ctx context.Context, mu *rlock.Lock) <-chan grant {
	c := make(chan grant, 1)
	go func() {
		held, hold, err := mu.Lock(ctx)
		c <- grant{time.Now(), held, hold, err}
	}()
	return c
}

// await returns the grant, which must come in time, and unlocks it.
func await(t testing.TB, c <-chan grant, limit time.Duration) (at time.Time) {
	t.Helper()
	select {
	case g := <-c:
		require.NoError(t, g.err)
		require.NoError(t, g.hold.Unlock(g.held))
		return g.at
	case <-time.After(limit):
		buf := make([]byte, 1<<20)
		t.Fatalf("no grant within %v\n%s", limit, buf[:runtime.Stack(buf, true)])
		return time.Time{}
	}
}

// asked is a lua.Runner that knows no script: so it is shown the hash of each, and then
// the source.
type asked struct{ words []string }

func (a *asked) Process(_ context.Context, cmd redis.Cmder) error {
	a.words = append(a.words, fmt.Sprint(cmd.Args()[1]))
	err := errors.New("not a server")
	if cmd.Name() == "evalsha" {
		err = redisError("NOSCRIPT No matching script.")
	}
	cmd.SetErr(err)
	return err
}

func (a *asked) Pipeline() redis.Pipeliner { panic("for single calls") }

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// scripts returns the hashes and sources of all forms of a script of package lua: one
// after the other, for a lock without a counter and for one with it.
func scripts(name string) (words []string) {
	var a asked
	ctx := context.Background()
	for _, counter := range []string{"", "c"} {
		g := lua.Grant{Key: "k", Queue: "q", Counter: counter, Owner: "o"}
		fair, alone := g, g
		fair.Rivals = [2]string{"r", "s"}
		alone.Queue = ""
		rw := lua.RW{Grant: g, Holds: "h"}
		switch name {
		case "try":
			_, _ = lua.Acquire(ctx, &a, g, time.Second, 0)
		case "ask":
			_, _ = lua.Ask(ctx, &a, g, time.Second, lua.Ticket{}, 0)
		case "ask_fair":
			_, _ = lua.Ask(ctx, &a, fair, time.Second, lua.Ticket{}, 0)
		case "release":
			_, _ = lua.Release(ctx, &a, g, lua.Ending{})
			_, _ = lua.Release(ctx, &a, alone, lua.Ending{})
		case "share":
			_, _, _ = lua.Share(ctx, &a, g, time.Second, lua.Turn{})
		case "yield":
			_, _ = lua.Yield(ctx, &a, g, lua.Turn{}, false)
		case "count":
			_ = lua.Count(ctx, &a, g, time.Second, 1)
		case "inspect":
			_, _ = lua.Inspect(ctx, &a, g)
		case "confirm":
			_, _ = lua.Confirm(ctx, &a, g)
		case "force":
			_, _ = lua.ForceRelease(ctx, &a, g)
		case "floor":
			_ = lua.Floor(ctx, &a, g, 1)
		case "rwask": // of both sides
			_, _ = lua.AskRW(ctx, &a, rw, time.Second, lua.Ticket{})
		case "rwrelease":
			_, _ = lua.ReleaseRW(ctx, &a, rw, lua.Ending{})
		case "rwcount":
			_, _ = lua.CountRW(ctx, &a, rw, time.Second, 1, 0)
		case "retain":
			_, _ = lua.Retain(ctx, &a, g)
		case "renew":
			a.renewal(lua.Renewal{Grant: g, Lease: time.Second})
		default:
			panic("unknown script " + name)
		}
	}
	slices.Sort(a.words)
	return slices.Compact(a.words)
}

// renewal notes the script of a renewal, which goes out in a pipeline.
func (a *asked) renewal(r lua.Renewal) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	rdb.AddHook(redistest.Answers(func(ctx context.Context, cmds ...redis.Cmder) (err error) {
		for _, cmd := range cmds {
			err = a.Process(ctx, cmd)
		}
		return err
	}))
	_ = lua.Renew(context.Background(), rdb, []lua.Renewal{r})
}

var known sync.Map // what scripts returns, by name

// isScript matches the calls of a script of package lua, by hash or by source.
func isScript(name string) netfault.Match {
	value, ok := known.Load(name)
	if !ok {
		value, _ = known.LoadOrStore(name, scripts(name))
	}
	words := value.([]string)
	return func(args []string) bool { return len(args) > 1 && slices.Contains(words, args[1]) }
}

// teach makes the server know the scripts, so that faults meet EVALSHA.
func teach(t testing.TB, srv *redistest.Server) {
	t.Helper()
	rdb := srv.Client(t)
	for _, name := range []string{"try", "ask", "ask_fair", "release", "count", "retain", "renew", "force", "inspect"} {
		for _, word := range scripts(name) {
			if len(word) > 40 { // a source
				require.NoError(t, rdb.ScriptLoad(t.Context(), word).Err())
			}
		}
	}
}

// waiting is a Lock that a test has begun.
type waiting struct {
	done chan struct{}
	held context.Context
	hold *rlock.Hold
	err  error
}

func begin(ctx context.Context, mu *rlock.Lock) *waiting {
	w := &waiting{done: make(chan struct{})}
	go func() { // ends with ctx or the lock
		w.held, w.hold, w.err = mu.Lock(ctx)
		close(w.done)
	}()
	return w
}

func (w *waiting) acquired(tb testing.TB) (context.Context, *rlock.Hold) {
	tb.Helper()
	select {
	case <-w.done:
	case <-time.After(20 * time.Second):
		require.FailNow(tb, "not acquired")
	}
	require.NoError(tb, w.err)
	return w.held, w.hold
}

// async runs f and hands its error over.
func async(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// within returns what comes from c, which must be soon.
func within[T any](t *testing.T, d time.Duration, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(d):
		require.FailNow(t, "nothing came", "within %v", d)
		panic("unreachable")
	}
}

func nothing(context.Context) error { return nil }

// errOf is the error of a call that returns a hold as well.
func errOf[H any](_ context.Context, _ H, err error) error { return err }

// methods are those of a lock that may go to the server. What they acquire they
// give back.
func methods(mu *rlock.Lock) map[string]func(context.Context) error {
	unlock := func(ctx context.Context, hold *rlock.Hold, err error) error {
		if err != nil {
			return err
		}
		return hold.Unlock(ctx)
	}
	return map[string]func(context.Context) error{
		"Lock":        func(ctx context.Context) error { return unlock(mu.Lock(ctx)) },
		"TryLock":     func(ctx context.Context) error { return unlock(mu.TryLock(ctx)) },
		"TryLockFor":  func(ctx context.Context) error { return unlock(mu.TryLockFor(ctx, 10*time.Second)) },
		"Do":          func(ctx context.Context) error { return mu.Do(ctx, func(context.Context) error { return nil }) },
		"Inspect":     func(ctx context.Context) error { _, err := mu.Inspect(ctx); return err },
		"ForceUnlock": func(ctx context.Context) error { _, err := mu.ForceUnlock(ctx); return err },
		"UnlockOwner": func(ctx context.Context) error { _, err := mu.UnlockOwner(ctx, "somebody:1"); return err },
	}
}

// slack is what a liveness bound allows for a busy machine and the race
// detector. Safety bounds have none.
const slack = 4 * time.Second

// ends fails the test if c is not closed within d.
func ends(t testing.TB, d time.Duration, what string, c <-chan struct{}) {
	t.Helper()
	start := time.Now()
	select {
	case <-c:
		t.Logf("%s after %v", what, time.Since(start))
	case <-time.After(d):
		t.Fatalf("not within %v: %s", d, what)
	}
}

// through returns a client whose connections pass a proxy to srv.
func through(t testing.TB, srv *redistest.Server, opts *rlock.Options, edit ...func(*redis.Options)) (*rlock.Client, *netfault.Proxy) {
	p := netfault.New(t, srv.Addr())
	edit = append(edit, func(o *redis.Options) { o.Addr = p.Addr() })
	c := clientOn(t, srv.Client(t, edit...), opts)
	t.Cleanup(func() { heal(p) }) // before Close
	return c, p
}

// heal ends the faults, and the connections that have suffered from them.
func heal(p *netfault.Proxy) {
	p.Heal()
	p.CutAll()
}

// dump returns the key as it stands, with its remaining lifetime.
func dump(t testing.TB, rdb *redis.Client, key string) (value string, ttl time.Duration) {
	t.Helper()
	value, err := rdb.Dump(context.Background(), key).Result()
	if !errors.Is(err, redis.Nil) {
		require.NoError(t, err)
	}
	ttl, err = rdb.PTTL(context.Background(), key).Result()
	require.NoError(t, err)
	return value, ttl
}

// lockOf returns a lock of "a".
func lockOf(c *rlock.Client, kind string, opts ...rlock.LockOption) *rlock.Lock {
	switch kind {
	case "plain":
		return c.NewLock("a", opts...)
	case "fair":
		return c.NewFairLock("a", opts...)
	case "reader":
		return c.NewRWLock("a", opts...).Reader()
	case "writer":
		return c.NewRWLock("a", opts...).Writer()
	}
	panic(fmt.Sprint("no kind ", kind))
}

// logBuffer keeps what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *logBuffer) lines() []string {
	return strings.FieldsFunc(b.String(), func(r rune) bool { return r == '\n' })
}
