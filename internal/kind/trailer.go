package kind

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/lua"
)

// withTrailer is a [lua.Runner] that has a script followed by a command about it: on
// the same connection, hence to the same server process, and in the same round
// trip. It is for one call.
type withTrailer struct {
	rdb  redis.UniversalClient
	key  string      // of the lock: in a cluster, its node is asked
	send sendTrailed // the script, with the command; that has no key, so go-redis could not route it
	last redis.Cmder // the newest command, with its answer
}

// sendTrailed sends commands to a node, and behind them the one that it returns.
type sendTrailed func(ctx context.Context, node redis.UniversalClient, cmds []redis.Cmder) redis.Cmder

// trailedBy sends commands in a pipeline of their own, and behind them what make returns.
func trailedBy(make func() redis.Cmder) sendTrailed {
	return func(ctx context.Context, node redis.UniversalClient, cmds []redis.Cmder) redis.Cmder {
		last := make()
		pipeline(ctx, node, append(cmds, last))
		return last
	}
}

// pipeline sends commands in one pipeline. Each has its own error: see [lua.Exec].
func pipeline(ctx context.Context, node redis.UniversalClient, cmds []redis.Cmder) {
	pipe := node.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd) // only queues
	}
	_ = lua.Exec(ctx, pipe)
}

// Process runs both. Its error is that of the script.
func (t *withTrailer) Process(ctx context.Context, cmd redis.Cmder) error {
	cluster, ok := t.rdb.(*redis.ClusterClient)
	if !ok {
		return t.exec(ctx, t.rdb, cmd)
	}
	node, err := cluster.MasterForKey(ctx, t.key)
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	err = t.exec(ctx, node, cmd)
	if _, moved := redis.IsMovedError(err); moved {
		cluster.ReloadState(ctx) // for the next attempt: a node's client follows nobody
	}
	if addr, asked := redis.IsAskError(err); asked {
		err = t.ask(ctx, cluster, addr, cmd)
	}
	return err
}

// ask goes where a slot is on its way to.
func (t *withTrailer) ask(ctx context.Context, cluster *redis.ClusterClient, addr string, cmd redis.Cmder) error {
	err := cmd.Err()
	_ = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		if node.Options().Addr == addr { // no other, so no two at once
			err = t.exec(ctx, node, cmd, redis.NewStatusCmd(ctx, "asking"))
		}
		return nil
	})
	return err
}

func (t *withTrailer) exec(ctx context.Context, rdb redis.UniversalClient, cmd redis.Cmder, before ...redis.Cmder) error {
	t.last = t.send(ctx, rdb, append(before, cmd))
	return cmd.Err()
}

// Pipeline makes it a lua.Runner.
func (t *withTrailer) Pipeline() redis.Pipeliner { return t.rdb.Pipeline() }
