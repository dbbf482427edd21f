package rlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// A context ends while a request for the lock has no answer yet, and the request is not late. The error is ErrNotAcquired if a refusal
// is known, however old the request is, and if the request is too young to have an answer. Otherwise Redis
// is silent.
func TestFakeTimeContextEndsWhileARequestIsUnderWay(t *testing.T) {
	type lockFor func(ctx context.Context, wait time.Duration) error
	nothing := func(context.Context) error { return nil }
	waits := func(mu *rlock.Lock) lockFor {
		return func(ctx context.Context, wait time.Duration) error {
			return mu.DoFor(ctx, wait, nothing)
		}
	}
	plain := func(t *testing.T, opts ...rlock.LockOption) ([]*fakeRedis, *rlock.Lock, lockFor) {
		f := newFakeRedis(t)
		return []*fakeRedis{f}, f.client(t, nil).NewLock("a"), waits(f.client(t, nil).NewLock("a", opts...))
	}
	kinds := map[string]func(t *testing.T) (servers []*fakeRedis, other *rlock.Lock, call lockFor){
		"plain": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) { return plain(t) },
		"polling": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			return plain(t, rlock.WithPolling(rlock.Polling{}))
		},
		"Lock": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			f := newFakeRedis(t)
			mu := f.client(t, nil).NewLock("a")
			return []*fakeRedis{f}, f.client(t, nil).NewLock("a"), func(ctx context.Context, wait time.Duration) error {
				ctx, stop := context.WithTimeout(ctx, wait)
				defer stop()
				return mu.Do(ctx, nothing)
			}
		},
		"fair": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			f := newFakeRedis(t)
			return []*fakeRedis{f}, f.client(t, nil).NewFairLock("a"), waits(f.client(t, nil).NewFairLock("a"))
		},
		"writer": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			f := newFakeRedis(t)
			return []*fakeRedis{f}, f.client(t, nil).NewRWLock("a").Reader(), waits(f.client(t, nil).NewRWLock("a").Writer())
		},
		"reader": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			f := newFakeRedis(t)
			return []*fakeRedis{f}, f.client(t, nil).NewRWLock("a").Writer(), waits(f.client(t, nil).NewRWLock("a").Reader())
		},
		"multi": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			f := newFakeRedis(t)
			c := f.client(t, nil)
			mu := rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"))
			return []*fakeRedis{f}, f.client(t, nil).NewLock("a"), func(ctx context.Context, wait time.Duration) error {
				return mu.DoFor(ctx, wait, nothing)
			}
		},
		"quorum": func(t *testing.T) ([]*fakeRedis, *rlock.Lock, lockFor) {
			all, _, mu := fakeServers(t)
			var others []*rlock.Client
			for _, f := range all {
				others = append(others, f.client(t, nil))
			}
			return all, rlock.NewQuorumLock("a", others), waits(mu)
		},
	}
	silent := func(all []*fakeRedis, yes bool) {
		for _, f := range all {
			f.deafDown.Store(yes)
		}
	}
	for name, kind := range kinds {
		for _, tt := range []struct {
			name   string
			held   bool          // by another client
			silent time.Duration // Redis is silent from then on
			wait   time.Duration
			want   error
		}{
			{"at the first request", true, 0, answerTime - 1, rlock.ErrNotAcquired},
			{"at the first request, for a free lock", false, 0, answerTime - 1, rlock.ErrNotAcquired},
			{"long after the first request", true, 0, answerTime, rlock.ErrUnavailable},
			{"at a later request", true, 500 * time.Millisecond, 1050 * time.Millisecond, rlock.ErrNotAcquired},
		} {
			t.Run(fmt.Sprint(name, " ", tt.name), func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					all, other, call := kind(t)
					require.NoError(t, call(t.Context(), time.Minute)) // answered: the servers are well
					if tt.held {
						held, hold := lock(t, t.Context(), other)
						defer func() { assert.NoError(t, hold.Unlock(held)) }()
					}
					failed := make(chan error, 2)
					silent(all, tt.silent == 0)
					for range cap(failed) { // the second waits behind the first; both end before the test does
						go func() { failed <- call(t.Context(), tt.wait) }()
					}
					if tt.silent > 0 {
						time.Sleep(tt.silent)
						synctest.Wait()
						silent(all, true)
					}
					one, two := <-failed, <-failed
					silent(all, false)
					for _, err := range []error{one, two} {
						require.ErrorIs(t, err, tt.want)
						require.ErrorIs(t, err, context.DeadlineExceeded)
					}
				})
			})
		}
	}
}

// answerTime is that of package rlock.
const answerTime = 5 * time.Millisecond
