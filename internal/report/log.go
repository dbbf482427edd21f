package report

import (
	"context"
	"log/slog"
)

// Logger returns a logger that leaves its records to q, which hands them to the
// handler of log: not even whether a record is wanted is asked before.
func (q *Queue) Logger(log *slog.Logger) *slog.Logger {
	if log.Handler() == slog.DiscardHandler {
		return log
	}
	return slog.New(handler{q, log.Handler()})
}

type handler struct {
	queue *Queue
	to    slog.Handler
}

func (h handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	h.queue.Do(func() {
		if h.to.Enabled(ctx, r.Level) {
			_ = h.to.Handle(ctx, r) // as slog.Logger does
		}
	})
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.queue, h.to.WithAttrs(attrs)}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.queue, h.to.WithGroup(name)}
}
