package schedulers_test

import (
	"context"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/jobs"
	"github.com/go-rlock/rlock/rlock"
)

// Once is for cron.NewChain: each fire of the wrapped job runs on one host.
func Once(ctx context.Context, job *jobs.Job, failed func(error)) cron.JobWrapper {
	return func(wrapped cron.Job) cron.Job {
		return cron.FuncJob(func() {
			if _, err := job.Do(ctx, func(context.Context, time.Time) error { wrapped.Run(); return nil }); err != nil {
				failed(err)
			}
		})
	}
}

var seconds = cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

func TestCron(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var f fires
	// t.Context() would end before the schedulers stop, so a fire of that moment would fail.
	ctx := context.WithoutCancel(t.Context())
	for range 3 {
		schedule, err := seconds.Parse("CRON_TZ=UTC * * * * * *")
		require.NoError(t, err)
		job := jobs.New(host(t, s), "report", schedule)

		c := cron.New(cron.WithChain(Once(ctx, job, func(err error) { t.Error(err) })))
		c.Schedule(schedule, cron.FuncJob(func() {
			fire, err := job.Newest(ctx)
			if err != nil {
				t.Error(err)
			}
			f.add(fire)
		}))
		c.Start()
		t.Cleanup(func() { <-c.Stop().Done() })
	}
	f.await(t, 4)
}

// A schedule of cron for job.Run, without a cron.
func TestCronSchedule(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var f fires
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for range 3 {
		schedule, err := seconds.Parse("CRON_TZ=Europe/Berlin */1 * * * * *")
		require.NoError(t, err)
		go func() { ended <- jobs.New(host(t, s), "report", schedule).Run(ctx, f.note) }()
	}
	f.await(t, 4)
	cancel()
	for range 3 {
		require.ErrorIs(t, <-ended, context.Canceled)
	}
}

// @every counts from the start of each host.
func TestCronEvery(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, spec := range []string{"@every 1m", "@every 90s", "@every 24h"} {
		schedule, err := cron.ParseStandard(spec)
		require.NoError(t, err)
		_, err = jobs.New(host(t, s), "report", schedule).Do(t.Context(), f0)
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
		require.ErrorContains(t, err, "use jobs.Every")
	}
	for _, spec := range []string{"0 3 * * *", "@daily", "30 2 29 2 *", "CRON_TZ=Europe/Berlin 30 2 * * *"} {
		schedule, err := cron.ParseStandard(spec)
		require.NoError(t, err)
		ran, err := jobs.New(host(t, s), spec, schedule).Do(t.Context(), f0)
		require.NoError(t, err)
		require.True(t, ran, spec)
	}
}

func f0(context.Context, time.Time) error { return nil }
