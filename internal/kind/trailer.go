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
	key     string // of the lock: in a cluster, its node is asked
	trailer request.Trailer
	last    redis.Cmder // the trailer's newest command, with its answer
}

// overdue is the time of a pipeline beyond the replicas' time-out: then the connection may be dead, and
// another pipeline is sent.
const overdue = 500 * time.Millisecond

// acknowledged asks how many replicas have a grant, within a time-out.
func acknowledged(replicas int, timeout time.Duration) request.Trailer {
	return request.Trailer{Replicas: replicas, Within: timeout, Bound: timeout + overdue}
}

// info asks about the server itself.
func info() request.Trailer { return request.Trailer{Bound: overdue} }

// Process runs script and trailer, and returns the script's error. In a cluster Process follows a
// redirection to another node, once, in a pipeline of its own.
func (t *withTrailer) Process(ctx context.Context, cmd redis.Cmder) error {
	call := t.server.Trailed.Call(request.Options{Key: t.key, Bound: MaxAttempt, Trailer: t.trailer})
	defer call.Put()
	err := call.Process(ctx, cmd)
	if err == nil {
		t.last = call.Trailer()
		return nil
	}
	addr, moved := redis.IsMovedError(err)
	to, asked := redis.IsAskError(err)
	cluster, ok := t.server.RDB.(*redis.ClusterClient)
	if !ok || !moved && !asked {
		return err
	}
	node, err := cluster.MasterForKey(ctx, t.key)
	if err != nil {
		return err
	}
	if asked {
		addr = to
	}
	other, done := t.server.redirects.open(cluster, node, addr)
	defer done()
	pipe := other.Pipeline()
	if cluster.Options().ReadOnly {
		pipe = request.Guard(pipe)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.trailer.Bound)
	defer cancel()
	asking := redis.NewStatusCmd(ctx, "asking")
	if asked {
		_ = pipe.Process(ctx, asking) // only queues, as below
	}
	cmd.SetErr(nil) // that is not the answer
	_ = pipe.Process(ctx, cmd)
	t.last = t.trailer.Command(ctx)
	_ = pipe.Process(ctx, t.last)
	_ = lua.Exec(ctx, pipe) // each command has its own error
	if _, back := redis.IsMovedError(cmd.Err()); back && asking.Err() != nil {
		cmd.SetErr(asking.Err()) // ASKING was refused, to a user without that right, and so the node sends it back
	}
	return cmd.Err()
}

// Pipeline makes it a lua.Runner.
func (t *withTrailer) Pipeline() redis.Pipeliner { return t.server.RDB.Pipeline() }
