package kind

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// taking is a request that server n answers after a while, with its number. It heeds no context, as
// go-redis does.
func taking(q *Quorum, takes ...time.Duration) func(context.Context, *Plain) (int, error) {
	return func(_ context.Context, p *Plain) (int, error) {
		n := slices.Index(q.nodes, p)
		time.Sleep(takes[n])
		return n + 1, nil
	}
}

// values are those of votes; 0 for one that is not there.
func values(votes []vote[int]) (all []int) {
	for _, v := range votes {
		all = append(all, v.value)
	}
	return all
}

// When a majority has answered the others have as long again, but not less than 2 ms. What they
// say later is told as well, once.
func TestFakeTimePollWaitsAsLongAgain(t *testing.T) {
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		takes  [3]time.Duration
		lease  time.Duration
		leaves time.Duration // the caller; 0: it does not
		took   time.Duration
		votes  []int
		late   []int
	}{
		"all at once":             {takes: [3]time.Duration{}, took: 0, votes: []int{1, 2, 3}},
		"one follows soon":        {takes: [3]time.Duration{10 * ms, 15 * ms, 10 * ms}, took: 15 * ms, votes: []int{1, 2, 3}},
		"one does not":            {takes: [3]time.Duration{10 * ms, 25 * ms, 10 * ms}, took: 20 * ms, votes: []int{1, 0, 3}, late: []int{2}},
		"one is a moment later":   {takes: [3]time.Duration{0, 0, ms}, took: ms, votes: []int{1, 2, 3}},
		"one is two":              {takes: [3]time.Duration{0, 0, 3 * ms}, took: 2 * ms, votes: []int{1, 2, 0}, late: []int{3}},
		"two are silent":          {takes: [3]time.Duration{0, time.Minute, time.Hour}, took: 500 * ms, votes: []int{1, 0, 0}, late: []int{2, 3}},
		"that, and a short lease": {takes: [3]time.Duration{0, time.Minute, time.Hour}, lease: time.Second, took: 100 * ms, votes: []int{1, 0, 0}, late: []int{2, 3}},
		"the caller leaves":       {takes: [3]time.Duration{0, 9 * ms, 8 * ms}, leaves: 5 * ms, took: 5 * ms, votes: []int{1, 0, 0}, late: []int{3, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				_, servers := newFakes(t)
				q, ctx, began := NewQuorum(servers, "lock", false, cmp.Or(tt.lease, lease)), t.Context(), time.Now()
				if tt.leaves > 0 {
					var leave context.CancelFunc
					ctx, leave = context.WithTimeout(ctx, tt.leaves)
					defer leave()
				}
				var mu sync.Mutex // guards late
				var late []int
				votes := ask(ctx, q, taking(q, tt.takes[:]...), decisive, decisive, func(n int, v vote[int]) {
					assert.Equal(t, n+1, v.value)
					mu.Lock()
					defer mu.Unlock()
					late = append(late, v.value)
				})
				require.Equal(t, tt.took, time.Since(began))
				require.Equal(t, tt.votes, values(votes))
				for _, v := range votes {
					require.Equal(t, v.value == 0, v.err == errPending)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, tt.late, late)
				require.Equal(t, tt.votes, values(votes), "the poll is over")
			})
		})
	}
}

// The end of the caller does not end the requests: they have as long as a server may take.
func TestFakeTimePollOutlivesItsCaller(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, servers := newFakes(t)
		q, began := NewQuorum(servers, "lock", false, lease), time.Now()
		ctx, leave := context.WithCancel(t.Context())
		leave()
		ended := make(chan time.Duration, 3)
		ask(ctx, q, func(ctx context.Context, _ *Plain) (int, error) {
			<-ctx.Done()
			ended <- time.Since(began)
			return 0, ctx.Err()
		}, decisive, decisive, nil)
		require.Zero(t, time.Since(began))
		for range 3 {
			require.Equal(t, 500*time.Millisecond, <-ended)
		}
	})
}

// A server that has not answered an earlier request is not waited for if the others will do. When it
// has answered that, it is waited for again.
func TestFakeTimePollKnowsWhoIsSlow(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, servers := newFakes(t)
		q := NewQuorum(servers, "lock", false, lease)
		poll := func(willDo func([]vote[int]) bool, takes time.Duration) time.Duration {
			began := time.Now()
			ask(t.Context(), q, taking(q, 0, 0, takes), func([]vote[int]) bool { return false }, willDo, nil)
			return time.Since(began)
		}
		never := func([]vote[int]) bool { return false }
		require.Equal(t, 500*time.Millisecond, poll(answeredBy, time.Second), "nobody knew")
		require.Zero(t, poll(answeredBy, time.Minute))
		require.Equal(t, 10*time.Millisecond, poll(never, 10*time.Millisecond), "the others will not do")
		time.Sleep(2 * time.Minute)
		require.Equal(t, 10*time.Millisecond, poll(answeredBy, 10*time.Millisecond))
	})
}

// So is one whose requests end with the poll, as those of a client with ContextTimeoutEnabled do:
// until it answers one of them.
func TestFakeTimePollKnowsWhoIsSilent(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, servers := newFakes(t)
		q := NewQuorum(servers, "lock", false, lease)
		var silent atomic.Bool
		silent.Store(true)
		poll := func() time.Duration {
			began := time.Now()
			ask(t.Context(), q, func(ctx context.Context, p *Plain) (int, error) {
				if p.server.ID == "c" && silent.Load() {
					<-ctx.Done()
					return 0, ctx.Err()
				}
				return 1, nil
			}, func([]vote[int]) bool { return false }, answeredBy, nil)
			took := time.Since(began)
			time.Sleep(time.Hour) // nothing is under way
			return took
		}
		require.Equal(t, 500*time.Millisecond, poll(), "nobody knew")
		require.Zero(t, poll())
		require.Zero(t, poll())
		silent.Store(false)
		require.Zero(t, poll())
		silent.Store(true)
		require.Equal(t, 500*time.Millisecond, poll(), "it was well")
	})
}

// A server that does not answer is sent so many requests, and no more until it does. The others
// are asked.
func TestFakeTimePollOfASilentServerIsBounded(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, servers := newFakes(t)
		q := NewQuorum(servers, "lock", false, lease)
		var sent atomic.Int64
		poll := func() vote[int] {
			return ask(t.Context(), q, func(ctx context.Context, p *Plain) (int, error) {
				if p.server.ID == "c" {
					sent.Add(1)
					time.Sleep(time.Minute)
				}
				return 1, nil
			}, decisive, func([]vote[int]) bool { return false }, nil)[2]
		}
		var all sync.WaitGroup
		for range maxAsked {
			all.Go(func() {
				v := poll()
				assert.Equal(t, errPending, v.err)
				assert.Equal(t, request.Unknown, v.outcome)
			})
		}
		all.Wait()
		for range 3 {
			v := poll()
			require.Equal(t, errCrowded, v.err)
			require.Equal(t, request.NotExecuted, v.outcome, "there is no share to give back")
		}
		require.EqualValues(t, maxAsked, sent.Load())
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, errPending, poll().err, "it is asked again")
		time.Sleep(time.Hour)
	})
}

// A server that has answered nothing for the bound of a poll is sent a few requests only: their
// goroutines grow with the calls, not with the callers. One that is just slow is sent more, also if
// nobody has asked it for long.
func TestFakeTimeSilentServerIsAskedLess(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, servers := newFakes(t)
		for _, f := range all {
			f.votes(granting())
		}
		q := NewQuorum(servers, "lock", false, lease)
		rounds := func() (most int64) {
			for began := time.Now(); time.Since(began) < 2*q.bound(); time.Sleep(time.Millisecond) {
				a, err := q.Acquire(t.Context(), nil, "", lease, Options{})
				require.NoError(t, err)
				require.True(t, a.Acquired)
				most = max(most, servers[2].asked.Load())
			}
			return most
		}
		all[2].votes(voter{takes: 200 * time.Millisecond, reply: int64(1)})
		rounds()
		require.Greater(t, rounds(), int64(2*maxSilent), "it is slow")
		time.Sleep(time.Hour)
		require.Greater(t, all[2].shares(), all[0].shares()*2/5, "a quarter, if answers did not count") // it cannot be sent all in time
		all[2].votes(voter{})
		require.Greater(t, rounds(), int64(2*maxSilent), "it is not known yet")
		time.Sleep(overdue / 10) // until what was sent then has ended
		require.LessOrEqual(t, rounds(), int64(maxSilent+1))
		all[2].votes(granting())
		time.Sleep(q.bound())
		rounds()
		require.Zero(t, servers[2].asked.Load(), "it is asked again")
		time.Sleep(time.Hour)
	})
}

// shares counts the requests for a share that a server was sent.
func (f *fake) shares() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, words := range f.sent {
		if words[0] == "evalsha" && len(words) > 3 {
			n++
		}
	}
	return n
}

// A request that was not sent because the poll has ended is no reason for its caller, who may still
// be there, to give up.
func TestFakeTimePollThatWasNotSent(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, servers := newFakes(t)
		q := NewQuorum(servers, "lock", false, lease)
		v := cast(t.Context(), q, q.nodes[0], func(context.Context, *Plain) (int, error) { return 0, request.ErrNotSent })
		require.Equal(t, vote[int]{err: request.ErrCrowded, outcome: request.NotExecuted}, v)
	})
}

// Servers that agree decide; an error of another kind is no answer.
func TestVotes(t *testing.T) {
	yes, no, none := vote[int]{}, vote[int]{err: lua.ErrNotOwner}, vote[int]{err: errors.New("EOF")}
	for name, tt := range map[string]struct {
		votes              []vote[int]
		answered, decisive bool
	}{
		"nobody":              {[]vote[int]{none, none, none}, false, false},
		"one":                 {[]vote[int]{yes, none, none}, false, false},
		"two agree":           {[]vote[int]{yes, none, yes}, true, true},
		"two agree on no":     {[]vote[int]{no, none, no}, true, true},
		"two do not agree":    {[]vote[int]{yes, no, none}, true, false},
		"two of four":         {[]vote[int]{yes, yes, none, none}, false, false},
		"three of four":       {[]vote[int]{yes, yes, no, none}, true, false},
		"three of four agree": {[]vote[int]{yes, yes, none, yes}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.answered, answeredBy(tt.votes))
			require.Equal(t, tt.decisive, decisive(tt.votes))
		})
	}
}
