package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

const aclPrefix = "app:"

// aclWorld is a server with an administrator and a user of few rights.
type aclWorld struct {
	t     *testing.T
	srv   *redistest.Server
	admin *redis.Client
	user  *redis.Client
}

// newACLWorld makes the user as the line says, apart from one item.
func newACLWorld(t *testing.T, line, without string) *aclWorld {
	t.Helper()
	w := &aclWorld{t: t, srv: redistest.Start(t)}
	w.admin = w.srv.Client(t)
	var args []any
	for word := range strings.FieldsSeq(line) {
		if word != without {
			args = append(args, word)
		}
	}
	require.NoError(t, w.admin.Do(t.Context(), args...).Err())
	w.user = w.srv.Client(t, asUser)
	return w
}

func asUser(o *redis.Options) { o.Username, o.Password = "u", "PASSWORD" }

// works uses a feature under a name, and returns why it could not.
func (w *aclWorld) works(f feature, name string) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	if err := errors.Join(w.admin.ScriptFlush(ctx).Err(), w.admin.FlushAll(ctx).Err()); err != nil {
		return err
	}
	switch f {
	case listing:
		return w.list(ctx, name)
	case database:
		return w.srv.Client(w.t, asUser, func(o *redis.Options) { o.DB = 1 }).Do(ctx, "hello").Err()
	}
	mine, theirs := w.client(w.user), w.client(w.admin)
	defer closeWithin(mine, closeTimeout)
	defer closeWithin(theirs, closeTimeout)
	switch f {
	case locking:
		return w.mutex(ctx, mine.NewLock(name), theirs.NewLock(name))
	case fencing:
		return w.fence(ctx, mine.NewLock(name, rlock.WithFencing()))
	case waking:
		return w.wake(ctx, mine.NewLock(name), theirs.NewLock(name))
	case probing:
		return w.probe(ctx, mine.NewLock(name), theirs.NewLock(name))
	case queueing:
		return w.queue(ctx, mine.NewFairLock(name), theirs.NewFairLock(name))
	case sharing:
		return w.share(ctx, mine.NewRWLock(name), theirs.NewRWLock(name))
	case replicating:
		return replicate(ctx, mine.NewLock(name, rlock.WithReplicas(1, 10*time.Millisecond)))
	}
	return w.inspect(ctx, mine.NewLock(name, rlock.WithFencing()), theirs.NewLock(name, rlock.WithFencing()))
}

func (w *aclWorld) client(rdb *redis.Client) *rlock.Client {
	c, err := rlock.New(rdb, &rlock.Options{Prefix: aclPrefix, LeaseTime: 3 * time.Second, UnlockTimeout: time.Second})
	require.NoError(w.t, err)
	return c
}

// mutex locks, nests, renews and unlocks, and meets a lock of somebody else.
func (w *aclWorld) mutex(ctx context.Context, mine, theirs *rlock.Lock) error {
	held, hold, err := mine.Lock(ctx)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	_, inner, err := mine.Lock(held)
	if err != nil {
		return errors.Join(fmt.Errorf("nested: %w", err), hold.Unlock(ctx))
	}
	if err := errors.Join(inner.Unlock(ctx), hold.Unlock(ctx)); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	if err := w.renewal(ctx, mine.Name()); err != nil {
		return err
	}
	_, hold, err = theirs.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	if _, _, err := mine.TryLock(ctx); !errors.Is(err, rlock.ErrNotAcquired) {
		return fmt.Errorf("busy: %w", cmp.Or(err, errNotExclusive))
	}
	if _, err := mine.ForceUnlock(ctx); err != nil {
		return fmt.Errorf("force-unlock: %w", err)
	}
	return nil
}

func (w *aclWorld) renewal(ctx context.Context, name string) error {
	renewed := make(chan struct{}, 1)
	c, err := rlock.New(w.user, &rlock.Options{
		Prefix: aclPrefix, LeaseTime: 3 * time.Second,
		Trace: rlock.Trace{Renewed: func(string, time.Time) { notice(renewed) }},
	})
	require.NoError(w.t, err)
	defer closeWithin(c, closeTimeout)
	held, hold, err := c.NewLock(name).Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	select {
	case <-renewed:
		return nil
	case <-held.Done():
		return fmt.Errorf("renewal: %w", context.Cause(held))
	}
}

func (w *aclWorld) fence(ctx context.Context, mine *rlock.Lock) error {
	var last int64
	for range 2 {
		_, hold, err := mine.Lock(ctx)
		if err != nil {
			return err
		}
		if err := hold.Unlock(ctx); err != nil {
			return err
		}
		if hold.Token() <= last {
			return fmt.Errorf("token %d after %d", hold.Token(), last)
		}
		last = hold.Token()
	}
	return nil
}

func (w *aclWorld) wake(ctx context.Context, mine, theirs *rlock.Lock) error {
	channel := relative("redisson_lock__channel", mine.Name())
	return wakes(ctx, mine, theirs, channel, w.admin.Subscribe, func() int64 { return w.admin.PubSubNumSub(ctx, channel).Val()[channel] })
}

// wakes waits for a lock, is told of its release, tells of its own, and is not
// counted when it does not wait any more.
func wakes(ctx context.Context, mine, theirs *rlock.Lock, channel string, listen func(context.Context, ...string) *redis.PubSub, listeners func() int64) error {
	_, release, err := theirs.Lock(ctx)
	if err != nil {
		return err
	}
	type result struct {
		hold *rlock.Hold
		err  error
	}
	results := make(chan result, 1)
	go func() {
		_, hold, err := mine.Lock(ctx)
		results <- result{hold, err}
	}()
	heard := within(3*time.Second, func() bool { return len(results) == 1 || listeners() == 1 })
	if err := release.Unlock(ctx); err != nil {
		return err
	}
	r := <-results
	if r.err != nil {
		return fmt.Errorf("wait: %w", r.err)
	}
	listener := listen(ctx, channel)
	defer func() { _ = listener.Close() }()
	if _, err := listener.Receive(ctx); err != nil {
		return err
	}
	if err := r.hold.Unlock(ctx); err != nil {
		return err
	}
	_, err = listener.ReceiveTimeout(ctx, 3*time.Second)
	switch {
	case !heard:
		return errors.New("not subscribed")
	case err != nil:
		return fmt.Errorf("the release was not announced: %w", err)
	case !within(5*time.Second, func() bool { return listeners() == 1 }): // the listener here
		return errors.New("still subscribed")
	}
	return nil
}

func (w *aclWorld) probe(ctx context.Context, mine, theirs *rlock.Lock) error {
	_, hold, err := theirs.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(context.Background()) }()
	return whileWaiting(ctx, mine, func() bool {
		return len(w.admin.PubSubChannels(ctx, "redisson_lock__channel:{rlock-probe:*").Val()) == 1
	})
}

// whileWaiting lets somebody wait for a lock that is held, until cond is true.
func whileWaiting(ctx context.Context, mu *rlock.Lock, cond func() bool) error {
	wait, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, _, err := mu.Lock(wait)
		done <- err
	}()
	found := within(3*time.Second, func() bool { return len(done) == 1 || cond() })
	cancel()
	if err := <-done; !found || !errors.Is(err, context.Canceled) {
		return fmt.Errorf("not found: %w", err)
	}
	return nil
}

// relative names what belongs to a lock, by Redisson's rule.
func relative(what, name string) string {
	if strings.Contains(name, "{") {
		return what + ":" + aclPrefix + name
	}
	return what + ":{" + aclPrefix + name + "}"
}

// waits lets mine wait for a lock of somebody else until it has subscribed, and
// give up. It leaves nothing of the key behind.
func (w *aclWorld) waits(ctx context.Context, mine *rlock.Lock, channels, key string) error {
	wait, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, _, err := mine.Lock(wait)
		done <- err
	}()
	found := within(time.Second, func() bool {
		return len(done) == 1 || len(w.admin.PubSubChannels(ctx, channels).Val()) == 1
	}) && within(time.Second, func() bool { return len(done) == 1 || w.admin.Exists(ctx, key).Val() == 1 })
	cancel()
	switch err := <-done; {
	case !found || !errors.Is(err, rlock.ErrNotAcquired):
		return fmt.Errorf("does not wait: %w", cmp.Or(err, errNotExclusive))
	case !within(time.Second, func() bool { return w.admin.Exists(ctx, key).Val() == 0 }):
		return errors.New("still waits on the server")
	}
	return nil
}

// queue waits for a fair lock, takes it, and passes it on.
func (w *aclWorld) queue(ctx context.Context, mine, theirs *rlock.Lock) error {
	queue := relative("rlock_fair_queue", mine.Name())
	_, hold, err := theirs.Lock(ctx)
	if err != nil {
		return err
	}
	err = w.waits(ctx, mine, relative("rlock_fair_channel", mine.Name())+":*", queue)
	if err = errors.Join(err, hold.Unlock(ctx)); err != nil {
		return err
	}
	_, hold, err = mine.Lock(ctx)
	if err != nil {
		return err
	}
	if _, err := mine.Inspect(ctx); err != nil {
		return errors.Join(fmt.Errorf("inspect: %w", err), hold.Unlock(ctx))
	}
	next := make(chan error, 1)
	go func() { next <- theirs.Do(ctx, func(context.Context) error { return nil }) }()
	within(time.Second, func() bool { return len(next) == 1 || w.admin.Exists(ctx, queue).Val() == 1 })
	return errors.Join(hold.Unlock(ctx), <-next)
}

// share reads, writes, and waits to write.
func (w *aclWorld) share(ctx context.Context, mine, theirs *rlock.RWLock) error {
	for _, side := range []*rlock.Lock{mine.Reader(), mine.Writer()} {
		if err := side.Do(ctx, func(context.Context) error { return nil }); err != nil {
			return err
		}
	}
	_, hold, err := theirs.Reader().Lock(ctx)
	if err != nil {
		return err
	}
	name := mine.Writer().Name()
	err = w.waits(ctx, mine.Writer(), relative("redisson_rwlock", name), relative("rlock_rwlock_intent", name))
	return errors.Join(err, hold.Unlock(ctx))
}

// replicate asks for a replica, which there is not.
func replicate(ctx context.Context, mu *rlock.Lock) error {
	_, _, err := mu.TryLock(ctx)
	if short, ok := errors.AsType[*rlock.NotReplicatedError](err); !ok || short.Err != nil {
		return fmt.Errorf("replicas are not counted: %w", err)
	}
	return nil
}

func (w *aclWorld) inspect(ctx context.Context, mine, theirs *rlock.Lock) error {
	_, hold, err := theirs.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	switch state, err := mine.Inspect(ctx); {
	case err != nil:
		return err
	case state.Owner() != hold.Owner(), state.Token != hold.Token(), state.Waiters < 0:
		return fmt.Errorf("wrong state: %+v", state)
	}
	return nil
}

func (w *aclWorld) list(ctx context.Context, name string) error {
	if err := w.admin.HSet(ctx, aclPrefix+name, "x:1", 1).Err(); err != nil {
		return err
	}
	defer w.admin.Del(ctx, aclPrefix+name)
	locks, err := (&server{rdb: w.user, prefix: aclPrefix}).list(ctx, "*")
	if err == nil && (len(locks) != 1 || locks[0].Name != name) {
		return fmt.Errorf("listed: %v", locks)
	}
	return err
}

// within asks until cond is true or the time is over.
func within(d time.Duration, cond func() bool) bool {
	for deadline := time.Now().Add(d); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

var aclFeatures = []feature{locking, fencing, waking, probing, inspecting, listing, database, queueing, sharing, replicating}

// broken returns the features that do not work with all of the names.
func (w *aclWorld) broken(names ...string) (broken feature) {
	for _, f := range aclFeatures {
		for _, name := range names {
			if err := w.works(f, name); err != nil {
				w.t.Logf("feature %v, %s: %v", f, name, err)
				broken |= f
				break
			}
		}
	}
	return broken
}

// TestRights takes each item out of the line in turn: what the table says is
// broken then, and nothing else but what needs that.
func TestRights(t *testing.T) {
	line := aclLine("u", aclPrefix+"*", lockUser|readUser|database|queueing|sharing|replicating)
	for _, r := range append(rightsFor(aclPrefix+"*"), right{item: "nothing"}) {
		if r.needs&(clustered|sharding) == r.needs && r.needs != 0 {
			continue // see TestRightsInACluster
		}
		t.Run(r.item, func(t *testing.T) {
			t.Parallel()
			names := []string{"x"}
			if r.item[0] != '+' {
				names = append(names, "{t}x")
			}
			broken := newACLWorld(t, line, r.item).broken(names...)
			follows := r.needs
			if r.needs&locking != 0 {
				follows |= fencing | waking | probing | queueing | sharing | replicating
			}
			require.Equal(t, r.needs, broken&r.needs, "said to break without it")
			require.Zero(t, broken&^follows, "not said to break without it")
		})
	}
}

func TestUsersMayDoNothingElse(t *testing.T) {
	for _, user := range []feature{lockUser, readUser} {
		w := newACLWorld(t, aclLine("u", aclPrefix+"*", user), "")
		require.Equal(t, database|queueing|sharing|replicating|(lockUser|readUser)&^user, w.broken("x", "{t}x"))
		for _, command := range []string{
			"get other", "hset other f v x", "publish other 0", "keys *", "flushall", "config get save", "info", "acl whoami",
			"script flush", "del redisson_lock_token:{other}", "pexpire other 1", "hincrby app:x f 1", "set other v",
		} {
			require.True(t, redis.IsPermissionError(w.user.Do(t.Context(), words(command)...).Err()), command)
		}
	}
}

func words(text string) (args []any) {
	for word := range strings.FieldsSeq(text) {
		args = append(args, word)
	}
	return args
}

func TestRightsToAllNames(t *testing.T) {
	w := newACLWorld(t, aclLine("u", "*", lockUser), "")
	require.Equal(t, listing|database|queueing|sharing|replicating, w.broken("x", "{t}x"))
}

func TestACLPatterns(t *testing.T) {
	for _, tc := range []struct{ prefix, glob, want string }{
		{"", "*", "~* &redisson_lock__channel:*"},
		{"", "a", "~a ~redisson_lock_token:{a} &redisson_lock__channel:{a} &redisson_lock__channel:{rlock-probe:*}"},
		{"p{t}", "*", "~p{t}* ~redisson_lock_token:p{t}* &redisson_lock__channel:p{t}* &redisson_lock__channel:{rlock-probe:*}"},
		{"p*", "a", `~p\*a ~redisson_lock_token:{p\*a} &redisson_lock__channel:{p\*a} &redisson_lock__channel:{rlock-probe:*}`},
		{"my app:", "", "~my?app: ~redisson_lock_token:{my?app:} ~redisson_lock_token:my?app: &redisson_lock__channel:{my?app:} &redisson_lock__channel:my?app: &redisson_lock__channel:{rlock-probe:*}"},
	} {
		line := aclLine("u", aclGlob(tc.prefix, tc.glob), fencing|locking|waking|probing)
		require.Contains(t, line, " >PASSWORD "+tc.want+" +", line)
	}
}

// TestACLDocument compares docs/acl.md with what the doctor prints.
func TestACLDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/acl.md")
	require.NoError(t, err)
	doc := string(text)
	unwrapped := strings.ReplaceAll(doc, " \\\n    ", " ")
	require.Contains(t, unwrapped, aclLine("rlock", "app:*", lockUser)+"\n")
	require.Contains(t, unwrapped, aclLine("rlock-reader", "app:*", readUser)+"\n")
	for _, kind := range []feature{queueing, sharing, clustered | sharding, replicating} {
		require.Contains(t, unwrapped, "ACL SETUSER rlock "+aclItems("app:*", kind)+"\n")
	}
	for _, r := range rightsFor("app:*") {
		require.Contains(t, doc, fmt.Sprintf("| `%s` | %s | %s |\n", strings.ReplaceAll(r.item, "|", `\|`), r.needs, r.why))
	}
}
