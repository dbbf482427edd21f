package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// The second head of a queue finds a live subscription and a holder of its own
// client, and sleeps without a try. A release that the holder does not know of
// must wake it all the same.
func TestForcedUnlockWakesBehindOwnHolder(t *testing.T) {
	srv := newServer(t)
	waiting := make(chan struct{}, 10)
	trace := rlock.Trace{Waiting: func(string, time.Duration) { waiting <- struct{}{} }}
	c := newClient(t, srv, &rlock.Options{LeaseTime: time.Hour, Trace: trace})
	mu := c.NewLock("a")
	held, hold := lock(t, t.Context(), mu)

	first, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, _, err := mu.Lock(first)
		left <- err
	}()
	for range 2 { // before and after the subscription is confirmed
		<-waiting
	}
	served := make(chan error)
	go func() { served <- mu.Do(t.Context(), func(context.Context) error { return nil }) }()
	leave()
	require.ErrorIs(t, <-left, rlock.ErrNotAcquired)
	<-waiting

	removed, err := newClient(t, srv, nil).NewLock("a").ForceUnlock(t.Context())
	require.NoError(t, err)
	require.True(t, removed)
	select {
	case err := <-served:
		require.NoError(t, err)
	case <-time.After(5 * time.Second):
		t.Fatal("the waiter sleeps although the lock is free")
	}
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
}
