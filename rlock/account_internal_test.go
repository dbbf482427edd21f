package rlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// A grant is lost before its call is counted: the acquisition has an end nevertheless, and one only.
func TestFakeTimeLostBeforeItIsCounted(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, _ := newFake(t)
		call := l.starts(t.Context())
		g, err := call.acquire()
		require.NoError(t, err)
		held, hold, err := g.take(t.Context(), l, true)
		require.NoError(t, err)
		time.Sleep(time.Second)
		hold.grant.lose(errGone)
		require.NoError(t, call.ends(t.Context(), hold, nil))
		require.ErrorIs(t, hold.Unlock(held), ErrLeaseLost)
		s := c.Stats()
		require.EqualValues(t, 1, s.Kinds[0].Acquired())
		require.EqualValues(t, 1, s.Kinds[0].Lost)
		require.Zero(t, s.Kinds[0].Released)
		require.EqualValues(t, 1, s.Losses[LossGone])
		require.Equal(t, time.Second, s.Holds.Sum)
	})
}
