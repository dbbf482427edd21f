package schedulers_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/internal/redistest"
)

var _ gocron.Elector = (*election.Election)(nil)

// An election is gocron's Elector as it is. Of three schedulers the leader's runs the jobs, and another one after
// the resignation.
func TestGocronElector(t *testing.T) {
	s := redistest.Start(t)
	var ran [3]atomic.Int64
	var stop [3]context.CancelFunc
	var led sync.WaitGroup
	for i := range ran {
		e := election.New(host(t, s), "scheduler", "")
		var ctx context.Context
		ctx, stop[i] = context.WithCancel(t.Context())
		led.Go(func() {
			_ = e.Run(ctx, func(ctx context.Context, _ *election.Term) error {
				<-ctx.Done()
				return ctx.Err()
			})
		})
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(e))
		require.NoError(t, err)
		_, err = scheduler.NewJob(gocron.DurationJob(50*time.Millisecond), gocron.NewTask(func() { ran[i].Add(1) }))
		require.NoError(t, err)
		scheduler.Start()
		t.Cleanup(func() { require.NoError(t, scheduler.Shutdown()) })
	}
	t.Cleanup(func() {
		for _, stop := range stop {
			stop()
		}
		led.Wait()
	})
	// who returns the only scheduler that has run more than some jobs, beyond what was counted before.
	who := func(before [3]int64) (leader int) {
		redistest.Eventually(t, "jobs run", func() bool {
			for i := range ran {
				if leader = i; ran[i].Load() >= before[i]+5 {
					return true
				}
			}
			return false
		})
		for i := range ran {
			require.True(t, i == leader || ran[i].Load() == before[i], "scheduler %d runs beside %d", i, leader)
		}
		return leader
	}
	first := who([3]int64{})
	stop[first]()
	time.Sleep(300 * time.Millisecond) // a job of the former leader may have begun
	before := [3]int64{}
	for i := range ran {
		before[i] = ran[i].Load()
	}
	require.NotEqual(t, first, who(before))
}
