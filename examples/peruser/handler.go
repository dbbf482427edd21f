// Peruser serves requests of one user one after the other, on all hosts, and those of different users at the same
// time.
//
//	go run ./examples/peruser
//	go run ./examples/peruser -url redis://127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

// Orders is where the orders are.
type Orders interface {
	// Add reads how many orders a user has, and writes one more. Two calls at once for a user lose an order.
	Add(ctx context.Context, user string) (n int, err error)
}

// lockName returns the name of a user's lock. A user chooses the name of the user, so it may have any characters. Braces mean
// something in a Redis Cluster, and rlock refuses those that would put the parts of a lock on different servers. Escaped, each
// name is allowed, and two users never have the same one.
func lockName(user string) string { return "user:" + url.QueryEscape(user) }

// newHandler serves POST /users/{user}/orders.
func newHandler(locks *rlock.Client, orders Orders) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /users/{user}/orders", func(w http.ResponseWriter, r *http.Request) {
		user, n := r.PathValue("user"), 0
		// A browser does not wait forever, so neither does the handler. Its request may end before: DoFor returns then.
		err := locks.NewLock(lockName(user)).DoFor(r.Context(), 2*time.Second, func(ctx context.Context) (err error) {
			n, err = orders.Add(ctx, user)
			return err
		})
		switch {
		case errors.Is(err, rlock.ErrLeaseLost): // first: its error matches that of a context as well
			http.Error(w, "look whether the order is there", http.StatusInternalServerError)
		case errors.Is(err, rlock.ErrNotAcquired):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "another request of this user is in progress", http.StatusConflict)
		case errors.Is(err, rlock.ErrUnavailable):
			http.Error(w, "try again", http.StatusServiceUnavailable)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			_, _ = w.Write([]byte(strconv.Itoa(n)))
		}
	})
	return mux
}
