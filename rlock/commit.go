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
	scripts *request.Group // what callers wait for
	sweeps  *request.Group // what they have left behind
}

// newGroup returns what sends the scripts of a client together.
func newGroup(c *Client, senders int) *request.Group {
	single := c.single()
	return request.NewGroup(request.Config{
		Client: c.server.RDB, Begin: func() { c.active.Add(1) }, End: c.done, Senders: senders,
		Send: func(ctx context.Context, r request.Runner, cmds []redis.Cmder, joined bool) bool {
			return lua.Send(ctx, r, cmds, joined && single)
		},
	})
}

// single tells whether the client leads to one server, and not to a cluster. There a
// pipeline would wait for the slowest of several nodes.
func (c *Client) single() bool {
	_, single := c.server.RDB.(*redis.Client)
	return single
}
