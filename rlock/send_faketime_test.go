package rlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// On a server that says nothing, or whose answers are lost, a call returns at the end of
// its context: to the instant, whatever it was doing.
func TestFakeTimeCallsLeaveASilentServer(t *testing.T) {
	const patience = 700 * time.Millisecond
	calls := map[string]func(ctx, held context.Context, c *rlock.Client) error{
		"lock": func(ctx, _ context.Context, c *rlock.Client) error {
			return errOf(c.NewLock("b").Lock(ctx))
		},
		"lock for": func(_, _ context.Context, c *rlock.Client) error {
			return errOf(c.NewLock("b").TryLockFor(context.Background(), patience))
		},
		"trylock": func(ctx, _ context.Context, c *rlock.Client) error {
			return errOf(c.NewLock("b").TryLock(ctx))
		},
		"do": func(ctx, _ context.Context, c *rlock.Client) error {
			return c.NewLock("b").Do(ctx, func(context.Context) error { return nil })
		},
		"nested": func(_, held context.Context, c *rlock.Client) error {
			return errOf(c.NewLock("a").TryLockFor(held, patience))
		},
		"behind its own client": func(ctx, _ context.Context, c *rlock.Client) error {
			return errOf(c.NewLock("a").Lock(ctx))
		},
		"fair": func(ctx, _ context.Context, c *rlock.Client) error {
			return errOf(c.NewFairLock("b").Lock(ctx))
		},
		"reader": func(ctx, _ context.Context, c *rlock.Client) error {
			return errOf(c.NewRWLock("b").Reader().Lock(ctx))
		},
		"multi": func(ctx, _ context.Context, c *rlock.Client) error {
			return errOf(rlock.NewMultiLock(c.NewLock("b"), c.NewLock("c")).Lock(ctx))
		},
	}
	for name, call := range calls {
		for _, lost := range []string{"requests", "answers"} {
			t.Run(name+", "+lost+" are lost", func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					f := newFakeRedis(t)
					c := f.client(t, nil)
					held, hold := lock(t, t.Context(), c.NewLock("a"))
					silent := &f.deafUp
					if lost == "answers" {
						silent = &f.deafDown
					}
					silent.Store(true)
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					err := call(ctx, held, c)
					require.Equal(t, patience, time.Since(began))
					require.ErrorIs(t, err, context.DeadlineExceeded)
					silent.Store(false)
					require.NoError(t, hold.Unlock(held))
					time.Sleep(40 * time.Second) // a lease, and what is released late
					synctest.Wait()
					require.Empty(t, f.Keys())
				})
			})
		}
	}
}

// errOf is the error of a call that returns a hold as well.
func errOf[H any](_ context.Context, _ H, err error) error { return err }
