package request

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// marking is a client that notes when the first command of its pipeline is sent.
type marking struct {
	redis.UniversalClient
	note *note
}

func (m *marking) Pipeline() redis.Pipeliner {
	return &marked{m.UniversalClient.Pipeline(), m.note}
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

// apart is a command that is not joined with others.
type apart struct{ redis.Cmder }
