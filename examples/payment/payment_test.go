package payment_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/examples/payment"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// bank is a ledger and a gateway.
type bank struct {
	takes time.Duration // a charge

	mu         sync.Mutex // guards what follows
	receipts   map[string]payment.Receipt
	charges    int // requests, repeated ones as well
	duplicates int // inserts refused
}

func newBank(takes time.Duration) *bank {
	return &bank{takes: takes, receipts: make(map[string]payment.Receipt)}
}

func (b *bank) Find(_ context.Context, number string) (payment.Receipt, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.receipts[number]
	if !ok {
		return r, payment.ErrUnpaid
	}
	return r, nil
}

func (b *bank) Insert(_ context.Context, r payment.Receipt) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.receipts[r.Number]; ok {
		b.duplicates++
		return payment.ErrDuplicate
	}
	b.receipts[r.Number] = r
	return nil
}

// Charge does not look at its context, like a request that is on its way.
func (b *bank) Charge(_ context.Context, o payment.Order) (string, error) {
	b.mu.Lock()
	b.charges++
	b.mu.Unlock()
	time.Sleep(b.takes)
	return fmt.Sprintf("%d cents for %s", o.Cents, o.Number), nil
}

// Two hosts are asked ten times each, all at once.
func TestPaysOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		bank := newBank(time.Second)
		order := payment.Order{Number: "2026-0042", Cents: 1999}
		var wg sync.WaitGroup
		for range 2 {
			service := payment.New(server.Locks(nil), bank, bank)
			for range 10 {
				wg.Go(func() {
					r, err := service.Pay(t.Context(), order)
					assert.NoError(t, err)
					assert.Equal(t, payment.Receipt{Number: order.Number, Reference: "1999 cents for 2026-0042"}, r)
				})
			}
		}
		wg.Wait()
		require.Equal(t, 1, bank.charges)
		require.Zero(t, bank.duplicates)
	})
}

// A repetition of what is paid does not even need Redis.
func TestFirstCheckNeedsNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		bank := newBank(time.Second)
		service := payment.New(server.Locks(nil), bank, bank)
		first, err := service.Pay(t.Context(), payment.Order{Number: "2026-0042", Cents: 1999})
		require.NoError(t, err)

		server.Refuse()
		again, err := service.Pay(t.Context(), payment.Order{Number: "2026-0042", Cents: 1999})
		require.NoError(t, err)
		require.Equal(t, first, again)
	})
}

// A lock that is lost in the middle of a payment lets a second one in.
func TestLostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		bank := newBank(time.Minute)
		order := payment.Order{Number: "2026-0042", Cents: 1999}
		here := payment.New(server.Locks(nil), bank, bank)
		there := payment.New(server.Locks(nil), bank, bank)

		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := here.Pay(t.Context(), order)
			assert.ErrorIs(t, err, rlock.ErrLeaseLost)
		})
		synctest.Wait() // until here is charging
		server.Evict("payment:" + order.Number)
		wg.Go(func() {
			_, err := there.Pay(t.Context(), order)
			assert.NoError(t, err)
		})
		wg.Wait()
		require.Equal(t, 2, bank.charges, "under one number: the gateway makes it one")
		require.Equal(t, 1, bank.duplicates, "the key has kept a second row out")

		r, err := here.Pay(t.Context(), order)
		require.NoError(t, err)
		require.Equal(t, bank.receipts[order.Number], r)
	})
}
