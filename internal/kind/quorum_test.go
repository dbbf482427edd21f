package kind

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
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

// say brings a message of some servers to the host, which is server a.
func say(all []*fake, message string) {
	for _, f := range all {
		f.wire.tell(pubsub.Event{Kind: pubsub.Message, Channel: lua.GrantChannel("lock", "a"), Payload: message})
	}
}

// The client of a quorum lock hears whoever can be told by a majority, and asks once the subscriptions are
// there.
func TestFakeTimeSubscriptionsOfAQuorum(t *testing.T) {
	for name, tt := range map[string]struct {
		deaf     int
		live     bool
		at, then int // how often it is to ask, at once and after the pause for those that are late
	}{"all hear": {0, true, 1, 1}, "one is deaf": {1, true, 0, 1}, "two are deaf": {2, false, 0, 0}} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				all, servers := newFakes(t)
				for _, f := range all[3-tt.deaf:] {
					f.wire.deaf = true
				}
				for n, f := range all { // two that confirm at the same moment may both find all live, and ask
					f.wire.late = time.Duration(n+1) * time.Millisecond
				}
				var asks atomic.Int64
				ask := func() { asks.Add(1) }
				q := NewQuorum(servers, "lock", false, lease)
				s := q.Subscribe(Events{Released: ask, Changed: ask})
				time.Sleep(5 * time.Millisecond)
				synctest.Wait()
				require.Equal(t, tt.live, s.Live())
				require.EqualValues(t, tt.at, asks.Load())
				time.Sleep(minorityPause)
				synctest.Wait()
				require.EqualValues(t, tt.then, asks.Load())
				s.Close()
				require.False(t, s.Live())
				require.Nil(t, servers[0].waiting.of(q.id))
				time.Sleep(time.Minute)
				for _, f := range all {
					require.False(t, f.Hub.Active(), "each server was left")
				}
			})
		})
	}
}

// A majority that tells of the turn is reason to ask at once. A minority may be early: the rest would
// refuse.
func TestFakeTimeTurnOfAMajority(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, servers := newFakes(t)
		var asked []time.Duration
		began := time.Now()
		s := NewQuorum(servers, "lock", false, lease).Subscribe(Events{Changed: func() {}, Released: func() { asked = append(asked, time.Since(began)) }})
		defer s.Close()
		after := func(want ...time.Duration) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, want, asked)
			asked, began = nil, time.Now()
		}
		after()
		say(all, "x:1") // once, whoever else tells of the same release
		after(0)
		say(all[:1], "x:2")
		after(minorityPause)
		say(all[1:2], "x:3")
		say(all[2:], "x:4") // another release
		after(minorityPause)
		say(all, "x:5 +") // another client has the turn, and may have died
		after(turnPause)
		say(all, "x:6 +")
		synctest.Wait()
		say(all[:1], "x:7")
		synctest.Wait()
		say(all[2:], "x:6 +") // late
		synctest.Wait()
		say(all[1:2], "x:7")
		after(0)
	})
}

// numbers answers rounds with refusals, with these numbers of the tickets, and notes the clients and the
// numbers that come.
type numbers struct {
	has  int64
	came []any
}

func (n *numbers) answer(_ context.Context, words []any) any {
	switch {
	case words[0] == "info":
		return "run_id:x\r\nuptime_in_seconds:100\r\n"
	case len(words) < 11: // a release
		return int64(1)
	}
	client, number := words[9], words[10].(int64)
	n.came = append(n.came, client, number)
	if client == "" {
		return []any{int64(0), int64(30_000), "x:1", int64(0)}
	}
	n.has = max(n.has, number)
	return []any{int64(0), int64(30_000), "x:1", n.has}
}

// The first round of a wait takes no ticket, as most locks are free. The next round does, once the client
// can be told of its turn. If the servers give different numbers, the greatest one goes to all.
func TestFakeTimeTicketsHaveOneNumber(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, servers := newFakes(t)
		given := []*numbers{{has: 3}, {has: 5}, {has: 3}}
		for n, f := range all {
			f.answers(given[n].answer)
		}
		q := NewQuorum(servers, "lock", false, lease)
		round := func(wait bool, want ...[]any) {
			t.Helper()
			a, err := q.Acquire(t.Context(), nil, "", lease, Options{Wait: wait})
			require.NoError(t, err)
			require.False(t, a.Acquired)
			require.Equal(t, lease, a.TTL)
			for n := range all {
				require.Equal(t, want[n], given[n].came)
				given[n].came = nil
			}
		}
		none := []any{"", int64(0)}
		round(true, none, none, none)
		s := q.Subscribe(Events{Released: func() {}, Changed: func() {}})
		synctest.Wait()
		round(false, none, none, none) // TryLock
		raise := []any{"a", int64(0), "a", int64(5)}
		round(true, raise, raise, raise)
		again := []any{"a", int64(5)}
		round(true, again, again, again)
		for _, f := range all {
			f.commands()
		}
		s.Close() // without the lock
		synctest.Wait()
		names := make(map[any]bool) // of the owner in the messages: one for each event
		for _, f := range all {
			left := f.commands()
			require.Len(t, left, 1)
			require.Equal(t, []any{"PUBLISH", 1, "a", int64(5)}, left[0][6:])
			names[left[0][5]] = true
		}
		q.leave(0)
		synctest.Wait()
		for _, f := range all {
			names[f.commands()[0][5]] = true
		}
		require.Len(t, names, 2)
	})
}

// A client that no server can tell of its turn takes no ticket, and the share from whoever has the turn.
func TestFakeTimeDeafClientTakesNoTicket(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, servers := newFakes(t)
		q := NewQuorum(servers, "lock", false, lease)
		for _, f := range all {
			f.wire.deaf = true
			f.votes(granting())
		}
		s := q.Subscribe(Events{Released: func() {}, Changed: func() {}})
		a, err := q.Acquire(t.Context(), nil, "", lease, Options{Wait: true})
		require.NoError(t, err)
		require.True(t, a.Acquired)
		synctest.Wait()
		for _, f := range all {
			require.Equal(t, lua.Everybody, f.commands()[0][9])
		}
		s.Close()
	})
}
