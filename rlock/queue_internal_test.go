package rlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// The context of a whole queue ends. Whoever becomes the head by that must
// neither ask the server any more nor take a busy lock for a silent server.
func TestFakeTimeQueueLeavesAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		acquire func(ctx context.Context) (lua.Reply, error)
		want    error
	}{
		"busy": {func(context.Context) (lua.Reply, error) {
			time.Sleep(time.Millisecond)
			return lua.Reply{TTL: time.Hour}, nil
		}, ErrNotAcquired},
		"silent": {func(ctx context.Context) (lua.Reply, error) { return lua.Reply{}, hang(ctx) }, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				_, l, f := newFake(t)
				f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) { return tt.acquire(ctx) }
				leave := errors.New("leave")
				ctx, cancel := context.WithCancelCause(t.Context())
				errs := make(chan error, 1000)
				for range cap(errs) {
					go func() {
						_, _, err := l.Lock(ctx)
						errs <- err
					}()
				}
				sleepLong(2500 * time.Millisecond) // the head has seen how it stands
				require.Empty(t, errs)
				before := f.times("acquire")
				cancel(leave)
				synctest.Wait()
				require.Len(t, errs, cap(errs), "all leave at the same instant")
				other := make(map[string]int)
				for range cap(errs) {
					err := <-errs
					assert.ErrorIs(t, err, context.Canceled)
					assert.ErrorIs(t, err, leave)
					if !errors.Is(err, tt.want) {
						other[err.Error()]++
					}
				}
				assert.Empty(t, other, "all should be: %v", tt.want)
				assert.Equal(t, before, f.times("acquire"), "attempts for callers that have left")
			})
		})
	}
}

// The waiters of a busy lock end one after another, faster than the server
// answers: each becomes the head, asks, and is gone before it is refused. The
// server is well, and none of them may say otherwise.
func TestFakeTimeBusyIsNotUnavailable(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onAcquire = func(context.Context, int) (lua.Reply, error) {
			time.Sleep(time.Millisecond)
			return lua.Reply{TTL: time.Hour}, nil
		}
		errs := make(chan error, 100)
		for i := range cap(errs) {
			ctx := within(t, time.Second+time.Duration(i)*100*time.Microsecond)
			go func() {
				_, _, err := l.Lock(ctx)
				errs <- err
			}()
		}
		wrong := make(map[string]int)
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				wrong[err.Error()]++
			}
		}
		require.Empty(t, wrong)
	})
}
