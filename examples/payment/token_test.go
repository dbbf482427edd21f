package payment_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/examples/payment"
	"github.com/go-rlock/rlock/rlocktest"
)

// Of ten clicks at once one passes, and a token is good for its order only.
func TestTokenIsUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := payment.Tokens{Redis: rlocktest.NewServer(t).Client(), Valid: 15 * time.Minute}
		token, err := tokens.Issue(t.Context(), "2026-0042")
		require.NoError(t, err)
		var wg sync.WaitGroup
		var passed atomic.Int64
		for range 10 {
			wg.Go(func() {
				if tokens.Use(t.Context(), token, "2026-0042") == nil {
					passed.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, passed.Load())

		token, err = tokens.Issue(t.Context(), "2026-0042")
		require.NoError(t, err)
		require.ErrorIs(t, tokens.Use(t.Context(), token, "2026-0043"), payment.ErrToken)
	})
}
