package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

const aclPrefix = "app:"

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

// share reads, writes, reads while it writes, tells Redisson, and waits to write, behind many readers.
func (w *aclWorld) share(ctx context.Context, mine, theirs *rlock.RWLock) error {
	name := mine.Writer().Name()
	redisson := w.admin.Subscribe(ctx, relative("redisson_rwlock", name))
	defer redisson.Close()
	if _, err := redisson.Receive(ctx); err != nil {
		return err
	}
	read := func(ctx context.Context) error {
		return mine.Reader().Do(ctx, func(context.Context) error { return nil })
	}
	if err := errors.Join(read(ctx), mine.Writer().Do(ctx, read)); err != nil {
		return err
	}
	if _, err := redisson.ReceiveTimeout(ctx, 3*time.Second); err != nil {
		return fmt.Errorf("Redisson is not told: %w", err)
	}
	_, hold, err := theirs.Reader().Lock(ctx)
	if err != nil {
		return err
	}
	var dead []any
	for i := range 20 {
		dead = append(dead, "dead:"+strconv.Itoa(i), 1)
	}
	if err := w.admin.HSet(ctx, aclPrefix+name, dead...).Err(); err != nil {
		return errors.Join(err, hold.Unlock(ctx))
	}
	err = w.waits(ctx, mine.Writer(), relative("rlock_rwqueue", name))
	err = errors.Join(err, whileWaiting(ctx, mine.Writer(), func() bool {
		return len(w.admin.PubSubChannels(ctx, relative("rlock_rwchannel", name)+":*").Val()) == 1
	}))
	return errors.Join(err, hold.Unlock(ctx))
}

// elect leads, changes the value, reads it, and resigns.
func elect(ctx context.Context, locks *rlock.Client, name string) error {
	e := election.New(locks, name, "a")
	held, term, err := e.Campaign(ctx)
	if err != nil {
		return err
	}
	if err := term.Proclaim(held, "b"); err != nil {
		return errors.Join(err, term.Resign(ctx))
	}
	leader, err := e.Leader(ctx)
	if err == nil && leader.Value != "b" {
		err = fmt.Errorf("the leader is %v", leader)
	}
	return errors.Join(err, term.Resign(ctx))
}

// replicate asks for a replica, which there is not.
func replicate(ctx context.Context, mu *rlock.Lock) error {
	_, _, err := mu.TryLock(ctx)
	if short, ok := errors.AsType[*rlock.NotReplicatedError](err); !ok || short.Err != nil {
		return fmt.Errorf("replicas are not counted: %w", err)
	}
	return nil
}

// inspect looks at locks of theirs, as rlock inspect does, which does not know their kind before.
func (w *aclWorld) inspect(ctx context.Context, mine *rlock.Client, theirs ...*rlock.Lock) error {
	for _, lock := range theirs {
		_, hold, err := lock.Lock(ctx)
		if err != nil {
			return err
		}
		_, state, err := find(ctx, mine, lock.Name())
		if err = errors.Join(err, hold.Unlock(ctx)); err != nil {
			return err
		}
		if state.Owner() != hold.Owner() && state.Shared[hold.Owner()] == 0 || state.Token != hold.Token() || state.Waiters < 0 {
			return fmt.Errorf("wrong state: %+v", state)
		}
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

var aclFeatures = []feature{locking, fencing, waking, foreign, probing, inspecting, listing, database, queueing, sharing, electing, replicating, recording, observing, watching, inspectBoth}

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
	t.Parallel()
	line := aclLine("u", aclPrefix, aclPrefix+"*", lockUser|readUser|database|queueing|sharing|electing|replicating)
	for _, r := range append(rightsFor(aclPrefix, aclPrefix+"*"), right{item: "nothing"}) {
		if r.needs&(clustered|sharding|moving) == r.needs && r.needs != 0 {
			continue // see TestRightsInACluster, and TestRightsWhileASlotMoves
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
				follows |= fencing | waking | foreign | probing | queueing | sharing | electing | replicating
			}
			if r.needs&fencing != 0 {
				follows |= electing
			}
			if r.needs&inspecting != 0 {
				follows |= inspectBoth
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
		w := newACLWorld(t, aclLine("u", aclPrefix, aclPrefix+"*", user), "")
		require.Equal(t, database|queueing|sharing|electing|replicating|(lockUser|readUser)&^user, w.broken("x", "{t}x"))
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

// Who may not look at a read/write lock is told so, and not that it is no plain lock.
func TestInspectSaysThatARightIsMissing(t *testing.T) {
	t.Parallel()
	w := newACLWorld(t, aclLine("u", aclPrefix, aclPrefix+"*", readUser), "~rlock_rwqueue:{app:*}")
	require.NoError(t, w.works(inspecting, "x"))
	require.ErrorIs(t, w.works(inspectBoth, "x"), rlock.ErrRefused)
	require.NoError(t, w.works(inspectBoth, "{t}x"))
}

func TestRightsToAllNames(t *testing.T) {
	redistest.Long(t, "waits for what is forbidden")
	t.Parallel()
	w := newACLWorld(t, aclLine("u", "", "*", lockUser), "")
	require.Equal(t, listing|database|sharing|electing|replicating|observing|watching, w.broken("x", "{t}x")) // fair locks need other keys only
}

func TestACLPatterns(t *testing.T) {
	for _, tc := range []struct{ prefix, glob, want string }{
		{"", "*", "~* &rlock_channel:* &redisson_lock__channel:*"},
		{"", "a", "~a ~rlock_queue:{a} ~redisson_lock_token:{a} &rlock_channel:{a}:* &redisson_lock__channel:{a} &redisson_lock__channel:{rlock-probe:*}"},
		{"", "{a}", "~{a} ~rlock_queue:{a}: ~redisson_lock_token:{a} &rlock_channel:{a}::* &redisson_lock__channel:{a} &redisson_lock__channel:{rlock-probe:*}"},
		{"p{t}", "*", "~p{t}* ~rlock_queue:p{t}* ~redisson_lock_token:p{t}* &rlock_channel:p{t}* &redisson_lock__channel:p{t}* &redisson_lock__channel:{rlock-probe:*}"},
		{"p*", "a", `~p\*a ~rlock_queue:{p\*a} ~redisson_lock_token:{p\*a} &rlock_channel:{p\*a}:* &redisson_lock__channel:{p\*a} &redisson_lock__channel:{rlock-probe:*}`},
		{
			"my app:", "", "~my?app: ~rlock_queue:{my?app:} ~rlock_queue:my?app: ~redisson_lock_token:{my?app:} ~redisson_lock_token:my?app: " +
				"&rlock_channel:{my?app:}:* &rlock_channel:my?app::* &redisson_lock__channel:{my?app:} &redisson_lock__channel:my?app: &redisson_lock__channel:{rlock-probe:*}",
		},
	} {
		line := aclLine("u", tc.prefix, aclGlob(tc.prefix, tc.glob), fencing|locking|waking|foreign|probing)
		require.Contains(t, line, " >PASSWORD "+tc.want+" +", line)
	}
}

var aclRow = regexp.MustCompile("(?m)^\\| (`.*?`) \\| (.*) \\|$")

// TestACLDocument compares docs/acl.md with what the doctor prints.
func TestACLDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/acl.md")
	require.NoError(t, err)
	doc := string(text)
	unwrapped := strings.ReplaceAll(doc, " \\\n    ", " ")
	require.Contains(t, unwrapped, aclLine("rlock", "app:", "app:*", lockUser)+"\n")
	require.Contains(t, unwrapped, aclLine("rlock-reader", "app:", "app:*", readUser)+"\n")
	for _, kind := range []feature{queueing, sharing, electing, clustered | sharding | moving, replicating} {
		require.Contains(t, unwrapped, "ACL SETUSER rlock "+aclItems("app:", "app:*", kind)+"\n")
	}
	rows := make(map[string]string) // of the table, by item; a row may have several
	for _, row := range aclRow.FindAllStringSubmatch(doc, -1) {
		for item := range strings.SplitSeq(row[1], ", ") {
			rows[strings.ReplaceAll(strings.Trim(item, "`"), `\|`, "|")] = row[2]
		}
	}
	for _, r := range rightsFor("app:", "app:*") {
		require.Equal(t, fmt.Sprintf("%s | %s", r.needs, r.why), rows[r.item], r.item)
	}
}
