package request

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// reloadPause is the shortest time between two questions for the masters. A question may hang on
	// the failed node, for as long as go-redis tries to connect, and further questions go out
	// meanwhile; the pause grows by reloadPause with every hangingReloads hanging questions.
	reloadPause    = 200 * time.Millisecond
	hangingReloads = 12

	leavePause = 100 * time.Millisecond // how often a request without an answer looks for another master
)

// Reloads makes the client of a cluster look for the masters anew, because a request got no answer.
// go-redis looks only before repeating a request, and must not repeat requests here; the map of
// go-redis may be a minute old. ReloadState of go-redis waits for a hanging question. For a client of a
// single server nothing is done.
type Reloads struct {
	Background func(func()) // runs a function in a goroutine; the client's Close waits for the goroutine

	mu     sync.Mutex // guards what follows
	open   int        // questions without an answer
	newest time.Time
}

// Reload asks in the background, unless it did so a moment ago.
func (r *Reloads) Reload(rdb redis.UniversalClient) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return
	}
	r.mu.Lock()
	due := time.Since(r.newest) >= reloadPause*time.Duration(1+r.open/hangingReloads)
	if due {
		r.open++
		r.newest = time.Now()
	}
	r.mu.Unlock()
	if !due {
		return
	}
	r.Background(func() {
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.open--
		}()
		_ = cluster.ForEachMaster(context.Background(), func(context.Context, *redis.Client) error { return nil }) // loads the map
	})
}

// Watch returns a function for [Alone]: the function ends a request about key when the master has been
// replaced, as the former master may stay silent. Watch returns nil for a client of a single server.
func (r *Reloads) Watch(rdb redis.UniversalClient, key string) func(own context.Context, end func()) *time.Timer {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	return func(own context.Context, end func()) *time.Timer {
		master := func() *redis.Client {
			rdb, _ := cluster.MasterForKey(own, key)
			return rdb
		}
		former := master()
		return time.AfterFunc(leavePause, func() {
			r.Background(func() {
				for own.Err() == nil && master() == former {
					r.Reload(cluster)
					select {
					case <-time.After(leavePause):
					case <-own.Done():
					}
				}
				end()
			})
		})
	}
}
