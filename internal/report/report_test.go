package report_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Dials) }

const limit = 8192

func TestCallsKeepTheirOrder(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var q report.Queue
		var made []int
		for i := range 100 {
			q.Do(func() {
				made = append(made, i)
				if i == 50 { // it may use the queue
					q.Do(func() { made = append(made, 100) })
				}
			})
			if i%30 == 0 {
				synctest.Wait()
			}
		}
		require.NoError(t, q.Wait(t.Context()))
		require.Len(t, made, 101)
		last := -1
		for _, i := range made {
			if i != 100 {
				assert.Equal(t, last+1, i)
				last = i
			}
		}
		require.NoError(t, q.Wait(t.Context()), "there is nothing")
	})
}

// The handler of a logger may panic, and nobody else could recover that.
func TestCallThatPanics(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var q report.Queue
		made := 0
		for range 3 {
			q.Do(func() { made++; panic("handler") })
		}
		require.NoError(t, q.Wait(t.Context()))
		require.Equal(t, 3, made)
	})
}

// FailNow of a test ends the goroutine that it is called in.
func TestCallThatEndsItsGoroutine(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var q report.Queue
		var made []int
		q.Dropped = func(int) { runtime.Goexit() }
		for i := range limit + 3 {
			q.Do(func() {
				if made = append(made, i); i < 2 {
					runtime.Goexit()
				}
			})
		}
		require.NoError(t, q.Wait(t.Context()))
		q.Do(func() { made = append(made, -1) })
		require.NoError(t, q.Wait(t.Context()))
		require.Equal(t, []int{0, 1, 2}, made[:3])
		require.Equal(t, -1, made[len(made)-1])
	})
}

func TestNoGoroutineWithoutCalls(t *testing.T) {
	redistest.Bubble(t, func(*testing.T) { // fails if one is left
		var q report.Queue
		q.Do(func() { time.Sleep(time.Hour) })
		synctest.Wait()
		q.Do(func() {})
		time.Sleep(2 * time.Hour)
	})
}

func TestWhatHasNoRoomIsCounted(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var told []int
		made := 0
		q := &report.Queue{Dropped: func(n int) { told = append(told, n, made) }}
		blocked := make(chan struct{})
		q.Do(func() { <-blocked })
		synctest.Wait()
		for range limit + 77 {
			q.Do(func() { made++ })
		}
		close(blocked)
		synctest.Wait()
		assert.Equal(t, limit, made)
		assert.Equal(t, []int{77, limit}, told, "after those before it")
		q.Do(func() { made++ })
		synctest.Wait()
		assert.Len(t, told, 2, "once")
	})
}

// Each call that panics puts those behind it back: they are no more for that.
func TestPanicsDoNotLengthenTheQueue(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		dropped, made := 0, 0
		q := &report.Queue{Dropped: func(n int) { dropped += n }}
		const panics = 20
		for range panics {
			q.Do(func() { time.Sleep(time.Second); panic("handler") })
		}
		for range panics { // while each of those is slow
			for range limit {
				q.Do(func() { made++ })
			}
			time.Sleep(time.Second)
		}
		require.NoError(t, q.Wait(t.Context()))
		require.LessOrEqual(t, made, 3*limit)
		require.Equal(t, panics*limit, made+dropped)
	})
}

func TestWaitIsBounded(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var q report.Queue
		blocked := make(chan struct{})
		q.Do(func() { <-blocked })
		start := time.Now()
		late := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, late)
		defer cancel()
		require.Equal(t, late, q.Wait(ctx))
		assert.Equal(t, time.Second, time.Since(start))
		close(blocked)
		require.NoError(t, q.Wait(t.Context()))
	})
}

func TestManyAtOnce(t *testing.T) {
	var q report.Queue
	made := 0 // by one at a time, or the race detector complains
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				q.Do(func() { made++ })
			}
		})
	}
	wg.Wait()
	require.NoError(t, q.Wait(t.Context()))
	assert.Equal(t, 8000, made)
}

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
