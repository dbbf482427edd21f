package kind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

const (
	lease = 30 * time.Second
	old   = lease + time.Second // the age from which on a server is counted
)

// errLoading is how a server refuses while it starts.
var errLoading = replyError("LOADING Redis is loading the dataset in memory")

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// voter is a server that is asked for its share.
type voter struct {
	takes time.Duration // before it answers
	reply any           // of the script; nil: it is silent until the context ends
	age   time.Duration // 0: old enough; negative: it does not tell
	run   string        // its run id; "": its own
}

// granting and held are answers of the script.
func granting() voter { return voter{reply: int64(1)} }

func held(by string, left time.Duration) voter {
	return voter{reply: []any{int64(0), left.Milliseconds(), by}}
}

// votes has the server answer so.
func (f *fake) votes(v voter) {
	f.answers(func(ctx context.Context, words []any) any { return v.says(ctx, f.ID, words) })
}

// says is what a server of that id answers.
func (v voter) says(ctx context.Context, id string, words []any) any {
	switch {
	case words[0] == "info":
		text := "# Server\r\nrun_id:" + cmp.Or(v.run, id) + "\r\n"
		if v.age >= 0 {
			text += fmt.Sprintf("uptime_in_seconds:%d\r\n", int(cmp.Or(v.age, old).Seconds()))
		}
		return text
	case v.reply == nil:
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(v.takes)
	return v.reply
}

// errSome stands for that of whichever votes were there.
var errSome = errors.New("no majority")

// A round is won by a majority of shares. Otherwise what it has got is given back at once, and
// what it gets later as soon as that is known; nobody waits for a server that cannot change the
// outcome.
func TestFakeTimeRound(t *testing.T) {
	const soon, bound = 2 * time.Millisecond, 500 * time.Millisecond
	silent, late := voter{}, voter{takes: time.Second, reply: int64(1)}
	refusing := voter{reply: errLoading}
	for name, tt := range map[string]struct {
		servers [3]voter
		won     bool
		took    time.Duration
		ttl     time.Duration
		err     error
		back    []string // when the round ended
		later   []string // when all servers had answered
	}{
		"all grant":                {servers: [3]voter{granting(), granting(), granting()}, won: true},
		"one is held":              {servers: [3]voter{granting(), held("x", lease), granting()}, won: true},
		"one refuses to serve":     {servers: [3]voter{refusing, granting(), granting()}, won: true},
		"one is silent":            {servers: [3]voter{granting(), granting(), silent}, won: true, took: soon},
		"one answers late":         {servers: [3]voter{late, granting(), granting()}, won: true, took: soon},
		"a majority holds it":      {servers: [3]voter{granting(), held("x", lease), held("x", lease)}, ttl: lease, back: []string{"a silent"}},
		"all are held":             {servers: [3]voter{held("x", lease), held("x", -time.Millisecond), held("x", 10*time.Second)}, ttl: lease},
		"held, and one is silent":  {servers: [3]voter{held("x", lease), silent, held("x", time.Second)}, took: soon, ttl: lease, later: []string{"b silent", "b silent late"}},
		"held, and one comes late": {servers: [3]voter{held("x", lease), late, held("x", lease)}, took: soon, ttl: lease, later: []string{"b silent"}},
		"it is split": {
			servers: [3]voter{granting(), held("x", lease), held("y", lease)}, back: []string{"a silent"},
		},
		"one of each": {
			servers: [3]voter{granting(), held("x", lease), silent}, took: bound, back: []string{"a"}, later: []string{"a", "c", "c late"},
		},
		"two refuse to serve": {
			servers: [3]voter{granting(), refusing, refusing}, err: errLoading, back: []string{"a silent"},
		},
		"two refuse to serve, and one is silent": {
			servers: [3]voter{refusing, silent, refusing}, took: soon, err: errLoading, later: []string{"b silent", "b silent late"},
		},
		"two are silent": {
			servers: [3]voter{granting(), silent, silent}, took: bound, err: errSome,
			back: []string{"a"}, later: []string{"a", "b", "b late", "c", "c late"},
		},
		"two have just started": {
			servers: [3]voter{granting(), {reply: int64(1), age: 21 * time.Second}, {reply: int64(1), age: time.Second}},
			ttl:     10 * time.Second, back: []string{"a silent", "b silent", "c silent"},
		},
		"two have just started, and one is held": { // not split: who holds that one may hold the lock
			servers: [3]voter{{reply: int64(1), age: 21 * time.Second}, {reply: int64(1), age: time.Second}, held("x", 20*time.Second)},
			ttl:     20 * time.Second, back: []string{"a silent", "b silent"},
		},
		"one does not tell its age": {
			servers: [3]voter{granting(), {reply: int64(1), age: -1}, held("x", lease)}, back: []string{"a", "b", "b late"},
		},
		"two are the same": {
			servers: [3]voter{granting(), {reply: int64(1), run: "a"}, held("x", lease)}, err: ErrSameServer, back: []string{"a", "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				all, servers := newFakes(t)
				for n, f := range all {
					f.votes(tt.servers[n])
				}
				q, began := NewQuorum(servers, "lock", false, lease), time.Now()
				a, err := q.Acquire(t.Context(), nil, "unused:1", lease, Options{})
				require.Equal(t, tt.took, time.Since(began))
				if tt.err == errSome {
					require.ErrorAs(t, err, new(*minorityError))
				} else {
					require.ErrorIs(t, err, tt.err)
				}
				require.Equal(t, tt.won, a.Acquired)
				require.Equal(t, tt.ttl, a.TTL)
				if tt.won {
					require.Equal(t, "a:1", a.Owner, "the host has named it")
					require.Equal(t, began, a.Sent)
				}
				switch back := texts(sweeps(all)); tt.took {
				case bound: // of the requests as well: in that moment the last votes may be there, or not
					require.Subset(t, back, tt.back)
				default:
					require.Equal(t, tt.back, back, "at once")
				}
				if tt.later == nil {
					tt.later = tt.back
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				requireSwept(t, all, "a:1", tt.later)
			})
		})
	}
}

// A share is not counted if it may have been granted after the bound of a round, although the round is
// open still, as that of a process that was stopped.
func TestFakeTimeShareGrantedTooLate(t *testing.T) {
	for takes, counts := range map[time.Duration]bool{499 * time.Millisecond: true, 501 * time.Millisecond: false} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFake(t, "a")
			f.votes(voter{takes: takes, reply: int64(1)})
			s, err := NewPlain(f.Server, "lock", false).share(t.Context(), "a:1", lease, lua.Turn{}, time.Now(), longestPoll)
			require.NoError(t, err)
			require.True(t, s.Acquired)
			require.Equal(t, counts, s.quarantine == 0)
		})
	}
}

// A server that was overdue before is not waited for when the others decide; one that has just
// started decides nothing.
func TestFakeTimeRoundNeedsTheSlowOneBesideAYoungOne(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, servers := newFakes(t)
		for n, v := range []voter{granting(), granting(), {takes: time.Minute, reply: int64(1)}} {
			all[n].votes(v)
		}
		q := NewQuorum(servers, "lock", false, lease)
		for _, tt := range []struct {
			first voter
			took  time.Duration
		}{
			{granting(), 2 * time.Millisecond}, // it is not known yet
			{granting(), 0},
			{voter{reply: int64(1), age: time.Second}, 20 * time.Millisecond},
		} {
			all[0].votes(tt.first)
			began := time.Now()
			a, err := q.Acquire(t.Context(), nil, "", lease, Options{})
			require.NoError(t, err)
			require.True(t, a.Acquired)
			require.Equal(t, tt.took, time.Since(began))
			synctest.Wait() // until all requests are sent: a pipeline of two takes twice as long
			all[2].votes(voter{takes: 20 * time.Millisecond, reply: int64(1)})
		}
		time.Sleep(time.Hour)
	})
}

// What a server may have granted after the round was won is part of the grant: it is given back when
// that has been released, and not before.
func TestFakeTimeLateShareIsGivenBackWithTheGrant(t *testing.T) {
	for name, tt := range map[string]struct {
		slow     voter
		released time.Duration // after the round
		back     []string
	}{
		"granted before":         {voter{takes: time.Second, reply: int64(1)}, time.Minute, nil}, // the release itself reaches it
		"in doubt before":        {voter{}, time.Minute, []string{"c late"}},
		"granted after":          {voter{takes: time.Second, reply: int64(1)}, 0, []string{"c"}},
		"in doubt after":         {voter{}, 0, []string{"c", "c late"}},
		"refused after, for now": {voter{takes: time.Second, reply: errLoading}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				all, servers := newFakes(t)
				for _, f := range all {
					f.votes(granting())
				}
				all[2].votes(tt.slow)
				q := NewQuorum(servers, "lock", false, lease)
				a, err := q.Acquire(t.Context(), nil, "", lease, Options{})
				require.NoError(t, err)
				all[2].votes(granting()) // what comes from now on
				time.Sleep(tt.released)
				require.Empty(t, sweeps(all))
				_, err = q.Release(t.Context(), nil, a.Owner, lua.Ending{})
				require.NoError(t, err)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, tt.back, texts(sweeps(all)))
				require.Empty(t, q.open, "the round is forgotten")
			})
		})
	}
}

// Every later token has to be greater, whichever majority makes the next grant: so the greatest of
// the shares is written to those who have one. Without a majority of these there is no grant.
func TestFakeTimeTokensAreRaised(t *testing.T) {
	for name, refuses := range map[string]bool{"all are raised": false, "one cannot be": true} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				all, servers := newFakes(t)
				raised := make([]any, len(all))
				for n, f := range all {
					share := voter{reply: []any{int64(1), int64(9 - 4*n), int64(0)}}
					if f.ID == "c" {
						share = held("x", lease)
					}
					f.answers(func(ctx context.Context, words []any) any {
						if words[0] == "info" || words[2] == 3 { // that script has three keys
							return share.says(ctx, f.ID, words)
						}
						raised[n] = words[4]
						if refuses && f.ID == "b" {
							return errLoading
						}
						return int64(1)
					})
				}
				a, err := NewQuorum(servers, "lock", true, lease).Acquire(t.Context(), nil, "", lease, Options{})
				require.Equal(t, []any{int64(9), int64(9), nil}, raised)
				require.Equal(t, refuses, !a.Acquired)
				if !refuses {
					require.NoError(t, err)
					require.EqualValues(t, 9, a.Token)
					require.Empty(t, sweeps(all))
					return
				}
				require.ErrorIs(t, err, errLoading)
				outcome, final := Classify(err)
				require.Equal(t, request.NotExecuted, outcome, "it holds nothing")
				require.False(t, final)
				require.Equal(t, []string{"a", "b"}, texts(sweeps(all)))
			})
		})
	}
}

// Several clients have split the servers. Who waits asks again and again, each time for a new
// owner, as the requests of an earlier round may still arrive.
func TestFakeTimeSplitRounds(t *testing.T) {
	always := func(ctx context.Context, d time.Duration) bool { return request.Sleep(ctx, nil, d) }
	for name, tt := range map[string]struct {
		wait   bool
		within time.Duration
		sleep  func(context.Context, time.Duration) bool
		more   bool // than one round
	}{
		"it waits":         {true, 10 * time.Second, always, true},
		"it does not wait": {false, 10 * time.Second, always, false},
		"it has no time":   {true, 999 * time.Millisecond, always, false}, // a round may take a second
		"the host closes":  {true, 10 * time.Second, func(context.Context, time.Duration) bool { return false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				all, servers := newFakes(t)
				servers[0].Sleep = tt.sleep
				all[0].votes(granting())
				all[1].votes(held("x", lease))
				all[2].votes(held("y", lease))
				ctx, cancel := context.WithTimeout(t.Context(), tt.within)
				defer cancel()
				time.AfterFunc(time.Second, func() { all[2].votes(granting()) })
				a, err := NewQuorum(servers, "lock", false, lease).Acquire(ctx, nil, "", lease, Options{Wait: tt.wait})
				require.NoError(t, err)
				require.Equal(t, tt.more, a.Acquired)
				lost := sweeps(all)
				for n, s := range lost {
					require.Equal(t, fmt.Sprint("a:", n+1), s.owner)
				}
				if !tt.more {
					require.Len(t, lost, 1)
					return
				}
				require.Equal(t, fmt.Sprint("a:", len(lost)+1), a.Owner)
				require.Greater(t, len(lost), 10)
				require.Less(t, len(lost), 1000, "with pauses")
			})
		})
	}
}

// Of a silent server it is waited for once, and the pauses between rounds go by how long the others
// took.
func TestFakeTimeSplitRoundsBesideASilentServer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		for range 20 {
			all, servers := newFakes(t)
			all[0].votes(granting())
			all[1].votes(held("x", lease))
			all[2].votes(voter{})
			began := time.Now()
			time.AfterFunc(600*time.Millisecond, func() { all[1].votes(granting()) })
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			a, err := NewQuorum(servers, "lock", false, lease).Acquire(ctx, nil, "", lease, Options{Wait: true})
			cancel()
			require.NoError(t, err)
			require.True(t, a.Acquired)
			require.Less(t, time.Since(began), 670*time.Millisecond)
			time.Sleep(time.Second) // nothing is under way
		}
	})
}

// After the client of any server was closed nothing is sent, as its share could not be released.
func TestFakeTimeRoundOfAClosedClient(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, servers := newFakes(t)
		closed := errors.New("closed")
		servers[1].Closed = func() error { return closed }
		_, err := NewQuorum(servers, "lock", false, lease).Acquire(t.Context(), nil, "", lease, Options{})
		require.Equal(t, closed, err)
		for _, f := range all {
			require.Empty(t, f.commands())
		}
	})
}

// What was held is worth repeating a release that a server refuses, on each by itself; the share of a
// round that was not won is not.
func TestFakeTimeWhoseReleaseIsRepeated(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, servers := newFakes(t)
		q := NewQuorum(servers, "lock", false, lease)
		q.Sweep("a:1", false, true)
		for _, f := range all {
			require.Len(t, f.swept, 1)
			require.True(t, f.swept[0].likely)
			f.swept = nil
		}
		for n, v := range []voter{granting(), held("x", lease), held("x", lease)} {
			all[n].votes(v)
		}
		_, err := q.Acquire(t.Context(), nil, "", lease, Options{})
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, all[0].swept, 1)
		require.False(t, all[0].swept[0].likely)
	})
}

// A client that was woken by the release of a mere share would take it only to give it back.
func TestFakeTimeShareIsGivenBackInSilence(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		for _, silent := range []bool{false, true} {
			_, err := givenBack{NewPlain(f.Server, "lock", false), silent}.Release(t.Context(), f.Scripts, "me:1", lua.Ending{})
			require.NoError(t, err)
			words := f.commands()[0]
			require.Equal(t, map[bool]any{false: "PUBLISH", true: ""}[silent], words[len(words)-4])
		}
	})
}
