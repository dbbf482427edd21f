package request

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// marking is a client whose pipelines note the sending of the first command.
type marking struct {
	redis.UniversalClient
	note  *note
	guard bool // see [Guard]
}

// Noting returns rdb for one pipeline, and a function that gives an error of that pipeline another type if
// nothing was sent: see [Unsent].
func Noting(rdb redis.UniversalClient) (redis.UniversalClient, func(error) error) {
	n := &note{since: time.Now()}
	return &marking{rdb, n, false}, n.errorOf
}

func (m *marking) Pipeline() redis.Pipeliner {
	p := &marked{m.UniversalClient.Pipeline(), m.note}
	if m.guard {
		return Guard(p)
	}
	return p
}

type marked struct {
	redis.Pipeliner
	note *note
}

func (m *marked) Process(ctx context.Context, cmd redis.Cmder) error {
	if m.note.Cmder == nil {
		m.note.Cmder = cmd
		cmd = m.note
	}
	return m.Pipeliner.Process(ctx, cmd)
}

// Guard keeps replicas from executing an empty pipeline. A cluster client for reading from replicas has
// READONLY connections, and on such a connection a replica runs the reading part of a script on the
// replica's data. A master may have become a replica without the client's knowledge. So the pipeline
// begins with READWRITE; the connection belongs to the application, and is READONLY again in the end.
// For a user without the right to these commands nothing changes.
func Guard(pipe redis.Pipeliner) redis.Pipeliner {
	_ = pipe.Process(context.Background(), redis.NewStatusCmd(context.Background(), "readwrite")) // only queues
	return &guarded{pipe}
}

type guarded struct{ redis.Pipeliner }

func (g *guarded) Exec(ctx context.Context) ([]redis.Cmder, error) {
	_ = g.Process(ctx, redis.NewStatusCmd(ctx, "readonly")) // only queues
	return g.Pipeliner.Exec(ctx)
}

// unjoined is a command never combined with another command.
type unjoined struct{ redis.Cmder }
