package once_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/once"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// While Redis does not answer, a run ends after the time for the unlock and that for the message to the waiters.
func TestAbandonWithoutAnswer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		run, _, err := once.New(server.Locks(nil), once.Options{}).Begin(t.Context(), "x", "")
		require.NoError(t, err)
		server.Hang()
		began := time.Now()
		require.ErrorIs(t, run.Abandon(t.Context()), rlock.ErrUnavailable)
		require.Equal(t, rlock.DefaultUnlockTimeout+time.Second, time.Since(began))
		server.Heal()
	})
}
