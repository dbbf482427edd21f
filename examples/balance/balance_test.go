package balance_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/examples/balance"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// table is a database whose queries take a while.
type table struct {
	mu    sync.Mutex // guards cents
	cents map[string]int64
}

func (tb *table) Cents(_ context.Context, account string) (int64, error) {
	defer time.Sleep(time.Millisecond)
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.cents[account], nil
}

func (tb *table) SetCents(_ context.Context, account string, cents int64) error {
	time.Sleep(time.Millisecond)
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.cents[account] = cents
	return nil
}

// Two hosts try to take ten times 30 from 100.
func TestNeverTakesMoreThanIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		accounts := &table{cents: map[string]int64{"alice": 100}}
		var wg sync.WaitGroup
		var succeeded atomic.Int64
		for range 2 {
			deduct := balance.NewDeduct(server.Locks(nil), accounts)
			for range 5 {
				wg.Go(func() {
					_, err := deduct(t.Context(), balance.Deduction{Account: "alice", Cents: 30})
					if errors.Is(err, balance.ErrInsufficient) {
						return
					}
					assert.NoError(t, err)
					succeeded.Add(1)
				})
			}
		}
		wg.Wait()
		require.EqualValues(t, 3, succeeded.Load())
		require.EqualValues(t, 10, accounts.cents["alice"])
	})
}

func TestWaitsForTheSameAccountOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		accounts := &table{cents: map[string]int64{"alice": 100, "bob": 100}}
		deduct := balance.NewDeduct(server.Locks(nil), accounts)

		server.TakeOver("account:alice", time.Minute) // by a host that does not get on
		left, err := deduct(t.Context(), balance.Deduction{Account: "bob", Cents: 30})
		require.NoError(t, err)
		require.EqualValues(t, 70, left)

		_, err = deduct(t.Context(), balance.Deduction{Account: "alice", Cents: 30})
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.EqualValues(t, 100, accounts.cents["alice"])
	})
}
