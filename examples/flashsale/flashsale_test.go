package flashsale_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/examples/flashsale"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

var ways = map[string]func(*flashsale.Sale, context.Context, string) error{
	"lock":    (*flashsale.Sale).Buy,
	"counter": (*flashsale.Sale).BuyCounted,
}

// Before the sale, and if its stock was lost, nothing is sold.
func TestNothingOnSale(t *testing.T) {
	for name, buy := range ways {
		t.Run(name, func(t *testing.T) {
			sale := newHost(t, redistest.Start(t))
			require.Error(t, buy(sale, t.Context(), "early"))
			require.NoError(t, sale.Open(t.Context(), -1))
			require.ErrorIs(t, buy(sale, t.Context(), "late"), flashsale.ErrSoldOut)
			orders, err := sale.Orders(t.Context())
			require.NoError(t, err)
			require.Empty(t, orders)
		})
	}
}

// Two hosts with eight customers each, who all buy until nothing is left.
func TestNeverOversells(t *testing.T) {
	const pieces, hosts, customers = 50, 2, 8
	for name, buy := range ways {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			sale := newHost(t, srv)
			require.NoError(t, sale.Open(t.Context(), pieces))

			var (
				wg   sync.WaitGroup
				mu   sync.Mutex // guards sold
				sold []string
			)
			for h := range hosts {
				sale := newHost(t, srv)
				for c := range customers {
					customer := fmt.Sprintf("%d on host %d", c, h)
					wg.Go(func() {
						for {
							err := buy(sale, t.Context(), customer)
							if err != nil {
								assert.ErrorIs(t, err, flashsale.ErrSoldOut)
								return
							}
							mu.Lock()
							sold = append(sold, customer)
							mu.Unlock()
						}
					})
				}
			}
			wg.Wait()
			require.Len(t, sold, pieces)
			orders, err := sale.Orders(t.Context())
			require.NoError(t, err)
			require.ElementsMatch(t, sold, orders)
		})
	}
}

// newHost returns the sale as another process sees it.
func newHost(t *testing.T, srv *redistest.Server) *flashsale.Sale {
	rdb := srv.Client(t)
	locks, err := rlock.New(rdb, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, locks.Close(context.Background())) })
	return flashsale.New(rdb, locks, "42")
}
