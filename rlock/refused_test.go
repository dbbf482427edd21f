package rlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

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
	type of = func(*rlock.Client) *rlock.Lock
	plain := func(c *rlock.Client) *rlock.Lock { return c.NewLock("plain") }
	fenced := func(c *rlock.Client) *rlock.Lock { return c.NewLock("fenced", rlock.WithFencing()) }
	fair := func(c *rlock.Client) *rlock.Lock { return c.NewFairLock("fair") }
	polling := func(c *rlock.Client) *rlock.Lock { return c.NewLock("polling", rlock.WithPolling(rlock.Polling{})) }
	reader := func(c *rlock.Client) *rlock.Lock { return c.NewRWLock("rw").Reader() }
	writer := func(c *rlock.Client) *rlock.Lock { return c.NewRWLock("rw").Writer() }
	kinds := map[string]struct{ held, wanted of }{
		"plain":                    {plain, plain},
		"fenced":                   {fenced, fenced},
		"fair":                     {fair, fair},
		"polling":                  {polling, polling},
		"reader, held by a writer": {writer, reader},
		"writer, held by a reader": {reader, writer},
		"writer, held by a writer": {writer, writer},
		"multi": {plain, func(c *rlock.Client) *rlock.Lock {
			return rlock.NewMultiLock(c.NewLock("q"), c.NewLock("r"), plain(c)) // waits for the plain one before it takes any
		}},
	}
	ways := map[string]func(*rlock.Lock, context.Context, time.Duration) error{
		"TryLock": func(l *rlock.Lock, ctx context.Context, _ time.Duration) error {
			_, _, err := l.TryLock(ctx)
			return err
		},
		"TryLockFor": func(l *rlock.Lock, ctx context.Context, bound time.Duration) error {
			_, _, err := l.TryLockFor(ctx, bound)
			return err
		},
		"Lock": func(l *rlock.Lock, ctx context.Context, bound time.Duration) error {
			ctx, cancel := context.WithTimeout(ctx, bound)
			defer cancel()
			_, _, err := l.Lock(ctx)
			return err
		},
	}
	for kind, of := range kinds {
		held, hold := lock(t, t.Context(), of.held(here))
		mu, elsewhere := of.wanted(here), of.wanted(there)
		for way, try := range ways {
			t.Run(kind+"/"+way, func(t *testing.T) {
				for name, l := range map[string]*rlock.Lock{"own client": mu, "another": elsewhere} {
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
					require.Equal(t, refused.Local, strings.Contains(err.Error(), "use the context that"), name)
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

// A call that locks a held lock again, under a context that does not own it, waits for
// its own caller. That is logged once.
func TestFakeTimeWaitingForOneself(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		log := new(logBuffer)
		mu := f.client(t, &rlock.Options{Logger: log.logger()}).NewLock("a")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		err := mu.Do(ctx, func(held context.Context) error {
			const patience = 20 * time.Second
			_, _, err := mu.TryLockFor(ctx, patience)
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			require.NotContains(t, log.String(), "waits for itself", "less than a lease is no sign of it")
			for range 2 {
				_, _, err = mu.TryLockFor(ctx, 45*time.Second)
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
			}
			require.Equal(t, 1, strings.Count(log.String(), "waits for itself"))
			require.Contains(t, log.String(), mu.Owner(held))
			return mu.Do(held, func(context.Context) error { return nil })
		})
		require.NoError(t, err)
	})
}

// What a context owns can be asked of it, without a request.
func TestTokenAndOwnerOfAContext(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	mu := c.NewLock("a", rlock.WithFencing())
	require.Zero(t, mu.Token(t.Context()))
	require.Empty(t, mu.Owner(t.Context()))
	held, hold := lock(t, t.Context(), mu)
	names := sent(t, srv, func() {
		require.Equal(t, hold.Token(), mu.Token(held))
		require.Positive(t, mu.Token(held))
		require.Equal(t, hold.Owner(), mu.Owner(held))
		require.Equal(t, hold.Token(), c.NewLock("a").Token(held), "the same lock")
		require.Zero(t, c.NewLock("b").Token(held))
		require.Zero(t, mu.Token(rlock.Detach(held)))
		multi := rlock.NewMultiLock(mu, c.NewLock("b"))
		require.Zero(t, multi.Token(held))
		require.Empty(t, multi.Owner(held))
	})
	require.Empty(t, names)
	require.NoError(t, hold.Unlock(held))
	require.Zero(t, mu.Token(held))
	require.Empty(t, mu.Owner(held))
	require.Zero(t, c.NewLock("").Token(held), "an invalid lock")
}

// The bounded forms of Do bound the wait, and not the work.
func TestDoForAndTryDo(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu, other := newClient(t, srv, nil).NewLock("a"), newClient(t, srv, nil).NewLock("a")
	errWork := errors.New("work")
	work := func(ctx context.Context) error {
		_, bounded := ctx.Deadline()
		require.False(t, bounded)
		require.Equal(t, 1, mu.HoldCount(ctx))
		return errWork
	}
	require.Equal(t, errWork, mu.DoFor(t.Context(), time.Minute, work))
	require.Equal(t, errWork, mu.TryDo(t.Context(), work))
	require.Zero(t, holds(t, rdb, "a"))

	held, hold := lock(t, t.Context(), other)
	never := func(context.Context) error { t.Error("it ran"); return nil }
	require.ErrorIs(t, mu.DoFor(t.Context(), 10*time.Millisecond, never), context.DeadlineExceeded)
	require.ErrorIs(t, mu.TryDo(t.Context(), never), rlock.ErrNotAcquired)
	require.NoError(t, hold.Unlock(held))
}

func TestGuardDo(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	errWork := errors.New("work")
	lockFor := func(name string) *rlock.Lock { return c.NewLock(name) }
	ship := rlock.GuardDo(lockFor, func(ctx context.Context, name string) error {
		require.Equal(t, 1, c.NewLock(name).HoldCount(ctx))
		return errWork
	}, rlock.WithWait(0))
	require.Equal(t, errWork, ship(t.Context(), "a"))
	held, hold := lock(t, t.Context(), c.NewLock("a"))
	require.ErrorIs(t, ship(t.Context(), "a"), rlock.ErrNotAcquired)
	require.NoError(t, hold.Unlock(held))
}

// Close succeeds under a context that has ended, if nothing is held: a server that ends
// because of a signal often has no other context.
func TestCloseWithAnEndedContext(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	for name, use := range map[string]func(*rlock.Client){
		"never used": func(*rlock.Client) {},
		"unlocked": func(c *rlock.Client) {
			held, hold := lock(t, t.Context(), c.NewLock("a"))
			require.NoError(t, hold.Unlock(held))
		},
		"has listened": func(c *rlock.Client) {
			held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("b"))
			_, _, err := c.NewLock("b").TryLockFor(t.Context(), time.Second)
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			require.NoError(t, hold.Unlock(held))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := rlock.New(srv.Client(t), nil)
			require.NoError(t, err)
			use(c)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			redistest.Eventually(t, "nothing is under way, and Close succeeds", func() bool { return c.Close(ctx) == nil })
		})
	}
	t.Run("held", func(t *testing.T) {
		c, err := rlock.New(srv.Client(t), nil)
		require.NoError(t, err)
		held, hold := lock(t, t.Context(), c.NewLock("a"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, c.Close(ctx), context.Canceled)
		_ = hold.Unlock(held)
		require.NoError(t, closeSoon(c))
	})
}
