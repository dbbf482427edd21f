package main

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestTroubleIsTheLastRefusal(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	seen := new(trouble)
	rdb.AddHook(seen)
	ctx := t.Context()
	require.ErrorIs(t, rdb.Eval(ctx, "return false", nil).Err(), redis.Nil)
	require.Error(t, rdb.EvalSha(ctx, "0123456789012345678901234567890123456789", nil).Err())
	require.NoError(t, seen.seen(), "a script that is not loaded is sent again")
	_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Eval(ctx, "return redis.error_reply('READONLY of a script')", nil)
		pipe.Ping(ctx)
		return nil
	})
	require.ErrorContains(t, err, "READONLY")
	require.ErrorContains(t, seen.seen(), "READONLY")
	srv.Kill()
	nobody := redis.NewClient(&redis.Options{Addr: srv.Addr(), DialerRetries: 1, MaxRetries: -1})
	defer func() { require.NoError(t, nobody.Close()) }()
	nobody.AddHook(seen)
	require.Error(t, nobody.Ping(ctx).Err())
	require.ErrorContains(t, seen.seen(), "connection refused")
}

func TestProgressSaysWhyThereIsNoLock(t *testing.T) {
	for want, p := range map[string]struct {
		heard bool
		why   error
	}{
		"rlock: no answer from h:1/0 yet\n":                 {},
		"rlock: no lock from h:1/0 yet: READONLY replica\n": {why: errors.New("READONLY replica")},
		"": {heard: true, why: errors.New("x")},
	} {
		redistest.Bubble(t, func(t *testing.T) {
			out, err := os.CreateTemp(t.TempDir(), "")
			require.NoError(t, err)
			defer func() { require.NoError(t, out.Close()) }()
			progress := newProgress(out, false)
			stop := progress.expect("h:1/0", func() error { return p.why })
			progress.heard.Store(p.heard)
			time.Sleep(patience)
			synctest.Wait()
			stop()
			said, err := os.ReadFile(out.Name())
			require.NoError(t, err)
			require.Equal(t, want, string(said))
		})
	}
}
