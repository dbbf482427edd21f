package schedulers_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/jobs"
)

// Each host has a scheduler of gocron, which begins at a moment of its own. The work has the context of the
// lock, so this is better than a Locker.
func TestGocronTask(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var f fires
	for range 3 {
		locks := host(t, s)
		job := jobs.New(locks, "report", jobs.Every(time.Second))

		scheduler, err := gocron.NewScheduler()
		require.NoError(t, err)
		_, err = scheduler.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(func(ctx context.Context) error {
			_, err := job.Do(ctx, func(ctx context.Context, fire time.Time) error {
				f.add(fire)
				if locks.NewLock("report").Owner(ctx) == "" {
					t.Error("the work does not own the lock")
				}
				return nil
			})
			return err
		}))
		require.NoError(t, err)

		scheduler.Start()
		t.Cleanup(func() { require.NoError(t, scheduler.Shutdown()) })
		time.Sleep(230 * time.Millisecond)
	}
	f.await(t, 4)
}

// Locker makes each fire of a job of gocron run on one host only:
// gocron.WithDistributedJobLocker(Locker{job}).
type Locker struct{ Job *jobs.Job }

// Lock implements [gocron.Locker]. gocron skips the run if there is an error.
func (l Locker) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	_, run, err := l.Job.Begin(context.WithoutCancel(ctx)) // gocron cancels ctx while the job runs
	if err != nil {
		return nil, err
	}
	return running{run}, nil
}

type running struct{ *jobs.Run }

// Unlock implements [gocron.Lock].
func (r running) Unlock(ctx context.Context) error { return r.End(ctx) }

func TestGocronLocker(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var f fires
	for range 3 {
		job := jobs.New(host(t, s), "report", jobs.Every(time.Second))

		scheduler, err := gocron.NewScheduler()
		require.NoError(t, err)
		_, err = scheduler.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(func() { f.begun.Add(1) }),
			gocron.WithDistributedJobLocker(counting{Locker{job}, &f}))
		require.NoError(t, err)

		scheduler.Start()
		t.Cleanup(func() { require.NoError(t, scheduler.Shutdown()) })
		time.Sleep(230 * time.Millisecond)
	}
	f.await(t, 4)
	require.Positive(t, f.begun.Load())
}

// counting notes what a Locker lets run.
type counting struct {
	Locker
	f *fires
}

func (c counting) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lock, err := c.Locker.Lock(ctx, key)
	if err == nil {
		c.f.add(lock.(running).Fire())
	}
	return lock, err
}
