package report

import (
	"context"
	"log/slog"
)

// Logger returns a logger that puts records into q, and q calls the handler of log. Even the
// question whether the handler wants a record goes through q.
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
