package bench

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// publications counts the messages that a go-redis client publishes itself, which
// the server's counters do not tell from those of scripts. A probe of this library is one,
// also as a script.
type publications struct{ n *atomic.Int64 }

func (p publications) count(cmd redis.Cmder) {
	switch cmd.Name() {
	case "publish", "spublish":
		p.n.Add(1)
	case "eval":
		if source, ok := cmd.Args()[1].(string); ok && strings.HasPrefix(source, "#!lua") {
			p.n.Add(1)
		}
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
