package kind

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// How many replicas have a grant is asked behind the script, on the same connection. Too few are no
// grant, and something is left that has to be released; the answer to a refusal does not matter.
func TestFakeTimeGrantIsAcknowledgedByReplicas(t *testing.T) {
	errCut := errors.New("EOF")
	granted, refused := any(int64(1)), any([]any{int64(0), int64(7000), "you:1"})
	for name, tt := range map[string]struct {
		script, wait any
		acquired     bool
		err          error
	}{
		"enough":                {granted, int64(2), true, nil},
		"more":                  {granted, int64(3), true, nil},
		"too few":               {granted, int64(1), false, &NotReplicated{Want: 2, Got: 1}},
		"none":                  {granted, int64(0), false, &NotReplicated{Want: 2}},
		"it is not known":       {granted, errCut, false, &NotReplicated{Want: 2, Err: errCut}},
		"refused":               {refused, int64(0), false, nil},
		"refused, and no WAIT":  {refused, errCut, false, nil},
		"the script has failed": {errLoading, int64(2), false, errLoading},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFake(t, "me")
				f.answers(func(_ context.Context, words []any) any {
					if words[0] == "wait" {
						return tt.wait
					}
					return tt.script
				})
				p := &Replicated{Plain: NewQueued(f.Server, "lock", false), Want: 2, Timeout: 300 * time.Millisecond}
				require.False(t, p.Gathers(true), "it would keep others waiting")
				require.True(t, p.Gathers(false))
				a, err := p.Acquire(t.Context(), nil, "me:1", time.Minute, Options{})
				require.Equal(t, tt.err, err)
				require.Equal(t, tt.acquired, a.Acquired)
				require.Equal(t, []int{2}, f.sizes, "one pipeline")
				sent := f.commands()
				require.Equal(t, "evalsha", sent[0][0])
				require.Equal(t, []any{"wait", 2, int64(300)}, sent[1])
				short, ok := err.(*NotReplicated)
				require.Equal(t, ok, a.Leftover)
				if ok {
					require.Equal(t, short.Err, errors.Unwrap(err))
					outcome, final := Classify(err)
					require.Equal(t, request.Answered, outcome)
					require.True(t, final, "who repeats it must have released it before")
				}
				if _, refused := tt.script.([]any); refused {
					require.Equal(t, lua.Reply{TTL: 7 * time.Second, Holder: "you:1"}, a)
				}
			})
		})
	}
}

// Only a grant has to be acknowledged.
func TestFakeTimeRequestsWithoutReplicas(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		p := &Replicated{Plain: NewQueued(f.Server, "lock", false), Want: 2, Timeout: time.Second}
		_, err := p.Release(t.Context(), f.Scripts, "me:1", lua.Ending{})
		require.NoError(t, err)
		_, err = p.SetCount(t.Context(), f.Scripts, "me:1", time.Minute, Count{Exclusive: 2})
		require.NoError(t, err)
		sent := f.commands()
		require.Len(t, sent, 2)
		for _, words := range sent {
			require.NotEqual(t, "wait", words[0])
		}
	})
}

// slowReplicas has a server take as long for a WAIT as the replicas may, and counts how many it
// has to do at once.
func slowReplicas(f *fake, takes time.Duration) (most func() int64) {
	var inside, peak atomic.Int64
	f.answers(func(_ context.Context, words []any) any {
		if words[0] != "wait" {
			return int64(1)
		}
		peak.Store(max(peak.Load(), inside.Add(1)))
		time.Sleep(takes)
		inside.Add(-1)
		return int64(0)
	})
	return peak.Load
}

// However many callers ask for a quorum lock at once, few connections of each server are busy with it,
// and all are told in a few round trips. What is to be given back goes by the janitor's pipelines.
func TestFakeTimeManySharesAtOnce(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const roundTrip = 50 * time.Millisecond
		all, servers := newFakes(t)
		var inside, peak atomic.Int64
		for _, f := range all {
			f.answers(func(ctx context.Context, words []any) any {
				if words[0] == "info" { // ends a pipeline
					peak.Store(max(peak.Load(), inside.Add(1)))
					time.Sleep(roundTrip)
					inside.Add(-1)
				}
				return granting().says(ctx, f.ID, words)
			})
		}
		began := time.Now()
		var callers sync.WaitGroup
		for i := range 500 {
			q := NewQuorum(servers, fmt.Sprint("lock", i), false, lease)
			callers.Go(func() {
				a, err := q.Acquire(t.Context(), nil, "", lease, Options{})
				assert.NoError(t, err)
				assert.True(t, a.Acquired)
			})
		}
		callers.Wait()
		require.LessOrEqual(t, time.Since(began), 2*roundTrip)
		require.LessOrEqual(t, peak.Load(), int64(len(all)*maxTrailed))
		synctest.Wait()
		all[0].votes(granting())
		all[1].votes(held("x", lease))
		all[2].votes(held("x", lease))
		_, err := NewQuorum(servers, "lock", false, lease).Acquire(t.Context(), nil, "", lease, Options{})
		require.NoError(t, err)
		back := sweeps(all)
		require.Len(t, back, 1)
		require.True(t, back[0].gathers)
	})
}

// However many callers ask while replicas are away, few connections wait for these, and all callers
// are told in twice the time that the replicas have.
func TestFakeTimeManyWaitForReplicas(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const takes = 500 * time.Millisecond
		f := newFake(t, "me")
		most := slowReplicas(f, takes)
		began := time.Now()
		var all sync.WaitGroup
		for i := range 1000 {
			p := &Replicated{Plain: NewQueued(f.Server, fmt.Sprint("lock", i), false), Want: 1, Timeout: takes}
			all.Go(func() {
				_, err := p.Acquire(t.Context(), nil, "me:1", time.Minute, Options{})
				assert.Equal(t, &NotReplicated{Want: 1}, err)
			})
		}
		all.Wait()
		require.LessOrEqual(t, time.Since(began), 2*takes)
		require.LessOrEqual(t, most(), int64(maxTrailed))
		synctest.Wait()
		scripts, waits := 0, 0
		for _, words := range f.commands() {
			switch words[0] {
			case "evalsha":
				scripts++
			case "wait":
				waits++
			}
		}
		require.Equal(t, 1000, scripts)
		require.Equal(t, len(f.sizes), waits, "one behind each pipeline")
	})
}

// Those that ask for something else wait for something else. Together they have no more
// connections.
func TestFakeTimeOtherReplicasAreWaitedForApart(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		most := slowReplicas(f, 100*time.Millisecond)
		var all sync.WaitGroup
		for i := range 64 {
			p := &Replicated{Plain: NewQueued(f.Server, fmt.Sprint("lock", i), false), Want: 1 + i%2, Timeout: time.Duration(1+i%4) * time.Millisecond}
			all.Go(func() { _, _ = p.Acquire(t.Context(), nil, "me:1", time.Minute, Options{}) })
		}
		all.Wait()
		scripts := make(map[string]int)
		n := 0
		for _, words := range f.commands() {
			if n++; words[0] == "wait" {
				scripts[fmt.Sprint(words[1:]...)] += n - 1
				n = 0
			}
		}
		require.Equal(t, map[string]int{"1 1": 16, "2 2": 16, "1 3": 16, "2 4": 16}, scripts)
		require.LessOrEqual(t, most(), int64(maxTrailed))
	})
}

// Whoever leaves before anything was sent has sent nothing.
func TestFakeTimeLeavingBeforeReplicasAreAsked(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		slowReplicas(f, time.Second)
		p := &Replicated{Plain: NewQueued(f.Server, "lock", false), Want: 1, Timeout: time.Second}
		var all sync.WaitGroup
		for range maxTrailed {
			all.Go(func() { _, _ = p.Acquire(t.Context(), nil, "me:1", time.Minute, Options{}) })
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := p.Acquire(ctx, nil, "me:2", time.Minute, Options{})
		require.Equal(t, request.ErrNotSent, err)
		all.Wait()
		require.Len(t, f.commands(), 2*maxTrailed)
	})
}

// Hooks of the client can tell for whom a pipeline is.
func TestFakeTimeCallersThatWaitForReplicas(t *testing.T) {
	type key struct{}
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		var mu sync.Mutex
		seen := make(map[any]int)
		f.answers(func(ctx context.Context, words []any) any {
			if words[0] == "wait" {
				callers := request.Callers(ctx)
				if callers == nil {
					callers = []context.Context{ctx}
				}
				mu.Lock()
				for _, caller := range callers {
					seen[caller.Value(key{})]++
				}
				mu.Unlock()
				time.Sleep(time.Second)
			}
			return int64(1)
		})
		p := &Replicated{Plain: NewQueued(f.Server, "lock", false), Want: 1, Timeout: time.Second}
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				_, _ = p.Acquire(context.WithValue(t.Context(), key{}, i), nil, "me:1", time.Minute, Options{})
			})
		}
		all.Wait()
		require.Len(t, seen, 100)
		for i, n := range seen {
			require.Equal(t, 1, n, i)
		}
	})
}

// A connection that says nothing any more keeps others waiting for a moment only, and not without
// a bound: as many again are tried, no more.
func TestFakeTimeConnectionsThatHangWhileReplicasAreAsked(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const hang = time.Minute
		f := newFake(t, "me")
		var hung atomic.Int64
		silent := int64(maxTrailed)
		f.answers(func(_ context.Context, words []any) any {
			if words[0] == "wait" {
				if hung.Add(1) <= silent {
					time.Sleep(hang)
				}
				return int64(1)
			}
			return int64(1)
		})
		p := &Replicated{Plain: NewQueued(f.Server, "lock", false), Want: 1, Timeout: 100 * time.Millisecond}
		var all sync.WaitGroup
		acquire := func(bound time.Duration, want error) {
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			_, err := p.Acquire(ctx, nil, "me:1", time.Minute, Options{})
			assert.Equal(t, want, err)
		}
		for range maxTrailed {
			all.Go(func() { acquire(time.Second, nil) })
			synctest.Wait()
		}
		began := time.Now()
		acquire(2*time.Second, nil)
		require.Equal(t, p.Timeout+overdue, time.Since(began))

		silent = 3 * maxTrailed // the next as well
		hung.Store(maxTrailed)
		for range maxTrailed {
			all.Go(func() { acquire(time.Second, nil) })
			synctest.Wait()
		}
		acquire(10*time.Second, request.ErrCrowded)
		require.EqualValues(t, 2*maxTrailed, hung.Load())
		all.Wait()
		synctest.Wait()
	})
}

// The error of a hook of the client, which may tell it to no command, is that of the request.
func TestFakeTimeHookRefusesWhatReplicasAreAskedFor(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		broken := errors.New("breaker is open")
		f := newFake(t, "me")
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer rdb.Close()
		rdb.AddHook(breaker{broken})
		f.Server.RDB, f.Server.Trailed = rdb, trailed(rdb)
		p := &Replicated{Plain: NewQueued(f.Server, "lock", false), Want: 1, Timeout: time.Second}
		_, err := p.Acquire(t.Context(), nil, "me:1", time.Minute, Options{})
		require.ErrorIs(t, err, broken)
		outcome, _ := Classify(err)
		require.Equal(t, request.NotExecuted, outcome)
	})
}

// breaker is a hook that refuses all pipelines.
type breaker struct{ err error }

func (r breaker) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (r breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (r breaker) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return r.err }
}

// A hook of the application ends the goroutine that sends. Its callers are told that there was no
// answer, and others are served as before.
func TestFakeTimeHookEndsThePipelineOfReplicas(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		var ends atomic.Bool
		f.answers(func(_ context.Context, words []any) any {
			if ends.Load() {
				runtime.Goexit()
			}
			return int64(1)
		})
		p := &Replicated{Plain: NewQueued(f.Server, "lock", false), Want: 1, Timeout: time.Second}
		ends.Store(true)
		for range 2 * maxTrailed { // one after the other, and then together
			_, err := p.Acquire(t.Context(), nil, "me:1", time.Minute, Options{})
			require.Equal(t, request.ErrNoAnswer, err)
		}
		var all sync.WaitGroup
		for range 2 * maxTrailed {
			all.Go(func() {
				_, err := p.Acquire(t.Context(), nil, "me:1", time.Minute, Options{})
				assert.Equal(t, request.ErrNoAnswer, err)
			})
		}
		all.Wait()
		synctest.Wait()
		ends.Store(false)
		_, err := p.Acquire(t.Context(), nil, "me:1", time.Minute, Options{})
		require.NoError(t, err)
	})
}
