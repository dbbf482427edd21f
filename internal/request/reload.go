package request

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// A client asks who the masters are every reloadPause at most. A question may hang on the
	// very node that has failed, for as long as go-redis tries to reach it, and others are asked
	// meanwhile; the pause grows by as much again with every hangingReloads of them.
	reloadPause    = 200 * time.Millisecond
	hangingReloads = 12

	leavePause = 100 * time.Millisecond // how often a request without an answer looks for another master
)

// Reloads makes the client of a cluster look for its masters anew, because a request got no
// answer. go-redis does so only before it repeats a request, which it must not do here; its
// own map may be a minute old. Its ReloadState waits for a question that hangs. For a client
// of a single server nothing is done.
type Reloads struct {
	Background func(func()) // runs a function in a goroutine that others wait for

	mu     sync.Mutex // guards what follows
	open   int        // questions that were not answered
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

// Watch returns a function for [Alone] that ends a request about key when its master has been
// replaced, as the former one may stay silent; nil for a client of a single server.
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
