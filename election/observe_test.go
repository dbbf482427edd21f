package election_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
)

// observe runs Observe until the test ends, and returns what it yields.
func observe(t *testing.T, e *election.Election) (leaders <-chan election.Leader, errs <-chan error) {
	ctx, cancel := context.WithCancel(t.Context())
	got, failed, done := make(chan election.Leader, 1000), make(chan error, 1000), make(chan struct{})
	go func() {
		defer close(done)
		for l, err := range e.Observe(ctx) {
			if err != nil {
				failed <- err
			} else {
				got <- l
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return got, failed
}

func next(t *testing.T, leaders <-chan election.Leader) election.Leader {
	t.Helper()
	select {
	case l := <-leaders:
		return l
	case <-time.After(30 * time.Second):
		t.Fatal("nothing observed")
	}
	panic("unreachable")
}

func TestObserve(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	e := election.New(newLocks(t, srv.Addr(), lease), "e", "a")
	leaders, _ := observe(t, election.New(newLocks(t, srv.Addr(), lease), "e", ""))
	require.Zero(t, next(t, leaders), "nobody leads")
	held, term := campaign(t, t.Context(), e)
	l := next(t, leaders)
	require.Equal(t, "a", l.Value)
	require.Equal(t, term.Number(), l.Term)
	require.NoError(t, term.Proclaim(held, "b"))
	require.Equal(t, "b", next(t, leaders).Value)
	require.NoError(t, term.Resign(held))
	require.Zero(t, next(t, leaders))

	// An answer of an earlier term, as of a former master, is not shown.
	held, term = campaign(t, t.Context(), e)
	require.Equal(t, term.Number(), next(t, leaders).Term)
	rdb := srv.Client(t)
	former := rdb.HGet(t.Context(), companion.Key("e"), "term").Val()
	require.NoError(t, rdb.HSet(t.Context(), companion.Key("e"), "term", 7, "value", "former").Err())
	channel := "rlock_channel:{e}:companion"
	require.EqualValues(t, 1, rdb.Publish(t.Context(), channel, "7").Val(), "the observer looks")
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, rdb.HSet(t.Context(), companion.Key("e"), "term", former, "value", "new").Err())
	require.Equal(t, "new", next(t, leaders).Value)
	require.NoError(t, term.Resign(held))
	require.Zero(t, next(t, leaders))

	// A loop may end at any time.
	for range e.Observe(t.Context()) {
		break
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range e.Observe(over) {
		t.Error("the context has ended")
	}
}

// A leader that dies says nothing, and neither does somebody who deletes the lock.
func TestObserveDeath(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	journal := filepath.Join(t.TempDir(), "journal")
	leaders, _ := observe(t, election.New(newLocks(t, srv.Addr(), lease), "e", ""))
	require.Zero(t, next(t, leaders))
	leader := redistest.Spawn(t, "candidate", srv.Addr(), journal, "0s", "0s")
	require.NotZero(t, next(t, leaders))
	killed := time.Now()
	leader.Kill()
	require.Zero(t, next(t, leaders))
	took := time.Since(killed)
	t.Logf("the death of a leader was known after %v, with a lease of %v", took, lease)
	require.Less(t, took, lease+5*time.Second)
}

// Redis is away for a while: the observer learns that it does not know the leader, and then knows again.
func TestObserveWithoutRedis(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "a request may take 5 s")
	srv := redistest.Start(t)
	proxy := netfault.New(t, srv.Addr())
	held, term := campaign(t, t.Context(), election.New(newLocks(t, srv.Addr(), lease), "e", "a"))
	leaders, errs := observe(t, election.New(newLocks(t, proxy.Addr(), lease), "e", ""))
	require.Equal(t, "a", next(t, leaders).Value)
	proxy.Refuse(true)
	proxy.CutAll()
	<-errs
	require.NoError(t, term.Proclaim(held, "b"))
	proxy.Heal()
	require.Equal(t, "b", next(t, leaders).Value)
	require.NoError(t, term.Resign(held))
}
