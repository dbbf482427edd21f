package request

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// costly is a server on the clock of a bubble, to which each pipeline costs something,
// and each command in it. It serves one at a time.
type costly struct {
	free  chan struct{} // capacity 1
	each  time.Duration // what a command costs
	done  atomic.Int64  // commands
	stall atomic.Int64  // how long the next pipeline takes beside that
}

func (s *costly) work(_ context.Context, cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		cmd.Args()
	}
	s.free <- struct{}{}
	time.Sleep(50*time.Microsecond + time.Duration(len(cmds))*s.each + time.Duration(s.stall.Swap(0)))
	s.done.Add(int64(len(cmds)))
	<-s.free
	return nil
}

func newCostly(t *testing.T, each time.Duration) (*costly, *Group) {
	s := &costly{free: make(chan struct{}, 1), each: each}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	rdb.AddHook(redistest.Answers(s.work))
	t.Cleanup(func() { _ = rdb.Close() })
	return s, groupOn(rdb)
}

const window = 200 * time.Millisecond

// rates returns how many requests so many goroutines make in a while, and how many
// in the one after a server's stall.
func rates(t *testing.T, goroutines int, stall time.Duration) (before, after int64) {
	redistest.Bubble(t, func(t *testing.T) {
		s, g := newCostly(t, 5*time.Microsecond)
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
	for _, n := range []int{1, 64, 512, 768, 1024, 4096} {
		for _, stall := range []time.Duration{100 * time.Millisecond, 3 * time.Second} {
			before, after := rates(t, n, stall)
			t.Logf("%d goroutines: %d, %d after %v", n, before, after, stall)
			require.GreaterOrEqual(t, float64(after), 0.95*float64(before))
			require.GreaterOrEqual(t, float64(before), 0.9*float64(best))
			best = max(best, before)
		}
	}
}

// A server that cannot serve all who ask at once within the bound of an attempt is not
// made to work for those that are asking again by then.
func TestFakeTimeOverload(t *testing.T) {
	for each, bound := range map[time.Duration]time.Duration{
		time.Millisecond:       2 * time.Second,
		5 * time.Millisecond:   2 * time.Second,
		200 * time.Microsecond: 100 * time.Millisecond, // a batch is answered in time for it, and not for its calls
	} {
		if testing.Short() && bound > time.Second {
			continue // 5 s of computing
		}
		redistest.Bubble(t, func(t *testing.T) {
			const callers = 2048
			s, g := newCostly(t, each)
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					p := Policy{Attempt: bound, Total: time.Minute, Classify: Classify}
					a := Do(t.Context(), p, func(ctx context.Context, opts Options, _ func(bool, error)) (bool, bool, error) {
						return true, false, askOrLate(ctx, g, "good", opts.Bound, nil)
					}, nil)
					assert.Equal(t, Done, a.End)
				})
			}
			began := time.Now()
			all.Wait()
			t.Logf("%v each: %v, %d executed for %d callers", each, time.Since(began), s.done.Load(), callers)
			require.Less(t, s.done.Load(), int64(4*callers))
			time.Sleep(5 * time.Minute) // until the server has done what was given up
			idle(t, g)
		})
	}
}
