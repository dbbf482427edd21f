package rlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	reader := func(c *rlock.Client) rlock.Locker { return c.NewRWLock("rw").Reader() }
	writer := func(c *rlock.Client) rlock.Locker { return c.NewRWLock("rw").Writer() }
	kinds := map[string]struct{ held, wanted of }{
		"plain":                    {plain, plain},
		"fenced":                   {fenced, fenced},
		"fair":                     {fair, fair},
		"polling":                  {polling, polling},
		"reader, held by a writer": {writer, reader},
		"writer, held by a reader": {reader, writer},
		"writer, held by a writer": {writer, writer},
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
