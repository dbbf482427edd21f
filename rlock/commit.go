package rlock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/lua"
)

const (
	maxLeaders = 2                     // batches under way at once
	maxBatch   = 128                   // requests in one of them
	stall      = 20 * time.Millisecond // then a batch hangs, and others go past it
)

// commits has concurrent requests of a client share pipelines, as databases let
// concurrent transactions share a write to the log (group commit). A request that
// comes while fewer than maxLeaders are under way goes out at once, by itself and
// as it would without this. Others queue; whoever is done has the first of them
// lead the queue, as it stands by then, to the server in one pipeline. Nobody
// waits in order to be in company, there is no goroutine for it, and each request
// has its own outcome.
type commits struct {
	redis.UniversalClient

	mu      sync.Mutex // guards what follows
	queue   []*request
	leaders int
	watch   *time.Timer // runs relieve; set while requests queue
}

type request struct {
	cmd  redis.Cmder
	wake chan bool // capacity 1: true if it was answered, false if it has to lead
}

// newCommits returns what sends the scripts for locks of rdb. In a cluster a
// pipeline would wait for the slowest of several nodes, so there each request goes
// by itself.
func newCommits(rdb redis.UniversalClient) lua.Runner {
	if _, ok := rdb.(*redis.Client); !ok {
		return rdb
	}
	c := &commits{UniversalClient: rdb}
	c.watch = time.AfterFunc(stall, c.relieve)
	c.watch.Stop()
	return c
}

// Process sends cmd, and returns its error.
func (c *commits) Process(ctx context.Context, cmd redis.Cmder) error {
	c.mu.Lock()
	if c.leaders < maxLeaders {
		c.leaders++
		c.mu.Unlock()
		defer c.follow()
		return c.UniversalClient.Process(ctx, cmd)
	}
	r := &request{cmd, make(chan bool, 1)}
	if c.queue = append(c.queue, r); len(c.queue) == 1 {
		c.watch.Reset(stall)
	}
	c.mu.Unlock()
	if answered := <-r.wake; !answered {
		c.lead(r)
	}
	return cmd.Err()
}

// lead sends r and what has queued behind it.
func (c *commits) lead(r *request) {
	defer c.follow()
	c.mu.Lock()
	n := min(len(c.queue), maxBatch-1)
	batch := append([]*request{r}, c.queue[:n]...)
	c.queue = append(c.queue[:0:0], c.queue[n:]...)
	c.mu.Unlock()
	// Of the callers' contexts none is that of all. Each caller has left by the
	// time this one ends.
	ctx, cancel := context.WithTimeout(context.Background(), maxAttempt)
	defer cancel()
	pipe := c.Pipeline()
	for _, r := range batch {
		_ = pipe.Process(ctx, r.cmd) // only queues
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, r := range batch[1:] {
		r.wake <- true
	}
}

// follow ends a leader, and has the next one lead.
func (c *commits) follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaders > maxLeaders || !c.promote() {
		c.leaders--
	}
}

// promote makes the first of the queue a leader. mu is held.
func (c *commits) promote() bool {
	if len(c.queue) == 0 {
		return false
	}
	first := c.queue[0]
	c.queue = c.queue[1:]
	first.wake <- false
	return true
}

// relieve sends the queue past leaders whose requests hang: another connection
// may be better.
func (c *commits) relieve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.promote() {
		c.leaders++
	}
	if len(c.queue) > 0 {
		c.watch.Reset(stall)
	}
}
