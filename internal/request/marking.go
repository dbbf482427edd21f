package request

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// marking is a client that notes when the first command of its pipeline is sent.
type marking struct {
	redis.UniversalClient
	note  *note
	guard bool // see [guarded]
}

func (m *marking) Pipeline() redis.Pipeliner {
	p := &marked{m.UniversalClient.Pipeline(), m.note}
	if m.guard {
		_ = p.Process(context.Background(), redis.NewStatusCmd(context.Background(), "readwrite")) // only queues
		return &guarded{p}
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

// guarded is a pipeline that no replica executes. A replica runs a script on its own
// data, as far as that only reads, if the connection is READONLY, as those of a cluster
// client are that reads from replicas; and a master may have become a replica without
// the client's knowing. The connection is the application's: it is READONLY again in the
// end. A user without the right to change it goes on as it is.
type guarded struct{ *marked }

func (g *guarded) Exec(ctx context.Context) ([]redis.Cmder, error) {
	_ = g.Pipeliner.Process(ctx, redis.NewStatusCmd(ctx, "readonly")) // only queues
	return g.Pipeliner.Exec(ctx)
}

// apart is a command that is not joined with others.
type apart struct{ redis.Cmder }
