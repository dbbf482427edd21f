package kind

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// What a server has left is seen to in the background once a majority has released. Until
// then the caller asks all of them again, and the two must not keep each other going.
func TestFakeTimeQuorumReleaseSeesToTheRest(t *testing.T) {
	type answer struct {
		takes time.Duration
		err   error
	}
	silent := answer{time.Minute, request.ErrNoAnswer}
	gone := answer{err: request.ErrNoAnswer}
	for name, tt := range map[string]struct {
		servers [3]answer
		want    []string
		done    bool
	}{
		"all answer":               {done: true},
		"one is silent":            {[3]answer{2: silent}, []string{"c"}, true},
		"one cannot be reached":    {[3]answer{1: gone}, []string{"b"}, true},
		"two are silent":           {servers: [3]answer{1: silent, 2: silent}},
		"two cannot be reached":    {servers: [3]answer{0: gone, 2: gone}},
		"one of each":              {servers: [3]answer{0: gone, 1: silent}},
		"one answers in the bound": {[3]answer{1: gone, 2: {takes: 100 * time.Millisecond}}, []string{"b"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				all, servers := newFakes(t)
				for n, f := range all {
					f.answers(func(context.Context, []any) any {
						time.Sleep(tt.servers[n].takes)
						if err := tt.servers[n].err; err != nil {
							return err
						}
						return int64(1)
					})
				}
				q := NewQuorum(servers, "name", false, 30*time.Second)
				_, err := q.Release(t.Context(), nil, "owner", lua.Ending{})
				require.Equal(t, tt.done, err == nil, err)
				time.Sleep(time.Hour) // and the answers that nobody waits for come in
				synctest.Wait()
				requireSwept(t, all, "owner", tt.want)
			})
		})
	}
}

// A server that was not asked for its share, as it is silent, has nothing to release: there would
// be more of that than is kept until it answers. Nothing is known of it when the release is made
// again.
func TestFakeTimeQuorumReleaseLeavesOutWhoWasNotAsked(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, servers := newFakes(t)
		for _, f := range all {
			f.votes(granting())
		}
		q := NewQuorum(servers, "lock", false, lease)
		servers[2].asked.Store(maxAsked) // by others, without an answer
		a, err := q.Acquire(t.Context(), nil, "", lease, Options{})
		require.NoError(t, err)
		require.True(t, a.Acquired)
		require.Len(t, q.open, 1)
		servers[2].asked.Store(0)
		_, err = q.Release(t.Context(), nil, a.Owner, lua.Ending{})
		require.NoError(t, err)
		require.Empty(t, all[2].commands())
		require.Empty(t, q.open)
		require.Empty(t, sweeps(all))

		_, err = q.Release(t.Context(), nil, a.Owner, lua.Ending{})
		require.NoError(t, err)
		require.Len(t, all[2].commands(), 1)
		time.Sleep(time.Hour)
	})
}

// The connections to two servers are stale. Each is asked again at once; that one then knows of no
// such owner does not mean that the lock was lost, as the first request may have released it.
func TestFakeTimeStaleConnectionOfAShare(t *testing.T) {
	for stale, want := range map[int]error{0: lua.ErrNotOwner, 2: nil} {
		redistest.Bubble(t, func(t *testing.T) {
			all, servers := newFakes(t)
			for n, f := range all {
				first := n < stale
				f.answers(func(context.Context, []any) any {
					if first {
						first = false
						return io.EOF
					}
					return int64(0)
				})
			}
			q := NewQuorum(servers, "name", false, 30*time.Second)
			began := time.Now()
			_, err := q.Release(t.Context(), nil, "owner", lua.Ending{})
			require.Equal(t, want, err)
			require.Zero(t, time.Since(began))
			time.Sleep(time.Hour)
			synctest.Wait()
		})
	}
}

// A server that does not know of a hold is asked for its share again if the others renew it, and only
// then.
func TestFakeTimeMissingShareIsTakenAgain(t *testing.T) {
	const unknown = int64(0)
	for name, tt := range map[string]struct {
		renewal [3]int64 // the answers; 1 is renewed
		again   [3]bool
	}{
		"all renew":     {renewal: [3]int64{1, 1, 1}},
		"one is empty":  {renewal: [3]int64{1, unknown, 1}, again: [3]bool{1: true}},
		"two are empty": {renewal: [3]int64{unknown, 1, unknown}},
		"all are empty": {renewal: [3]int64{unknown, unknown, unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				all, servers := newFakes(t)
				for n, f := range all {
					answer := tt.renewal[n]
					f.answers(func(context.Context, []any) any {
						defer func() { answer = 1 }()
						return answer
					})
				}
				q := NewQuorum(servers, "name", false, 30*time.Second)
				r := newRenewing()
				r.Renew(t.Context(), [][]Renewal{q.Renewals("a:1", 30*time.Second)})
				synctest.Wait()
				for n, f := range all {
					require.Equal(t, tt.again[n], len(f.commands()) > 1, "server %d", n)
				}
				q.mu.Lock()
				defer q.mu.Unlock()
				require.Empty(t, q.open)
			})
		})
	}
}

// The hold ends while its share is asked for again: the share is given back.
func TestFakeTimeShareTakenTooLate(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, servers := newFakes(t)
		all[0].answers(func(context.Context, []any) any {
			time.Sleep(100 * time.Millisecond)
			return int64(1)
		})
		q := NewQuorum(servers, "name", false, 30*time.Second)
		go q.retake(t.Context(), 0, "a:1", 30*time.Second, func() bool { return true })
		synctest.Wait()
		q.finish("a:1")
		time.Sleep(time.Second)
		synctest.Wait()
		requireSwept(t, all, "a:1", []string{"a"})
		q.mu.Lock()
		defer q.mu.Unlock()
		require.Empty(t, q.open)
	})
}
