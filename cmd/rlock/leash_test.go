package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestLeash(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		held, lose := context.WithCancelCause(t.Context())
		until := time.Now().Add(10 * time.Second)
		l := leash{held: held, until: func() time.Time { return until }, grace: 3 * time.Second, margin: time.Second}

		require.NoError(t, l.lost())
		require.Equal(t, 6*time.Second, l.next())

		time.Sleep(5 * time.Second)
		until = until.Add(5 * time.Second) // renewed
		require.NoError(t, l.lost())
		require.Equal(t, 6*time.Second, l.next())

		time.Sleep(6 * time.Second) // a grace longer than what the held context leaves
		require.ErrorIs(t, l.lost(), errNotRenewed)
		require.Equal(t, 3*time.Second, left(l.killAt()))

		time.Sleep(time.Second) // KILL does not come later because TERM does
		require.Equal(t, 2*time.Second, left(l.killAt()))

		removed := errors.New("removed")
		lose(removed)
		require.Equal(t, removed, l.lost())
	})
}

// Timers stand still while the machine is suspended.
func TestSupervisorLooksAtTheClock(t *testing.T) {
	c := &command{leash: leash{held: t.Context(), until: func() time.Time { return time.Now().Add(time.Hour) }}}
	require.LessOrEqual(t, c.next(), maxNap, "when the lease ends")
	c.killAt = time.Now().Add(time.Hour)
	require.LessOrEqual(t, c.next(), maxNap, "when KILL is due")
}

func TestLeftCountsByTheClockThatIsFurtherOn(t *testing.T) {
	now := time.Now()
	require.InDelta(t, time.Hour, left(now.Add(time.Hour)), float64(time.Minute))
	suspended := now.Round(0).Add(-time.Hour) // no monotonic reading: the wall clock alone
	require.Less(t, left(suspended), -50*time.Minute)
}
