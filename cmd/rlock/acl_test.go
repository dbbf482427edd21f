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

	waiting chan struct{} // told when a client of either was refused a lock and waits
}

// newACLWorld makes the user as the line says, apart from one item.
func newACLWorld(t *testing.T, line, without string) *aclWorld {
	t.Helper()
	w := &aclWorld{t: t, srv: redistest.Start(t), waiting: make(chan struct{}, 1)}
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
		return w.fence(ctx, mine.NewLock(name, rlock.WithFencing()), theirs.NewLock(name, rlock.WithFencing()))
	case waking:
		return w.wake(ctx, mine.NewLock(name), theirs.NewLock(name))
	case foreign:
		return w.redisson(ctx, mine.NewLock(name))
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
	c, err := rlock.New(rdb, &rlock.Options{
		Prefix: aclPrefix, LeaseTime: 3 * time.Second, UnlockTimeout: time.Second,
		Trace: rlock.Trace{Waiting: func(context.Context, rlock.Refusal) { notice(w.waiting) }},
	})
	require.NoError(w.t, err)
	return c
}

// mutex locks, nests, renews and unlocks, meets a lock of somebody else, waits, and
// passes the lock on.
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
	if err := errors.Join(w.renewal(ctx, mine.Name()), w.turns(ctx, mine, theirs), w.expiry(ctx, mine)); err != nil {
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
		Trace: rlock.Trace{Renewed: func(rlock.Renewal) { notice(renewed) }},
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

func (w *aclWorld) fence(ctx context.Context, mine, theirs *rlock.Lock) error {
	if err := w.turns(ctx, mine, theirs); err != nil {
		return err
	}
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

// turns has each wait for the other, in the queue.
func (w *aclWorld) turns(ctx context.Context, mine, theirs *rlock.Lock) error {
	for _, pair := range [][2]*rlock.Lock{{theirs, mine}, {mine, theirs}} {
		_, hold, err := pair[0].Lock(ctx)
		if err != nil {
			return err
		}
		next := w.waiter(ctx, pair[1])
		if err := errors.Join(hold.Unlock(ctx), <-next); err != nil {
			return fmt.Errorf("turns: %w", err)
		}
	}
	return nil
}

// waiter waits for a lock and releases it; that it queues by now is certain, if it
// can at all.
func (w *aclWorld) waiter(ctx context.Context, mu *rlock.Lock) <-chan error {
	done := make(chan error, 1)
	go func() { done <- mu.Do(ctx, func(context.Context) error { return nil }) }()
	within(3*time.Second, func() bool { return len(done) == 1 || w.queued(ctx, mu.Name()) == 1 })
	return done
}

// queued returns how many have a ticket.
func (w *aclWorld) queued(ctx context.Context, name string) int64 {
	return w.admin.ZCount(ctx, relative("rlock_queue", name), "1", "+inf").Val()
}

// redissonOwner is how Redisson names one.
const redissonOwner = "8743c9c0-0795-4907-87fd-6c719a6b4586:61"

// expiry waits until the lock of a dead Redisson ends.
func (w *aclWorld) expiry(ctx context.Context, mine *rlock.Lock) error {
	if err := w.takeAsRedisson(ctx, mine.Name(), 500*time.Millisecond); err != nil {
		return err
	}
	if err := <-w.waiter(ctx, mine); err != nil {
		return fmt.Errorf("after Redisson: %w", err)
	}
	return nil
}

func (w *aclWorld) takeAsRedisson(ctx context.Context, name string, lease time.Duration) error {
	return errors.Join(w.admin.HSet(ctx, aclPrefix+name, redissonOwner, 1).Err(), w.admin.PExpire(ctx, aclPrefix+name, lease).Err())
}

// wake waits for a lock, is told that it is its own, and tells the next.
func (w *aclWorld) wake(ctx context.Context, mine, theirs *rlock.Lock) error {
	return wakes(ctx, mine, theirs, w.admin.Subscribe, func() []string {
		return w.admin.PubSubChannels(ctx, relative("rlock_channel", mine.Name())+":*").Val()
	}, func() bool { return w.queued(ctx, mine.Name()) == 1 })
}

// wakes listens to its own channel while it waits, and not any longer; and when it
// passes the lock on, the other is told by a message that listen lets one hear.
func wakes(ctx context.Context, mine, theirs *rlock.Lock, listen func(context.Context, ...string) *redis.PubSub, channels func() []string, queued func() bool) error {
	next := make(chan error, 1)
	begin := func(mu *rlock.Lock) (channel string) {
		go func() { next <- mu.Do(ctx, func(context.Context) error { return nil }) }()
		within(3*time.Second, func() bool { return len(next) == 1 || len(channels()) == 1 && queued() })
		if listening := channels(); len(listening) == 1 {
			return listening[0]
		}
		return ""
	}
	_, hold, err := theirs.Lock(ctx)
	if err != nil {
		return err
	}
	listens := begin(mine) != ""
	if err := errors.Join(hold.Unlock(ctx), <-next); err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	switch {
	case !listens:
		return errors.New("not subscribed")
	case !within(5*time.Second, func() bool { return len(channels()) == 0 }):
		return errors.New("still subscribed")
	}
	if _, hold, err = mine.Lock(ctx); err != nil {
		return err
	}
	channel := begin(theirs)
	listener := listen(ctx, channel)
	defer func() { _ = listener.Close() }()
	_, err = listener.Receive(ctx)
	if err = errors.Join(err, hold.Unlock(ctx), <-next); err != nil {
		return fmt.Errorf("pass on to %s: %w", channel, err)
	}
	if _, err = listener.ReceiveTimeout(ctx, 3*time.Second); err != nil {
		return fmt.Errorf("the next was not told: %w", err)
	}
	return nil
}

// redisson is told of the release of one of Redisson's clients, and tells one.
func (w *aclWorld) redisson(ctx context.Context, mine *rlock.Lock) error {
	if err := w.takeAsRedisson(ctx, mine.Name(), 4*time.Second); err != nil {
		return err
	}
	channel := relative("redisson_lock__channel", mine.Name())
	listeners := func() int64 { return w.admin.PubSubNumSub(ctx, channel).Val()[channel] }
	next := w.waiter(ctx, mine)
	heard := within(3*time.Second, func() bool { return len(next) == 1 || listeners() == 1 })
	if err := errors.Join(w.admin.Del(ctx, aclPrefix+mine.Name()).Err(), w.admin.Publish(ctx, channel, 0).Err(), <-next); err != nil {
		return fmt.Errorf("wait for Redisson: %w", err)
	}
	_, hold, err := mine.Lock(ctx)
	if err != nil {
		return err
	}
	left := within(5*time.Second, func() bool { return listeners() == 0 })
	listener := w.admin.Subscribe(ctx, channel)
	defer func() { _ = listener.Close() }()
	if _, err := listener.Receive(ctx); err != nil {
		return err
	}
	if err := hold.Unlock(ctx); err != nil {
		return err
	}
	_, err = listener.ReceiveTimeout(ctx, 3*time.Second)
	switch {
	case !heard:
		return errors.New("not subscribed for Redisson")
	case !left:
		return errors.New("still subscribed for Redisson")
	case err != nil:
		return fmt.Errorf("Redisson was not told: %w", err)
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

// waits lets mine wait for a lock of somebody else until it has left a key, and give
// up. It leaves nothing of the key behind.
func (w *aclWorld) waits(ctx context.Context, mine *rlock.Lock, key string) error {
	for len(w.waiting) > 0 {
		<-w.waiting
	}
	wait, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, _, err := mine.Lock(wait)
		done <- err
	}()
	found := within(3*time.Second, func() bool {
		return len(done) == 1 || len(w.waiting) == 1 && w.admin.Exists(ctx, key).Val() == 1
	})
	cancel()
	switch err := <-done; {
	case !found || !errors.Is(err, rlock.ErrNotAcquired):
		return fmt.Errorf("does not wait: %w", cmp.Or(err, errNotExclusive))
	case !within(3*time.Second, func() bool { return w.admin.Exists(ctx, key).Val() == 0 }):
		return errors.New("still waits on the server")
	}
	return nil
}

// queue waits for a fair lock, gives up, takes it, and passes it on.
func (w *aclWorld) queue(ctx context.Context, mine, theirs *rlock.Lock) error {
	_, hold, err := theirs.Lock(ctx)
	if err != nil {
		return err
	}
	if err = errors.Join(w.waits(ctx, mine, relative("rlock_queue", mine.Name())), hold.Unlock(ctx)); err != nil {
		return err
	}
	_, hold, err = mine.Lock(ctx)
	if err != nil {
		return err
	}
	if _, err := mine.Inspect(ctx); err != nil {
		return errors.Join(fmt.Errorf("inspect: %w", err), hold.Unlock(ctx))
	}
	next := w.waiter(ctx, theirs)
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
	err = w.waits(ctx, mine.Writer(), relative("rlock_rwlock_intent", name))
	err = errors.Join(err, whileWaiting(ctx, mine.Writer(), func() bool {
		return len(w.admin.PubSubChannels(ctx, relative("redisson_rwlock", name)).Val()) == 1
	}))
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

var aclFeatures = []feature{locking, fencing, waking, foreign, probing, inspecting, listing, database, queueing, sharing, replicating}

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
			if r.needs != 0 {
				redistest.Long(t, "waits for what is missing")
			}
			names := []string{"x"}
			if r.item[0] != '+' {
				names = append(names, "{t}x")
			}
			broken := newACLWorld(t, line, r.item).broken(names...)
			follows := r.needs
			if r.needs&locking != 0 {
				follows |= fencing | waking | foreign | probing | queueing | sharing | replicating
			}
			require.Equal(t, r.needs, broken&r.needs, "said to break without it")
			require.Zero(t, broken&^follows, "not said to break without it")
		})
	}
}

func TestUsersMayDoNothingElse(t *testing.T) {
	redistest.Long(t, "waits for what is forbidden")
	t.Parallel()
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
	redistest.Long(t, "waits for what is forbidden")
	t.Parallel()
	w := newACLWorld(t, aclLine("u", "*", lockUser), "")
	require.Equal(t, listing|database|sharing|replicating, w.broken("x", "{t}x")) // fair locks need other keys only
}

func TestACLPatterns(t *testing.T) {
	for _, tc := range []struct{ prefix, glob, want string }{
		{"", "*", "~* &rlock_channel:* &redisson_lock__channel:*"},
		{"", "a", "~a ~rlock_queue:{a} ~redisson_lock_token:{a} &rlock_channel:{a}:* &redisson_lock__channel:{a} &redisson_lock__channel:{rlock-probe:*}"},
		{"p{t}", "*", "~p{t}* ~rlock_queue:p{t}* ~redisson_lock_token:p{t}* &rlock_channel:p{t}* &redisson_lock__channel:p{t}* &redisson_lock__channel:{rlock-probe:*}"},
		{"p*", "a", `~p\*a ~rlock_queue:{p\*a} ~redisson_lock_token:{p\*a} &rlock_channel:{p\*a}:* &redisson_lock__channel:{p\*a} &redisson_lock__channel:{rlock-probe:*}`},
		{
			"my app:", "", "~my?app: ~rlock_queue:{my?app:} ~rlock_queue:my?app: ~redisson_lock_token:{my?app:} ~redisson_lock_token:my?app: " +
				"&rlock_channel:{my?app:}:* &rlock_channel:my?app::* &redisson_lock__channel:{my?app:} &redisson_lock__channel:my?app: &redisson_lock__channel:{rlock-probe:*}",
		},
	} {
		line := aclLine("u", aclGlob(tc.prefix, tc.glob), fencing|locking|waking|foreign|probing)
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
