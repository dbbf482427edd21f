package kind

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
)

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
		for _, f := range all {
			left := f.commands()
			require.Len(t, left, 1)
			require.Equal(t, []any{nobody, "PUBLISH", 1, "a", int64(5)}, left[0][5:])
		}
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
