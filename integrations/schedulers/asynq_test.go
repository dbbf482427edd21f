package schedulers_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/jobs"
)

// enqueue puts a task for each fire into a queue of asynq. A host that dies between the two leaves the fire
// to another, and the id keeps the task from being there twice.
func enqueue(ctx context.Context, job *jobs.Job, client *asynq.Client, task string) error {
	return job.Run(ctx, func(ctx context.Context, fire time.Time) error {
		at := strconv.FormatInt(fire.UnixMilli(), 10)
		_, err := client.EnqueueContext(ctx, asynq.NewTask(task, []byte(at)), asynq.TaskID(task+":"+at), asynq.Retention(time.Hour))
		if errors.Is(err, asynq.ErrTaskIDConflict) {
			return nil
		}
		return err
	})
}

func TestAsynq(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var f fires
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: s.Addr()}, asynq.Config{LogLevel: asynq.FatalLevel, TaskCheckInterval: 100 * time.Millisecond})
	require.NoError(t, server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		ms, err := strconv.ParseInt(string(task.Payload()), 10, 64)
		f.add(time.UnixMilli(ms))
		return err
	})))
	t.Cleanup(server.Shutdown)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for range 3 {
		client := asynq.NewClient(asynq.RedisClientOpt{Addr: s.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		job := jobs.New(host(t, s), "report", jobs.Every(time.Second), jobs.AtLeastOnce())
		go func() { ended <- enqueue(ctx, job, client, "report") }()
	}
	f.await(t, 4)
	cancel()
	for range 3 {
		require.ErrorIs(t, <-ended, context.Canceled)
	}
}
