package fencing_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/examples/fencing"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// The first host stands still for an hour in the middle of its update. The
// second one gets the lock when the lease of the first is over.
func TestStaleWriteIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		newLock := func() *rlock.Lock { // of another host
			// What stands still does not renew.
			return server.Locks(nil).NewLock("record:42", rlock.WithFencing(), rlock.WithoutRenewal())
		}
		store := new(fencing.Store)
		var wg sync.WaitGroup
		wg.Go(func() {
			err := fencing.Update(t.Context(), newLock(), store, func(context.Context) (string, error) {
				time.Sleep(time.Hour)
				return "by the first", nil
			})
			assert.ErrorIs(t, err, fencing.ErrStale)
			assert.ErrorIs(t, err, rlock.ErrLeaseLost)
		})
		synctest.Wait() // until the first holds the lock
		require.NoError(t, fencing.Update(t.Context(), newLock(), store, func(context.Context) (string, error) {
			return "by the second", nil
		}))
		wg.Wait()
		require.Equal(t, "by the second", store.Value())
	})
}

// A grant writes as often as it likes, and so do later ones.
func TestNewerTokensPass(t *testing.T) {
	store := new(fencing.Store)
	for i, token := range []int64{7, 7, 9} {
		require.NoError(t, store.Write(token, string(rune('a'+i))))
	}
	require.ErrorIs(t, store.Write(8, "late"), fencing.ErrStale)
	require.Equal(t, "c", store.Value())
}
