package rlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// A writer that becomes a reader lets in the readers of its own client, whether they
// hear messages or not.
func TestFakeTimeDowngradeIsToldInMemory(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, nil).NewRWLock("a", longLease)
			held, writer := lock(t, t.Context(), mu.Writer())
			var readers []*waiting
			for range 3 {
				readers = append(readers, begin(t.Context(), mu.Reader()))
				synctest.Wait()
			}
			time.Sleep(time.Second)
			if deaf {
				f.denySubscribe.Store(true)
				f.cut()
				time.Sleep(time.Second)
			}
			inner, reader := lock(t, held, mu.Reader())
			require.NoError(t, writer.Unlock(held))
			began := f.now()
			for _, w := range readers {
				held, hold := w.acquired(t)
				require.LessOrEqual(t, f.now()-began, 5*time.Millisecond)
				require.NoError(t, hold.Unlock(held))
			}
			require.NoError(t, reader.Unlock(inner))
		})
	}
}
