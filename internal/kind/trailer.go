package kind

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// withTrailer is a [lua.Runner] that has a script followed by a command about it: on
// the same connection, hence to the same server process, and in the same round
// trip. It is for one call.
type withTrailer struct {
	server  *Server
	key     string      // of the lock: in a cluster, its node is asked
	trailer trailer     // it has no key, so go-redis could not route it
	last    redis.Cmder // the newest command, with its answer
}

// trailer describes the last command of a pipeline: WAIT for a number of replicas to acknowledge
// all earlier writes on the connection, within a time-out. The zero value asks INFO server.
type trailer struct {
	replicas int
	timeout  time.Duration
}

// command makes the command: a [redis.IntCmd] about replicas, otherwise a [redis.StringCmd].
func (t trailer) command(ctx context.Context) redis.Cmder {
	if t == (trailer{}) {
		return redis.NewStringCmd(ctx, "info", "server")
	}
	return redis.NewIntCmd(ctx, "wait", t.replicas, t.timeout.Milliseconds())
}

// bound is how long a pipeline may take.
func (t trailer) bound() time.Duration {
	if t == (trailer{}) {
		return longestPoll
	}
	return MaxAttempt
}

// process is the server process for a pipeline.
type process struct {
	rdb   redis.UniversalClient // not that of a cluster, but of a node
	guard bool                  // its connections may be READONLY: see [request.Guard]
}

// pipeline sends commands in one pipeline. Each has its own error: see [lua.Exec].
func (p process) pipeline(ctx context.Context, cmds []redis.Cmder) {
	pipe := p.rdb.Pipeline()
	if p.guard {
		pipe = request.Guard(pipe)
	}
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd) // only queues
	}
	_ = lua.Exec(ctx, pipe)
}

// Process runs script and trailer, and returns the script's error. In a cluster Process follows a
// redirection to another node, once.
func (t *withTrailer) Process(ctx context.Context, cmd redis.Cmder) error {
	cluster, ok := t.server.RDB.(*redis.ClusterClient)
	if !ok {
		return t.exec(ctx, process{t.server.RDB, false}, cmd)
	}
	node, err := cluster.MasterForKey(ctx, t.key)
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	guard := cluster.Options().ReadOnly
	err = t.exec(ctx, process{node, guard}, cmd)
	addr, moved := redis.IsMovedError(err)
	if moved {
		cluster.ReloadState(ctx) // for the next attempt; in the background
	}
	var before []redis.Cmder
	if to, asked := redis.IsAskError(err); asked {
		addr, before = to, []redis.Cmder{redis.NewStatusCmd(ctx, "asking")}
	}
	if addr == "" {
		return err
	}
	other, done := t.server.redirects.open(cluster, node, addr)
	defer done()
	cmd.SetErr(nil) // that is not the answer
	err = t.exec(ctx, process{other, guard}, cmd, before...)
	if _, back := redis.IsMovedError(err); back && before != nil && before[0].Err() != nil {
		cmd.SetErr(before[0].Err()) // ASKING was refused, to a user without that right, and so the node sends it back
	}
	return cmd.Err()
}

func (t *withTrailer) exec(ctx context.Context, to process, cmd redis.Cmder, before ...redis.Cmder) error {
	t.last = t.server.pipelines.exec(ctx, t.server.Background, to, t.trailer, append(before, cmd))
	return cmd.Err()
}

// Pipeline makes it a lua.Runner.
func (t *withTrailer) Pipeline() redis.Pipeliner { return t.server.RDB.Pipeline() }
