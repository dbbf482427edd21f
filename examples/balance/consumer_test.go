package balance_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/examples/balance"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// book is a table with the ids of messages beside it.
type book struct {
	table
	processed map[string]bool
}

func newBook(cents map[string]int64) *book {
	return &book{table: table{cents: cents}, processed: make(map[string]bool)}
}

func (b *book) Processed(_ context.Context, id string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.processed[id], nil
}

func (b *book) Process(ctx context.Context, id, account string, cents int64) error {
	time.Sleep(time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case ctx.Err() != nil: // as a transaction under this context
		return ctx.Err()
	case b.processed[id]:
		return balance.ErrProcessed
	}
	b.processed[id], b.cents[account] = true, cents
	return nil
}

// Each message is delivered to both hosts at once.
func TestMessagesCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		b := newBook(map[string]int64{"alice": 100, "bob": 35})
		var wg sync.WaitGroup
		for range 2 {
			consume := balance.NewConsumer(server.Locks(nil), b)
			for n := range 10 {
				for _, account := range []string{"alice", "bob"} {
					wg.Go(func() {
						m := balance.Message{ID: fmt.Sprint(account, n), Deduction: balance.Deduction{Account: account, Cents: 10}}
						assert.NoError(t, consume(t.Context(), m))
					})
				}
			}
		}
		wg.Wait()
		require.Equal(t, map[string]int64{"alice": 0, "bob": 5}, b.cents)
		require.Len(t, b.processed, 20)
	})
}

// After an error the broker delivers the message again, perhaps to another host.
func TestRedelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		b := newBook(map[string]int64{"alice": 100})
		here, there := balance.NewConsumer(server.Locks(nil), b), balance.NewConsumer(server.Locks(nil), b)
		m := balance.Message{ID: "m1", Deduction: balance.Deduction{Account: "alice", Cents: 30}}

		server.Refuse()
		require.ErrorIs(t, here(t.Context(), m), rlock.ErrUnavailable)
		server.Heal()
		require.NoError(t, there(t.Context(), m))
		require.NoError(t, here(t.Context(), m), "a third time")
		require.EqualValues(t, 70, b.cents["alice"])
	})
}
