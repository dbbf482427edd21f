package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Hook puts functions of a test between a client and its connections. One that is nil goes on.
type Hook struct {
	Process  func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
	Pipeline func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error
}

// DialHook implements [redis.Hook].
func (Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	if h.Process == nil {
		return next
	}
	return func(ctx context.Context, cmd redis.Cmder) error { return h.Process(ctx, cmd, next) }
}

// ProcessPipelineHook implements [redis.Hook].
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if h.Pipeline == nil {
		return next
	}
	return func(ctx context.Context, cmds []redis.Cmder) error { return h.Pipeline(ctx, cmds, next) }
}

// Sees returns a hook that is shown every command before it is sent, by itself or in a pipeline.
func Sees(see func(ctx context.Context, cmd redis.Cmder)) Hook {
	return Hook{
		Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			see(ctx, cmd)
			return next(ctx, cmd)
		},
		Pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			for _, cmd := range cmds {
				see(ctx, cmd)
			}
			return next(ctx, cmds)
		},
	}
}

// Answers returns a hook that is the server itself: nothing goes on. A command that is not in a
// pipeline comes alone.
func Answers(answer func(ctx context.Context, cmds ...redis.Cmder) error) Hook {
	return Hook{
		Process: func(ctx context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
			if err := answer(ctx, cmd); err != nil {
				return err
			}
			return cmd.Err()
		},
		Pipeline: func(ctx context.Context, cmds []redis.Cmder, _ redis.ProcessPipelineHook) error {
			return answer(ctx, cmds...)
		},
	}
}

// SendTwice returns a hook of an application that sends every command and pipeline two times.
func SendTwice() Hook {
	return Hook{
		Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			_ = next(ctx, cmd)
			return next(ctx, cmd)
		},
		Pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			_ = next(ctx, cmds)
			return next(ctx, cmds)
		},
	}
}
