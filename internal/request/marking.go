package request

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// marking is a client whose pipelines note when their first command is sent.
type marking struct {
	redis.UniversalClient
	note  *note
	guard bool // see [Guard]
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

// Guard makes an empty pipeline one that no replica executes. A cluster client that reads from
// replicas makes its connections READONLY, and on such a connection a replica runs a script, as
// far as that only reads, on its own data. A master may have become a replica without the
// client's knowledge. So the pipeline begins with READWRITE; the connection belongs to the
// application, and is READONLY again in the end. For a user without the right to these commands
// nothing changes.
func Guard(pipe redis.Pipeliner) redis.Pipeliner {
	_ = pipe.Process(context.Background(), redis.NewStatusCmd(context.Background(), "readwrite")) // only queues
	return &guarded{pipe}
}

type guarded struct{ redis.Pipeliner }

func (g *guarded) Exec(ctx context.Context) ([]redis.Cmder, error) {
	_ = g.Process(ctx, redis.NewStatusCmd(ctx, "readonly")) // only queues
	return g.Pipeliner.Exec(ctx)
}

// unjoined is a command that is not joined with others.
type unjoined struct{ redis.Cmder }
