package rlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// What begins before Close is waited for, by every Close that waits; what begins after it is
// refused, and keeps nobody.
func TestFakeTimeLifetimeWaitsForWhatHasBegun(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, _ := newFake(t)
		began := time.Now()
		require.NoError(t, c.begin())
		require.NoError(t, c.server.Closed())
		c.background(func() { time.Sleep(time.Second) })
		time.AfterFunc(2*time.Second, c.done)
		ended := make(chan error, 2)
		for range cap(ended) {
			go func() { ended <- c.Close(t.Context()) }()
		}
		synctest.Wait()
		require.Equal(t, ErrClosed, c.begin())
		require.Equal(t, ErrClosed, c.server.Closed())
		for range cap(ended) {
			require.NoError(t, <-ended)
		}
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

// A context that has ended leaves what ends by itself a moment, and nothing else.
func TestFakeTimeLifetimeHasAGrace(t *testing.T) {
	for name, tt := range map[string]struct {
		lasts, took time.Duration
		want        error
	}{
		"nothing is under way": {0, 0, nil},
		"it ends by itself":    {closeGrace - 1, closeGrace - 1, nil},
		"it does not":          {time.Second, closeGrace, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c, _, _ := newFake(t)
				if tt.lasts > 0 {
					c.background(func() { time.Sleep(tt.lasts) })
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				began := time.Now()
				require.ErrorIs(t, c.wait(ctx), tt.want)
				require.Equal(t, tt.took, time.Since(began))
			})
		})
	}
}

// A pause ends with the context of who makes it, and when the client closes.
func TestFakeTimeLifetimeSleeps(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, _ := newFake(t)
		began := time.Now()
		require.True(t, c.sleep(t.Context(), time.Second))
		require.False(t, c.sleep(within(t, time.Second), time.Minute))
		require.Equal(t, 2*time.Second, time.Since(began))
		time.AfterFunc(time.Second, func() { _ = c.Close(context.Background()) })
		require.False(t, c.sleep(t.Context(), time.Minute))
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}
