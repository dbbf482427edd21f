package nested_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/examples/nested"
	"github.com/go-rlock/rlock/rlocktest"
)

// newService returns a service and the hold counts under which it stores.
func newService(t *testing.T, server *rlocktest.Server) (*nested.Service, *[]int) {
	locks := nested.Locks{Client: server.Locks(nil)}
	var holds []int
	return &nested.Service{Locks: locks, Repo: &nested.Repository{
		Locks: locks,
		Store: func(ctx context.Context, id, _ string) error {
			holds = append(holds, locks.Order(id).HoldCount(ctx))
			return nil
		},
	}}, &holds
}

func TestEveryLayerLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		service, holds := newService(t, server)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a layer that loses the context
		defer cancel()

		require.NoError(t, service.Repo.SetStatus(ctx, "42", "new"))
		_, err := service.Ship(ctx, "42")
		require.NoError(t, err)
		require.Equal(t, "shipped", post(ctx, service, "/orders/42/ship").Body.String())

		require.Equal(t, []int{1, 2, 2, 3, 3}, *holds)
		state, err := service.Locks.Order("42").Inspect(ctx)
		require.NoError(t, err)
		require.Empty(t, state.Holds, "as many unlocks as locks")
	})
}

func TestBusyOrderIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		service, holds := newService(t, server)
		server.TakeOver("order:42", time.Minute)

		start := time.Now()
		require.Equal(t, http.StatusConflict, post(t.Context(), service, "/orders/42/ship").Code)
		require.Equal(t, http.StatusOK, post(t.Context(), service, "/orders/43/ship").Code)
		require.Zero(t, time.Since(start))
		require.Len(t, *holds, 2, "of the other order")
	})
}

func post(ctx context.Context, s *nested.Service, path string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	nested.NewHandler(s).ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, path, nil))
	return answer
}
