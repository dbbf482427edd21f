package rlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// A server that answers ten times later than before gets at most a tenth of the requests once more: the copies
// that would find another connection if the first one were dead. The exception is the first request that takes
// longer than 100 ms. Nothing shows yet that the server is slow, so it gets the copies of a dead connection, up to
// the budget of the client: 48, and one in a second. See request.Copies.
func TestFakeTimeBrownoutGetsFewCopies(t *testing.T) {
	const budget, first, whole = 48, 10 * time.Second, 30 * time.Second
	for _, test := range []struct {
		callers int
		rtt     time.Duration
		early   int // repeated requests while nothing shows that the server is slow
	}{
		{1, time.Millisecond, 0},
		{20, time.Millisecond, 0},
		{1, 10 * time.Millisecond, 0},
		{20, 10 * time.Millisecond, 10},
		{1, 50 * time.Millisecond, budget + 10 + 2},
		{1, 100 * time.Millisecond, budget + 10 + 2},
	} {
		t.Run(fmt.Sprint(test.callers, " ", test.rtt), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				c := f.client(t, &rlock.Options{LeaseTime: time.Minute})
				f.late.Store(int64(test.rtt))
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for i := range test.callers {
					all.Go(func() {
						for n := 0; ctx.Err() == nil; n++ {
							held, hold, err := c.NewLock(fmt.Sprint(i, "-", n)).Lock(ctx)
							if err == nil {
								time.Sleep(10 * time.Millisecond)
								_ = hold.Unlock(held)
							}
						}
					})
				}
				time.Sleep(2 * time.Second)
				f.late.Store(int64(10 * test.rtt))
				began := f.now()
				time.Sleep(whole)
				cancel()
				all.Wait()
				seen := make(map[string]bool)
				var early, late struct{ requests, again int }
				f.mu.Lock()
				defer f.mu.Unlock()
				for _, r := range f.log {
					if r.at < began || !strings.HasPrefix(r.args[0], "eval") {
						continue
					}
					n := &early
					if r.at > began+first {
						n = &late
					}
					n.requests++
					what := strings.Join(r.args, " ")
					if seen[what] {
						n.again++
					}
					seen[what] = true
				}
				t.Logf("first %v: %+v, then %+v", first, early, late)
				require.LessOrEqual(t, early.again, test.early)
				require.LessOrEqual(t, late.again, late.requests/10)
			})
		})
	}
}
