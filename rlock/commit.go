package rlock

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// Pipelines under way at once. In go-redis they have a pool of ten connections.
const (
	maxSenders = 4 // of what callers wait for
	maxSweeps  = 2 // of what they have left behind
)

// groups send the scripts of a client.
type groups struct {
	scripts request.Carrier // what callers wait for
	sweeps  request.Carrier // what they have left behind
}

// newCarrier returns what sends the scripts of a client together, to each server those
// that are for it.
func newCarrier(c *Client, senders int) request.Carrier {
	_, single := c.server.RDB.(*redis.Client)
	return request.NewCarrier(request.Config{
		Client: c.server.RDB, Begin: func() { c.active.Add(1) }, End: c.done, Senders: senders,
		Callers: c.opts.Trace.Start != nil,
		Reload:  func() { c.reload(c.server.RDB) },
		Send: func(ctx context.Context, r request.Runner, cmds []redis.Cmder, joined bool) bool {
			return lua.Send(ctx, r, cmds, joined && single)
		},
	})
}

// redisKey is the key that all keys of the lock are in one slot with. That of its kind may
// have more to it, such as the side of a read/write lock.
func (l *Lock) redisKey() string { return l.client.opts.Prefix + l.name }

// gathers tells whether the requests of the lock travel with others. Not by a client of
// a type that is not known: it may spread a pipeline over several servers, and then it
// waits for the slowest.
func (l *Lock) gathers() bool {
	switch l.client.server.RDB.(type) {
	case *redis.Client, *redis.ClusterClient:
		return l.wire.Gathers()
	}
	return false
}
