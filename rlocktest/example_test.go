package rlocktest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/jobs"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// Job is code of a user of rlock; the tests in this file are what its tests may
// look like.
type Job struct {
	Locks   *rlock.Client
	Takes   time.Duration
	Stopped time.Time // end of the work
}

// Run does the work of a job under its lock, and stops when that is lost.
func (j *Job) Run(ctx context.Context) error {
	return j.Locks.NewLock("invoice:42").Do(ctx, j.work)
}

func (j *Job) work(ctx context.Context) error {
	defer func() { j.Stopped = time.Now() }()
	select {
	case <-time.After(j.Takes):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestJobStopsWhenItsLockIsLost(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		job := &Job{Locks: server.Locks(nil), Takes: time.Hour}
		result := make(chan error)
		go func() { result <- job.Run(t.Context()) }()
		synctest.Wait() // it holds the lock and works

		server.Evict("invoice:42")
		start := time.Now()
		if err := <-result; !errors.Is(err, rlock.ErrLeaseLost) {
			t.Errorf("Run: %v", err)
		}
		if d := time.Since(start); d > rlock.DefaultLeaseTime/3 {
			t.Errorf("stopped only after %v", d)
		}
	})
}

func TestJobStopsBeforeAnotherCanStart(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		job := &Job{Locks: server.Locks(nil), Takes: time.Hour}
		result := make(chan error)
		go func() { result <- job.Run(t.Context()) }()
		time.Sleep(time.Minute) // its lease has been renewed some times

		server.Hang()
		start := time.Now()
		if err := <-result; !errors.Is(err, rlock.ErrLeaseLost) {
			t.Errorf("Run: %v", err)
		}
		// Run has tried to unlock since then.
		if d := job.Stopped.Sub(start); d > rlock.DefaultLeaseTime {
			t.Errorf("stopped only after %v", d)
		}
	})
}

// A week of fires of package jobs.
func TestAReportForEachDay(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		var reports atomic.Int64
		for range 3 { // hosts
			job := jobs.New(server.Locks(nil), "report", jobs.Every(24*time.Hour))
			go func() {
				_ = job.Run(t.Context(), func(context.Context, time.Time) error {
					reports.Add(1)
					return nil
				})
			}()
		}
		time.Sleep(7*24*time.Hour + time.Minute)
		if n := reports.Load(); n != 7 {
			t.Errorf("%d reports", n)
		}
	})
}

func TestJobsRunOneAfterTheOther(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		start := time.Now()
		result := make(chan error)
		for range 3 { // processes
			job := &Job{Locks: server.Locks(nil), Takes: time.Minute}
			go func() { result <- job.Run(t.Context()) }()
		}
		for range 3 {
			if err := <-result; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
		if d := time.Since(start); d.Round(time.Second) != 3*time.Minute {
			t.Errorf("took %v", d)
		}
	})
}
