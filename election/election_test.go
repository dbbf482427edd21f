package election_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

const lease = 2 * time.Second

func TestTerm(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	ctx := t.Context()
	a := election.New(newLocks(t, srv.Addr(), lease), "e", "a")
	b := election.New(newLocks(t, srv.Addr(), lease), "e", "b")
	for _, e := range []*election.Election{a, b} {
		_, err := e.Leader(ctx)
		require.ErrorIs(t, err, election.ErrNoLeader)
		require.ErrorContains(t, err, `election "e"`)
		require.ErrorIs(t, e.IsLeader(ctx), election.ErrNotLeader)
	}
	held, term := campaign(t, ctx, a)
	require.NoError(t, a.IsLeader(ctx))
	require.ErrorIs(t, b.IsLeader(ctx), election.ErrNotLeader)
	leader, err := b.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, "a", leader.Value)
	require.Equal(t, term.Number(), leader.Term)
	require.Positive(t, time.Until(term.Until()))

	require.NoError(t, term.Proclaim(held, "another"))
	leader, err = b.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, "another", leader.Value)

	_, _, err = a.Campaign(held)
	require.ErrorIs(t, err, rlock.ErrInvalidOption, "a context that leads would nest")

	_, joined, err := newLocks(t, srv.Addr(), lease).NewLock("e", rlock.WithFencing()).Join(ctx, term.Proof())
	require.NoError(t, err)
	require.Equal(t, term.Number(), joined.Token())
	require.NoError(t, joined.Unlock(ctx))

	require.NoError(t, term.Resign(held))
	require.ErrorIs(t, a.IsLeader(ctx), election.ErrNotLeader)
	require.ErrorIs(t, term.Resign(held), rlock.ErrNotHeld)
	require.ErrorIs(t, term.Proclaim(ctx, "late"), rlock.ErrNotHeld)
	_, err = b.Leader(ctx)
	require.ErrorIs(t, err, election.ErrNoLeader)
	_, next := campaign(t, ctx, b)
	require.Greater(t, next.Number(), term.Number())
	var none context.Context
	require.NoError(t, next.Resign(none))
	require.ErrorIs(t, b.IsLeader(ctx), election.ErrNotLeader)
	require.Zero(t, srv.Client(t).Exists(ctx, "e").Val(), "the lock is free")
}

// What a process sends for each call, when the server knows the scripts.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	e := election.New(newLocks(t, srv.Addr(), time.Minute), "e", "a")
	held, term := campaign(t, t.Context(), e)
	_, err := e.Leader(held)
	require.NoError(t, err)
	require.NoError(t, term.Resign(held))
	m := srv.Monitor(t)
	sent := func(f func()) (n int) {
		m.Commands()
		f()
		for _, c := range m.Commands() {
			if c.Client != "lua" && !strings.Contains(strings.Join(c.Args, " "), "rlock_client") {
				n++
			}
		}
		return n
	}
	require.Equal(t, 2, sent(func() { held, term = campaign(t, t.Context(), e) }), "Campaign")
	require.Equal(t, 1, sent(func() { require.NoError(t, term.Proclaim(held, "b")) }), "Proclaim")
	require.Equal(t, 1, sent(func() {
		_, err := e.Leader(held)
		require.NoError(t, err)
	}), "Leader")
	require.Equal(t, 0, sent(func() { require.NoError(t, e.IsLeader(held)) }), "IsLeader")
	require.Equal(t, 2, sent(func() { require.NoError(t, term.Resign(held)) }), "Resign")
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks := newLocks(t, srv.Addr(), lease)
	for what, e := range map[string]*election.Election{
		"a lock name":             election.New(locks, "", "a"),
		"a value of 65537 bytes":  election.New(locks, "e", strings.Repeat("x", 64<<10+1)),
		"a takeover delay of -1s": election.New(locks, "e", "a", election.WithTakeoverDelay(-time.Second)),
		"lease":                   election.New(locks, "e", "a", election.WithLease(-time.Second)),
		"replicas":                election.New(locks, "e", "a", election.WithReplicas(-1, time.Second)),
		"an option is nil":        election.New(locks, "e", "a", nil),
	} {
		for name, call := range map[string]func() error{
			"Run": func() error {
				return e.Run(t.Context(), func(context.Context, *election.Term) error { return errors.New("called") })
			},
			"Campaign": func() error { _, _, err := e.Campaign(t.Context()); return err },
			"Leader":   func() error { _, err := e.Leader(t.Context()); return err },
			"Observe": func() (err error) {
				for _, err = range e.Observe(t.Context()) {
				}
				return err
			},
		} {
			err := call()
			require.ErrorIs(t, err, rlock.ErrInvalidOption, "%s: %s", what, name)
			t.Log(err)
		}
	}
	require.Zero(t, srv.CommandCalls(t)["evalsha"], "nothing was sent")

	e := election.New(locks, "e", strings.Repeat("x", 64<<10))
	held, term := campaign(t, t.Context(), e)
	err := term.Proclaim(held, strings.Repeat("y", 64<<10+1))
	require.ErrorIs(t, err, rlock.ErrInvalidOption)
	leader, err := e.Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("x", 64<<10), leader.Value)
	require.NoError(t, term.Resign(held))
}

// Names with braces have companions of their own, and binary values arrive as they are.
func TestNames(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks := newLocks(t, srv.Addr(), lease)
	for _, name := range []string{"a", "{a}", "{a}:", "b{a}", "with space", "\x00\xff"} {
		e := election.New(locks, name, "\x00\xff of "+name)
		held, term := campaign(t, t.Context(), e)
		defer func() { require.NoError(t, term.Resign(held)) }()
		leader, err := e.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, "\x00\xff of "+name, leader.Value)
		require.Equal(t, term.Number(), leader.Term)
	}
}

// Other data next to the lock, of another package or an application, is left as it is.
func TestKeyConflict(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	locks := newLocks(t, srv.Addr(), lease)
	require.NoError(t, rdb.Set(t.Context(), companion.Key("string"), "x", 0).Err())
	require.NoError(t, rdb.HSet(t.Context(), companion.Key("job"), "is", "job", "owner", "x").Err())
	for _, name := range []string{"string", "job"} {
		before := rdb.Dump(t.Context(), companion.Key(name)).Val()
		e := election.New(locks, name, "a")
		_, _, err := e.Campaign(t.Context())
		require.ErrorIs(t, err, rlock.ErrKeyConflict)
		_, err = e.Leader(t.Context())
		require.ErrorIs(t, err, rlock.ErrKeyConflict)
		err = e.Run(t.Context(), func(context.Context, *election.Term) error { return errors.New("called") })
		require.ErrorIs(t, err, rlock.ErrKeyConflict, "Run does not wait for another name")
		n := 0
		for _, err = range e.Observe(t.Context()) {
			n++
			require.ErrorIs(t, err, rlock.ErrKeyConflict)
		}
		require.Equal(t, 1, n)
		require.Equal(t, before, rdb.Dump(t.Context(), companion.Key(name)).Val())
		require.Zero(t, rdb.Exists(t.Context(), name).Val(), "no candidate is left behind")
	}
	require.NoError(t, rdb.Set(t.Context(), "taken", "x", 0).Err())
	_, err := election.New(locks, "taken", "a").Leader(t.Context())
	require.ErrorIs(t, err, election.ErrNoLeader, "of a key that is no lock")
}

// Run ends with what fn returns while it leads, and waits for fn after a loss.
func TestRun(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	e := election.New(newLocks(t, srv.Addr(), lease), "e", "a")

	require.NoError(t, e.Run(ctx, func(ctx context.Context, term *election.Term) error {
		require.NoError(t, e.IsLeader(ctx))
		require.NotEmpty(t, rdb.HGetAll(ctx, "e").Val()[e2owner(t, e)])
		return nil
	}))
	require.Zero(t, rdb.Exists(ctx, "e").Val())
	failed := errors.New("the work failed")
	require.Equal(t, failed, e.Run(ctx, func(context.Context, *election.Term) error { return failed }))

	// The lock is deleted. The first fn goes on for a while after the end of its context, and the second begins
	// only when the first has returned.
	for _, returns := range []func(context.Context) error{
		func(context.Context) error { return nil },
		func(ctx context.Context) error { return ctx.Err() },
		context.Cause,
	} {
		var working atomic.Int32
		var terms []int64
		require.NoError(t, e.Run(ctx, func(ctx context.Context, term *election.Term) error {
			require.EqualValues(t, 1, working.Add(1))
			defer working.Add(-1)
			if terms = append(terms, term.Number()); len(terms) == 2 {
				return nil
			}
			require.NoError(t, rdb.Del(ctx, "e").Err())
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), rlock.ErrLeaseLost)
			require.ErrorIs(t, e.IsLeader(t.Context()), election.ErrNotLeader, "though it has not resigned")
			time.Sleep(300 * time.Millisecond)
			return returns(ctx)
		}))
		require.Len(t, terms, 2)
		require.Greater(t, terms[1], terms[0])
	}

	// Another error is not dropped, even after a loss.
	lose := func(ctx context.Context, err error) error {
		require.NoError(t, rdb.Del(ctx, "e").Err())
		<-ctx.Done()
		return err
	}
	err := e.Run(ctx, func(ctx context.Context, _ *election.Term) error { return lose(ctx, failed) })
	require.ErrorIs(t, err, failed)
	require.ErrorIs(t, err, rlock.ErrLeaseLost)

	// Work that has ended before the loss was known has not worked as a leader to the end.
	err = e.Run(ctx, func(ctx context.Context, _ *election.Term) error { return rdb.Del(ctx, "e").Err() })
	require.ErrorIs(t, err, rlock.ErrLeaseLost)

	require.PanicsWithValue(t, "the work panics", func() {
		_ = e.Run(ctx, func(context.Context, *election.Term) error { panic("the work panics") })
	})
	require.Zero(t, rdb.Exists(ctx, "e").Val(), "the lock is free")
	require.ErrorIs(t, e.IsLeader(ctx), election.ErrNotLeader)
}

// e2owner returns the owner that leads, as Redis has it.
func e2owner(t *testing.T, e *election.Election) string {
	l, err := e.Leader(t.Context())
	require.NoError(t, err)
	return l.Owner
}

// The end of the context of Run ends the work first, and then the leadership.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	e := election.New(newLocks(t, srv.Addr(), lease), "e", "a")
	ctx, cancel := context.WithCancel(t.Context())
	err := e.Run(ctx, func(ctx context.Context, term *election.Term) error {
		cancel()
		<-ctx.Done()
		time.Sleep(lease + 300*time.Millisecond) // renewed meanwhile
		require.EqualValues(t, 1, rdb.Exists(t.Context(), "e").Val(), "not released while fn runs")
		return ctx.Err()
	})
	require.Equal(t, context.Canceled, err)
	require.Zero(t, rdb.Exists(t.Context(), "e").Val())
	err = e.Run(ctx, func(context.Context, *election.Term) error { return errors.New("called") })
	require.ErrorIs(t, err, context.Canceled)

	// A candidate whose context ends while it waits.
	held, term := campaign(t, t.Context(), e)
	other := election.New(newLocks(t, srv.Addr(), lease), "e", "b")
	waits, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	err = other.Run(waits, func(context.Context, *election.Term) error { return errors.New("called") })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, term.Resign(held))
}

func TestClose(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, returns := range []func(context.Context) error{
		func(context.Context) error { return nil },
		func(ctx context.Context) error { return ctx.Err() },
	} {
		locks, err := rlock.New(srv.Client(t), nil)
		require.NoError(t, err)
		require.ErrorIs(t, election.New(locks, "short", "a").Run(t.Context(), func(ctx context.Context, _ *election.Term) error {
			go func() { _ = locks.Close(t.Context()) }()
			<-ctx.Done()
			return returns(ctx)
		}), rlock.ErrClosed)
		require.NoError(t, locks.Close(t.Context()))
		require.Zero(t, srv.Client(t).Exists(t.Context(), "short").Val(), "the leader has resigned")
	}
	locks, err := rlock.New(srv.Client(t), nil)
	require.NoError(t, err)
	e := election.New(locks, "e", "a")
	leads, done, observed := make(chan struct{}), make(chan error), make(chan error)
	go func() {
		done <- e.Run(t.Context(), func(ctx context.Context, _ *election.Term) error {
			close(leads)
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	<-leads
	seen := make(chan struct{}, 10)
	go func() {
		var last error
		for _, last = range e.Observe(t.Context()) {
			seen <- struct{}{}
		}
		observed <- last
	}()
	<-seen
	require.NoError(t, locks.Close(t.Context()))
	require.ErrorIs(t, <-done, rlock.ErrClosed)
	require.ErrorIs(t, <-observed, rlock.ErrClosed)
	_, _, err = e.Campaign(t.Context())
	require.ErrorIs(t, err, rlock.ErrClosed)
	require.ErrorIs(t, e.IsLeader(t.Context()), election.ErrNotLeader)
}

// A user without a right is an error at once. Run would wait forever for somebody to read it.
func TestRunWithoutRights(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	rdb := srv.Client(t)
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "default", "resetkeys", "~e", "~"+lua.QueueOf("e"), "~redisson_lock_token:{e}").Err())
	e := election.New(locksOn(t, rdb, &rlock.Options{Identity: rlock.Anonymous()}), "e", "a")
	err := e.Run(t.Context(), func(context.Context, *election.Term) error { return errors.New("called") })
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.ErrorIs(t, err, rlock.ErrRefused)
	require.ErrorContains(t, err, "NOPERM")
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "default", "allkeys").Err())
	require.Zero(t, admin.Exists(t.Context(), "e").Val(), "no candidate is left behind")
}

// An address at which no Redis server can be is an error at once too.
func TestRunAtNoAddress(t *testing.T) {
	t.Parallel()
	e := election.New(newLocks(t, "localhost:no-such-port", lease), "e", "a")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.ErrorIs(t, e.Run(ctx, func(context.Context, *election.Term) error { return errors.New("called") }), rlock.ErrRefused)
	require.NoError(t, ctx.Err())
}
