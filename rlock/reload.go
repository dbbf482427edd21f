package rlock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A client asks who the masters are every reloadPause at most. A question may hang on the
// very node that has failed, for as long as go-redis tries to reach it, and others are asked
// meanwhile; the pause grows by as much again with every hangingReloads of them.
const (
	reloadPause    = 200 * time.Millisecond
	hangingReloads = 12
)

// reloads are questions who the masters are.
type reloads struct {
	mu     sync.Mutex
	open   int
	newest time.Time
}

// begin reports whether another one is due; if so, end must follow.
func (r *reloads) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.newest) < reloadPause*time.Duration(1+r.open/hangingReloads) {
		return false
	}
	r.open++
	r.newest = time.Now()
	return true
}

func (r *reloads) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
}

// reload has a cluster's client look for the masters anew, in the background,
// because a request got no answer. go-redis does so only before it repeats a
// request, which it must not do here; its own map may be a minute old. Its
// ReloadState waits for a question that hangs.
func (c *Client) reload(rdb redis.UniversalClient) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok || !c.reloads.begin() {
		return
	}
	c.background(func() {
		defer c.reloads.end()
		_ = cluster.ForEachMaster(context.Background(), func(context.Context, *redis.Client) error { return nil }) // loads the map
	})
}

// leavePause is how often an attempt without an answer looks for another master.
const leavePause = 100 * time.Millisecond

// leave ends an attempt to reach the lock when its master has been replaced, as the
// former one may stay silent. The caller stops the timer when the attempt is over.
func (l *Lock) leave(attempt context.Context, cluster *redis.ClusterClient, end func()) *time.Timer {
	master := func() *redis.Client {
		rdb, _ := cluster.MasterForKey(attempt, l.slot)
		return rdb
	}
	former := master()
	return time.AfterFunc(leavePause, func() {
		l.client.background(func() {
			for attempt.Err() == nil && master() == former {
				l.client.reload(cluster)
				select {
				case <-time.After(leavePause):
				case <-attempt.Done():
				}
			}
			end()
		})
	})
}
