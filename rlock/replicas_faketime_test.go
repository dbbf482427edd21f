package rlock_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// A grant that too few replicas have is released by nothing that may come late: what is
// repeated for its owner may be granted to a caller who keeps it.
func TestFakeTimeLateReleaseOfAGrantWithoutReplicas(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		var asked atomic.Int32
		f.Server().SetPreHook(func(p *server.Peer, command string, args ...string) bool {
			if strings.EqualFold(command, "wait") {
				p.WriteInt(min(int(asked.Add(1))-1, 1)) // the second time it is replicated
				return true
			}
			return f.hook(p, command, args...)
		})
		release := f.hold(isScript("release"))
		mu := f.client(t, nil).NewLock("a", rlock.WithReplicas(1, 100*time.Millisecond))
		held, hold, err := mu.Lock(t.Context())
		if err != nil {
			require.ErrorIs(t, err, rlock.ErrNotReplicated)
			release()
			time.Sleep(time.Second)
			held, hold = lock(t, t.Context(), mu)
		} else {
			release()
		}
		synctest.Wait()
		_, _, err = f.client(t, nil).NewLock("a").TryLock(t.Context())
		require.NoError(t, held.Err())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.NoError(t, hold.Unlock(held))
	})
}

// While replicas are away, all waiters are told so: those whose grant they lack, and those whose
// wait ends meanwhile. Once a grant is replicated, a wait that ends is one for its holder.
func TestFakeTimeWaitersWithoutReplicas(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		var replicas atomic.Int32
		f.Server().SetPreHook(func(p *server.Peer, command string, args ...string) bool {
			if strings.EqualFold(command, "wait") {
				n := int(replicas.Load())
				if n == 0 {
					time.Sleep(100 * time.Millisecond)
				}
				p.WriteInt(n)
				return true
			}
			return f.hook(p, command, args...)
		})
		mu := f.client(t, nil).NewLock("a", rlock.WithReplicas(1, 100*time.Millisecond))
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				_, _, err := mu.TryLockFor(t.Context(), 2*time.Second)
				assert.ErrorIs(t, err, rlock.ErrNotReplicated)
				assert.NotErrorIs(t, err, rlock.ErrNotAcquired)
			})
		}
		all.Wait()
		replicas.Store(1)
		time.Sleep(time.Second)
		held, hold := lock(t, t.Context(), mu)
		_, _, err := mu.TryLockFor(t.Context(), time.Second)
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.NotErrorIs(t, err, rlock.ErrNotReplicated)
		require.NoError(t, hold.Unlock(held))
	})
}
