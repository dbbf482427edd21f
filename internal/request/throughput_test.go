package request

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// costly is a server on the clock of a bubble, to which each pipeline costs something,
// and each command in it. It serves one at a time.
type costly struct {
	*line
	free  chan struct{} // capacity 1
	stall atomic.Int64  // how long the next pipeline takes beside that
}

func (s *costly) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return s.work(cmd) }
}

func (s *costly) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error { return s.work(cmds...) }
}

func (s *costly) work(cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		cmd.Args()
	}
	s.free <- struct{}{}
	time.Sleep(50*time.Microsecond + time.Duration(len(cmds))*5*time.Microsecond + time.Duration(s.stall.Swap(0)))
	<-s.free
	return nil
}

const window = 200 * time.Millisecond

// rates returns how many requests so many goroutines make in a while, and how many
// in the one after a server's stall.
func rates(t *testing.T, goroutines int, stall time.Duration) (before, after int64) {
	synctest.Test(t, func(t *testing.T) {
		s := &costly{line: &line{}, free: make(chan struct{}, 1)}
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		rdb.AddHook(s)
		defer func() { _ = rdb.Close() }()
		g := groupOn(rdb)
		ctx, cancel := context.WithCancel(t.Context())
		var n atomic.Int64
		for range goroutines {
			go func() {
				for ctx.Err() == nil {
					if ask(ctx, g, "good") == nil {
						n.Add(1)
					}
				}
			}()
		}
		count := func() int64 {
			was := n.Load()
			time.Sleep(window)
			return n.Load() - was
		}
		time.Sleep(100 * time.Millisecond)
		before = count()
		s.stall.Store(int64(stall))
		time.Sleep(stall + 100*time.Millisecond)
		after = count()
		cancel()
		time.Sleep(10 * time.Second)
		idle(t, g)
	})
	return before, after
}

// A stall does not end group commit, and more goroutines are never less.
func TestFakeTimeThroughputAfterAStall(t *testing.T) {
	redistest.Long(t, "10 s of computing")
	best := int64(0)
	for _, n := range []int{1, 64, 512, 1024, 4096} {
		for _, stall := range []time.Duration{100 * time.Millisecond, 3 * time.Second} {
			before, after := rates(t, n, stall)
			t.Logf("%d goroutines: %d, %d after %v", n, before, after, stall)
			require.GreaterOrEqual(t, float64(after), 0.95*float64(before))
			require.GreaterOrEqual(t, float64(before), 0.9*float64(best))
			best = max(best, before)
		}
	}
}
