// Package nested ships orders through a handler, a service and a repository, each
// of which takes the order's lock. None has to know who calls it: called alone it
// locks, called under the lock it re-enters, because ownership comes with the
// context. All that takes is to pass the context on.
package nested

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-rlock/rlock/rlock"
)

// Locks is the one place where the locks of this program are named.
type Locks struct{ Client *rlock.Client }

// Order returns the lock of an order.
func (l Locks) Order(id string) *rlock.Lock { return l.Client.NewLock("order:" + id) }

// Repository stores orders.
type Repository struct {
	Locks Locks
	Store func(ctx context.Context, id, status string) error // in the database
}

// SetStatus sets the status of an order.
func (r *Repository) SetStatus(ctx context.Context, id, status string) error {
	return r.Locks.Order(id).Do(ctx, func(ctx context.Context) error {
		return r.Store(ctx, id, status)
	})
}

// Service knows what happens to an order.
type Service struct {
	Locks Locks
	Repo  *Repository
}

// Ship packs an order and hands it over; nobody else gets at it in between. It
// returns the status that was reached.
func (s *Service) Ship(ctx context.Context, id string) (status string, err error) {
	err = s.Locks.Order(id).Do(ctx, func(ctx context.Context) error {
		for _, next := range []string{"packed", "shipped"} {
			if err := s.Repo.SetStatus(ctx, id, next); err != nil {
				return err
			}
			status = next
		}
		return nil
	})
	return status, err
}

// NewHandler serves POST /orders/{id}/ship. A browser is not kept waiting: if
// somebody else is at the order, the answer is 409.
func NewHandler(s *Service) http.Handler {
	ship := rlock.Guard(s.Locks.Order, s.Ship, rlock.WithWait(0))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/ship", func(w http.ResponseWriter, r *http.Request) {
		status, err := ship(r.Context(), r.PathValue("id"))
		switch {
		case errors.Is(err, rlock.ErrNotAcquired):
			http.Error(w, "somebody else is at this order", http.StatusConflict)
		case err != nil:
			http.Error(w, "try again", http.StatusServiceUnavailable)
		default:
			_, _ = w.Write([]byte(status))
		}
	})
	return mux
}
