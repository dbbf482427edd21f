package report_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/report"
)

// asked is a handler that is slow to say what it wants.
type asked struct {
	slog.Handler
	block chan struct{}
}

func (a asked) Enabled(_ context.Context, level slog.Level) bool {
	<-a.block
	return level >= slog.LevelWarn
}

func TestLoggerWaitsForNothing(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var q report.Queue
		var text bytes.Buffer
		block := make(chan struct{})
		log := q.Logger(slog.New(asked{slog.NewTextHandler(&text, nil), block}))
		log.Info("unwanted")
		log.Warn("first", "error", "e")
		written := time.Now()
		time.Sleep(time.Hour)
		close(block)
		log.With("a", 1).WithGroup("g").Error("second", "b", 2)
		require.NoError(t, q.Wait(t.Context()))
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		require.NotContains(t, text.String(), "unwanted")
		assert.Contains(t, lines[0], "time="+written.Format("2006-01-02T15:04:05.000Z07:00"), "when it happened")
		assert.Contains(t, lines[0], "msg=first error=e")
	})
}

func TestNobodyIsTold(t *testing.T) {
	var q report.Queue
	silent := slog.New(slog.DiscardHandler)
	assert.Same(t, silent, q.Logger(silent))
}
