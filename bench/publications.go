package bench

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// publications counts the messages that a go-redis client publishes itself, which
// the server's counters do not tell from those of scripts.
type publications struct{ n *atomic.Int64 }

func (p publications) count(cmd redis.Cmder) {
	if name := cmd.Name(); name == "publish" || name == "spublish" {
		p.n.Add(1)
	}
}

// DialHook implements [redis.Hook].
func (publications) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (p publications) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p.count(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (p publications) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			p.count(cmd)
		}
		return next(ctx, cmds)
	}
}
