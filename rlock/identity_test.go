package rlock_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// A client writes no record as long as its holds are short and it does not wait. An
// anonymous client never writes one.
func TestNoRecord(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	quick := newClient(t, srv, nil).NewLock("quick")
	renewed := make(chan struct{}, 100)
	hidden := newClient(t, srv, &rlock.Options{
		LeaseTime: 10 * time.Second, Identity: rlock.Anonymous(),
		Trace: rlock.Trace{Renewed: func(rlock.Renewal) { renewed <- struct{}{} }},
	})
	_, hold := lock(t, t.Context(), hidden.NewLock("a"))
	waiting := lockAsync(t.Context(), hidden.NewLock("a"))
	m := srv.Monitor(t)
	for began := time.Now(); len(renewed) < 2; { // others tell of a hold and a wait like that
		require.Less(t, time.Since(began), time.Minute, "two renewals")
		require.NoError(t, quick.Do(t.Context(), func(context.Context) error { return nil }))
		time.Sleep(5 * time.Millisecond) // the monitor keeps every command
	}
	for _, c := range m.Commands() {
		require.False(t, slices.ContainsFunc(c.Args, isRecord), "%v", c.Args)
	}
	require.NoError(t, hold.Unlock(t.Context()))
	await(t, waiting, 10*time.Second)
}

// A purpose is shown and has no other effect: locks of one name are one lock, whatever
// their purposes are.
func TestPurposeChangesNothing(t *testing.T) {
	c := newClient(t, newServer(t), nil)
	for _, purpose := range []string{"", strings.Repeat("x", 1<<20), "\xff\x1b[2J\n"} {
		held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithPurpose(purpose)))
		_, nested := lock(t, held, c.NewLock("a", rlock.WithPurpose("other")))
		require.Equal(t, hold.Owner(), nested.Owner())
		require.NoError(t, nested.Unlock(held))
		require.NoError(t, hold.Unlock(held))
	}
}
