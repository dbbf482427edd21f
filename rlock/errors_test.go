package rlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// A refusal says whose the lock is, and whether that is this client.
func TestRefusalNamesTheOwner(t *testing.T) {
	t.Parallel()
	const bound = 50 * time.Millisecond
	srv := newServer(t)
	here, there := newClient(t, srv, nil), newClient(t, srv, nil)
	type of = func(*rlock.Client) rlock.Locker
	plain := func(c *rlock.Client) rlock.Locker { return c.NewLock("plain") }
	fenced := func(c *rlock.Client) rlock.Locker { return c.NewLock("fenced", rlock.WithFencing()) }
	fair := func(c *rlock.Client) rlock.Locker { return c.NewFairLock("fair") }
	polling := func(c *rlock.Client) rlock.Locker { return c.NewLock("polling", rlock.WithPolling(rlock.Polling{})) }
	// Each case has a name of its own: a reader who has left may be a late owner of the last name for a moment.
	reader := func(name string) of { return func(c *rlock.Client) rlock.Locker { return c.NewRWLock(name).Reader() } }
	writer := func(name string) of { return func(c *rlock.Client) rlock.Locker { return c.NewRWLock(name).Writer() } }
	kinds := map[string]struct{ held, wanted of }{
		"plain":                    {plain, plain},
		"fenced":                   {fenced, fenced},
		"fair":                     {fair, fair},
		"polling":                  {polling, polling},
		"reader, held by a writer": {writer("wr"), reader("wr")},
		"writer, held by a reader": {reader("rw"), writer("rw")},
		"writer, held by a writer": {writer("ww"), writer("ww")},
		"multi": {plain, func(c *rlock.Client) rlock.Locker {
			return rlock.NewMultiLock(c.NewLock("q"), c.NewLock("r"), c.NewLock("plain")) // waits for the plain one before it takes any
		}},
	}
	ways := map[string]func(rlock.Locker, context.Context, time.Duration) error{
		"TryDo": func(l rlock.Locker, ctx context.Context, _ time.Duration) error { return l.TryDo(ctx, nothing) },
		"DoFor": func(l rlock.Locker, ctx context.Context, bound time.Duration) error {
			return l.DoFor(ctx, bound, nothing)
		},
		"Do": func(l rlock.Locker, ctx context.Context, bound time.Duration) error {
			ctx, cancel := context.WithTimeout(ctx, bound)
			defer cancel()
			return l.Do(ctx, nothing)
		},
	}
	for kind, of := range kinds {
		held, hold := lock(t, t.Context(), of.held(here).(*rlock.Lock))
		mu, elsewhere := of.wanted(here), of.wanted(there)
		for way, try := range ways {
			t.Run(kind+"/"+way, func(t *testing.T) {
				for name, l := range map[string]rlock.Locker{"own client": mu, "another": elsewhere} {
					err := try(l, t.Context(), bound)
					for wait := 2 * bound; errors.Is(err, rlock.ErrUnavailable) && wait < time.Minute; wait *= 2 {
						err = try(l, t.Context(), wait) // a busy machine may be too slow for an answer in time
					}
					var refused *rlock.NotAcquiredError
					require.ErrorAs(t, err, &refused, name)
					require.Equal(t, hold.Owner(), refused.Holder, name)
					require.Equal(t, name == "own client", refused.Local, name)
					require.Positive(t, refused.TTL, name)
					require.Contains(t, err.Error(), hold.Owner(), name)
					require.Equal(t, refused.Local, strings.Contains(err.Error(), "another call of this client"), name)
					require.NotContains(t, err.Error(), "use the context", "an ordinary conflict accuses nobody")
				}
			})
		}
		require.NoError(t, hold.Unlock(held))
	}
}

// endsAfter is a context that is over, for whoever asks, as soon as over says so.
type endsAfter struct {
	context.Context
	over func() bool
}

func (c endsAfter) Err() error {
	if c.over() {
		return context.Canceled
	}
	return nil
}

// The time of a call for several locks may be over when one of them was refused, and the
// others are to be taken. It says who has the one, and not that it has not got the others.
func TestRefusalOfAMultiLockNamesTheMember(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, nil)
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("c"))
	learning, learned := lock(t, t.Context(), rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"))) // the server has the script, so that each request is one command
	require.NoError(t, learned.Unlock(learning))
	executed := func() int64 { calls := srv.CommandCalls(t); return calls["evalsha"] + calls["eval"] }
	before := executed()
	ctx := endsAfter{t.Context(), func() bool { return executed() > before }}
	_, _, err := rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"), c.NewLock("c")).Lock(ctx)
	var refused *rlock.NotAcquiredError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "c", refused.Name)
	require.Equal(t, hold.Owner(), refused.Holder)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, hold.Unlock(held))
}

// Anybody may have put an owner on the server: it forges no line of a log.
func TestOwnersAreShownAsTheyAre(t *testing.T) {
	for owner, want := range map[string]string{
		"c1:7":                      "held by c1:7",
		"8743c9c0-0795-4907-87fd:1": "held by 8743c9c0-0795-4907-87fd:1",
		"\x1b[31mx\nERROR:1":        `held by "\x1b[31mx\nERROR:1"`,
		"a\xff:1":                   `held by "a\xff:1"`,
	} {
		require.Contains(t, (&rlock.NotAcquiredError{Name: "a", Holder: owner, TTL: time.Second}).Error(), want)
	}
	srv := newServer(t)
	require.NoError(t, srv.Client(t).HSet(t.Context(), "a", "\x1b]0;x\a\nforged", "b").Err())
	_, _, err := newClient(t, srv, nil).NewLock("a").TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrKeyConflict)
	require.ErrorContains(t, err, `hash with the field "\x1b]0;x\a\nforged"`)
}

// A context that owns the lock by another client is no owner here: the error says so.
func TestBusyByAnotherClientOfTheContext(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mine, other := newClient(t, srv, nil).NewLock("a"), newClient(t, srv, nil).NewLock("a")
	held, hold := lock(t, t.Context(), mine)
	const text = "the context of this call owns by another client"
	require.ErrorContains(t, other.TryDo(held, nothing), text)
	err := other.DoFor(held, 50*time.Millisecond, nothing)
	require.ErrorContains(t, err, text)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, other.TryDo(t.Context(), nothing).Error(), text)
	require.NoError(t, hold.Unlock(held))
}

// The context of an unlocked hold names its lock, also where another lock is wanted.
func TestUnlockedNamesTheLock(t *testing.T) {
	t.Parallel()
	c := newClient(t, newServer(t), nil)
	held, hold := lock(t, t.Context(), c.NewLock("x"))
	require.NoError(t, hold.Unlock(held))
	err := c.NewLock("y").Do(held, nothing)
	require.ErrorIs(t, err, rlock.ErrUnlocked)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualError(t, err, `rlock: lock "y": not acquired: context canceled: rlock: lock "x" was unlocked: go on with the context that was passed to Lock`)
}

// A wait of zero is one attempt, as it is for a guard.
func TestNoWaitIsOneAttempt(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a")
	for _, wait := range []time.Duration{0, -time.Second} {
		require.NoError(t, mu.DoFor(t.Context(), wait, nothing))
	}
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
	require.ErrorIs(t, mu.DoFor(t.Context(), 0, nothing), rlock.ErrNotAcquired)
	require.NoError(t, hold.Unlock(held))
}

// A reader that is kept out by a writer who waits is not told of a lease that nobody has.
func TestBusyBecauseAWriterWaits(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rw := newClient(t, srv, nil).NewRWLock("a")
	held, hold := lock(t, t.Context(), rw.Reader())
	wait, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- newClient(t, srv, nil).NewRWLock("a").Writer().Do(wait, nothing) }()
	require.Eventually(t, func() bool { return srv.Client(t).Exists(t.Context(), "rlock_rwqueue:{a}").Val() == 1 }, 10*time.Second, time.Millisecond)
	reader := newClient(t, srv, nil).NewRWLock("a").Reader()
	for _, err := range []error{reader.TryDo(t.Context(), nothing), reader.DoFor(t.Context(), time.Second, nothing)} {
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.ErrorContains(t, err, "not acquired: a writer waits for it")
		require.NotContains(t, err.Error(), "lease")
	}
	cancel()
	require.ErrorIs(t, <-done, rlock.ErrNotAcquired)
	require.NoError(t, hold.Unlock(held))
}

// Two clients of one server would wait for each other, whatever connections they have.
func TestMultiLockOfTwoConnectionsToOneServer(t *testing.T) {
	t.Parallel()
	srv, other := newServer(t), newServer(t)
	a, b := newClient(t, srv, nil), newClient(t, srv, nil)
	require.ErrorIs(t, rlock.NewMultiLock(a.NewLock("a"), b.NewLock("a")).DoFor(t.Context(), 100*time.Millisecond, nothing), rlock.ErrInvalidOption)
	require.NoError(t, rlock.NewMultiLock(a.NewLock("a"), b.NewLock("b")).Do(t.Context(), nothing))
	require.NoError(t, rlock.NewMultiLock(a.NewLock("a"), newClient(t, other, nil).NewLock("a")).Do(t.Context(), nothing))
}

// crossSlots counts commands that were refused because of the slots of their keys.
type crossSlots struct{ refused int }

func (*crossSlots) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *crossSlots) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		c.count(err)
		return err
	}
}

func (c *crossSlots) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			c.count(cmd.Err())
		}
		return err
	}
}

func (c *crossSlots) count(err error) {
	if err != nil && redis.HasErrorPrefix(err, "CROSSSLOT") {
		c.refused++
	}
}

// A server, or a proxy before a cluster, may look at slots though its client is one of a single
// server. Members are then taken one by one, and that is found out once.
func TestMultiLockWhereSlotsAreLookedAt(t *testing.T) {
	t.Parallel()
	rdb := redistest.StartCluster(t, 1, 0).Nodes[0].Client(t)
	hook := new(crossSlots)
	rdb.AddHook(hook)
	c := clientOn(t, rdb, nil)
	for range 3 {
		require.NoError(t, rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"), c.NewLock("c")).Do(t.Context(), nothing))
		require.NoError(t, rlock.NewMultiLock(c.NewLock("d"), c.NewLock("e")).TryDo(t.Context(), nothing))
	}
	require.Positive(t, hook.refused)
	require.LessOrEqual(t, hook.refused, 2, "once by the hash of the script, once by its source")
}

// A database that merges hashes field by field puts two holders side by side: both lose.
func TestMergedHolders(t *testing.T) {
	t.Parallel()
	opts := &rlock.Options{LeaseTime: 2 * time.Second}
	servers := []*redistest.Server{newServer(t), newServer(t)}
	var all []context.Context
	var holds []*rlock.Hold
	for _, srv := range servers {
		held, hold := lock(t, t.Context(), newClient(t, srv, opts).NewLock("a"))
		all, holds = append(all, held), append(holds, hold)
	}
	for i, srv := range servers {
		require.NoError(t, srv.Client(t).HSet(t.Context(), "a", holds[1-i].Owner(), 1).Err())
	}
	for i, held := range all {
		require.ErrorIs(t, over(t, held, 10*time.Second), rlock.ErrLeaseLost)
		require.ErrorIs(t, holds[i].Unlock(t.Context()), rlock.ErrLeaseLost)
	}
}
