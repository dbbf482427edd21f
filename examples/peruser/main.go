package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/examples/internal/demo"
	"github.com/go-rlock/rlock/rlock"
)

func main() { demo.Main(show) }

// show has two hosts, to which ten requests of each user come at once.
func show(ctx context.Context, out io.Writer, connect func() *redis.Client) error {
	orders := &table{orders: make(map[string]int), busy: make(map[string]int)}
	var hosts []http.Handler
	for range 2 {
		rdb := connect()
		defer rdb.Close()
		locks, err := rlock.New(rdb, nil)
		if err != nil {
			return err
		}
		defer locks.Close(ctx)
		hosts = append(hosts, newHandler(locks, orders))
	}
	users := []string{"alice", "bob}", "{}", "a/b c", "user:alice"}
	var requests sync.WaitGroup
	var mu sync.Mutex // guards failed
	var failed error
	for _, user := range users {
		for n := range 10 {
			requests.Go(func() {
				w := httptest.NewRecorder()
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/users/"+url.PathEscape(user)+"/orders", nil)
				hosts[n%2].ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					mu.Lock()
					defer mu.Unlock()
					failed = errors.Join(failed, fmt.Errorf("%s: %d %s", user, w.Code, w.Body))
				}
			})
		}
	}
	requests.Wait()
	for _, user := range users {
		fmt.Fprintf(out, "%-11s under the lock %-21s 10 requests to 2 hosts at once, %d orders\n", user, lockName(user), orders.orders[user])
	}
	fmt.Fprintf(out, "at most %d requests of one user at a time, and %d of all users\n", orders.most, orders.mostAll)
	return failed
}

// table is a database whose queries take a while.
type table struct {
	mu            sync.Mutex // guards what follows
	orders, busy  map[string]int
	all           int
	most, mostAll int
}

func (t *table) Add(_ context.Context, user string) (int, error) {
	n := t.enter(user)
	time.Sleep(5 * time.Millisecond)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy[user]--
	t.all--
	t.orders[user] = n + 1
	return n + 1, nil
}

func (t *table) enter(user string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy[user]++
	t.all++
	t.most, t.mostAll = max(t.most, t.busy[user]), max(t.mostAll, t.all)
	return t.orders[user]
}
