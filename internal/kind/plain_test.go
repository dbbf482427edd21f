package kind

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
)

// keysOf are the keys of a script as it was sent.
func keysOf(words []any) (keys []any) {
	return words[3 : 3+words[2].(int)]
}

// The data is that of Redisson, and the queue is this library's own.
func TestPlainNames(t *testing.T) {
	s := &Server{ID: "me", Channels: NewChannels(nil, "me", nil, ShardingOff)}
	queue, counter := "rlock_queue:{lock}", "redisson_lock_token:{lock}"
	rivals := [2]string{"redisson_lock_queue:{lock}", "redisson_lock_timeout:{lock}"}
	for name, tt := range map[string]struct {
		lock           *Plain
		want           lua.Grant
		gathers, joint bool
	}{
		"without a queue":         {NewPlain(s, "lock", false), lua.Grant{Key: "lock", Owner: "me:1"}, false, false},
		"without a queue, fenced": {NewPlain(s, "lock", true), lua.Grant{Key: "lock", Counter: counter, Owner: "me:1"}, false, false},
		"queued":                  {NewQueued(s, "lock", false), lua.Grant{Key: "lock", Queue: queue, Owner: "me:1"}, true, true},
		"queued, fenced":          {NewQueued(s, "lock", true), lua.Grant{Key: "lock", Queue: queue, Counter: counter, Owner: "me:1"}, true, true},
		"fair":                    {NewFair(s, "lock", false), lua.Grant{Key: "lock", Queue: queue, Rivals: rivals, Owner: "me:1"}, true, false},
		"fair, fenced":            {NewFair(s, "lock", true), lua.Grant{Key: "lock", Queue: queue, Counter: counter, Rivals: rivals, Owner: "me:1"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, tt.lock.Of("me:1"))
			require.Equal(t, tt.gathers, tt.lock.Gathers(true), "a proxy may spread keys")
			require.Equal(t, tt.joint, tt.lock.Joint(), "that script looks at no queue")
		})
	}
}

// An owner without a ticket takes a lock that is free, also if others wait; one with a ticket, and
// every owner of a fair lock, goes by the queue.
func TestFakeTimePlainAsksItsQueue(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		ticket := Options{Ticket: lua.Ticket{Claim: time.Second}}
		for name, tt := range map[string]struct {
			lock *Plain
			o    Options
			keys []any
		}{
			"no ticket":       {NewQueued(f.Server, "lock", false), Options{Wait: true}, []any{"lock"}},
			"a ticket":        {NewQueued(f.Server, "lock", false), ticket, []any{"lock", "rlock_queue:{lock}"}},
			"fair, no ticket": {NewFair(f.Server, "lock", false), Options{}, []any{"lock", "rlock_queue:{lock}", "redisson_lock_queue:{lock}", "redisson_lock_timeout:{lock}"}},
		} {
			a, err := tt.lock.Acquire(t.Context(), f.Scripts, "me:1", time.Minute, tt.o)
			require.NoError(t, err, name)
			require.True(t, a.Acquired, name)
			require.Equal(t, tt.keys, keysOf(f.commands()[0]), name)
		}
	})
}

// What a server says is what the caller gets. A ticket has to be taken back; a refusal without one
// leaves nothing.
func TestFakeTimePlainAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		reply []any
		want  lua.Reply
	}{
		"granted":    {[]any{int64(1), int64(7), int64(3)}, lua.Reply{Acquired: true, Token: 7, Spare: 3}},
		"refused":    {[]any{int64(0), int64(5000), "you:1", int64(9), int64(0), int64(-1)}, lua.Reply{TTL: 5 * time.Second, Holder: "you:1"}},
		"a ticket":   {[]any{int64(0), int64(-1), "you:1", int64(9), int64(0), int64(1)}, lua.Reply{TTL: -time.Millisecond, Holder: "you:1", Place: lua.Place{Time: 9, First: true, New: true}, Leftover: true}},
		"it had one": {[]any{int64(0), int64(0), "", int64(9), int64(3), int64(0), int64(5)}, lua.Reply{Place: lua.Place{Time: 9, Queue: 5, Before: 3}, Leftover: true}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFake(t, "me")
				f.answers(func(context.Context, []any) any { return tt.reply })
				a, err := NewQueued(f.Server, "lock", true).Acquire(t.Context(), f.Scripts, "me:1", time.Minute, Options{Spare: 3, Ticket: lua.Ticket{Claim: time.Second}})
				require.NoError(t, err)
				require.Equal(t, tt.want, a)
				words := f.commands()[0]
				require.EqualValues(t, 3, words[len(words)-1], "so many tokens are reserved")
			})
		})
	}
}

// Redisson's clients announce releases with other messages than this library, which has told its own
// waiters otherwise.
func TestFakeTimePlainHears(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		var grants []string
		unlocks, changes := 0, 0
		changed := func() { changes++ }
		mine := NewQueued(f.Server, "lock", false).Subscribe(Events{Message: func(payload string) { grants = append(grants, payload) }, Changed: changed})
		theirs := f.SubscribeToUnlocks(lua.UnlockChannel("lock"), func() { unlocks++ }, changed)
		synctest.Wait()
		require.Equal(t, 2, changes)
		require.True(t, mine.Live())
		require.True(t, theirs.Live())
		for _, payload := range []string{"0", "-0", "1"} {
			f.wire.tell(pubsub.Event{Kind: pubsub.Message, Channel: "redisson_lock__channel:{lock}", Payload: payload})
		}
		f.wire.tell(pubsub.Event{Kind: pubsub.Message, Channel: "rlock_channel:{lock}:me", Payload: "me:1"})
		f.wire.tell(pubsub.Event{Kind: pubsub.Message, Channel: "rlock_channel:{lock}:you", Payload: "you:1"})
		synctest.Wait()
		require.Equal(t, 2, unlocks)
		require.Equal(t, []string{"me:1"}, grants)
		mine.Close()
		theirs.Close()
		time.Sleep(time.Minute)
		require.False(t, f.Hub.Active())
	})
}

// twoNodes is a cluster without servers. Keys with the hash tag {a} are on the second node. A test
// says what a node answers to the script.
type twoNodes struct {
	rdb *redis.ClusterClient

	mu     sync.Mutex // guards what follows
	loads  int        // of the map
	script map[string]error
	sent   map[string][]string // names of commands in order
}

const one, two, three = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1" // the third has no slots

func newTwoNodes(t *testing.T, readOnly bool) *twoNodes {
	c := &twoNodes{script: make(map[string]error), sent: make(map[string][]string)}
	c.rdb = redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.loads++
		return []redis.ClusterSlot{{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: one}}}, {Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: two}}}}, nil
	}, DisableRoutingPolicies: true, ReadOnly: readOnly, NewClient: func(opts *redis.Options) *redis.Client {
		node, addr := redis.NewClient(opts), opts.Addr
		node.AddHook(redistest.Answers(func(_ context.Context, cmds ...redis.Cmder) (err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, cmd := range cmds {
				c.sent[addr] = append(c.sent[addr], cmd.Name())
				cmd.Args() // as go-redis asks for them
				switch cmd.Name() {
				case "wait":
					cmd.(*redis.IntCmd).SetVal(int64(addr[len("10.0.0.")] - '0'))
				case "evalsha":
					if err = c.script[addr]; err != errLost { // of that go-redis tells no command that has an error
						cmd.SetErr(err)
					}
				}
			}
			return err
		}))
		return node
	}})
	t.Cleanup(func() { require.NoError(t, c.rdb.Close()) })
	return c
}

var errLost = errors.New("EOF")

// The command goes to the server process that has run the script, also where that is another
// one than the client's map says, and tells of that process.
func TestFakeTimeTrailerFollowsItsScript(t *testing.T) {
	asks, moved := replyError("ASK 15495 "+one), replyError("MOVED 15495 "+one)
	there, here := []string{"evalsha", "wait"}, []string{"asking", "evalsha", "wait"}
	for name, tt := range map[string]struct {
		script   map[string]error // that a node answers to it
		readOnly bool             // the client reads from replicas
		answers  string           // the node whose answer counts
		sent     map[string][]string
		loads    int
	}{
		"it is there":  {nil, false, two, map[string][]string{two: there}, 1},
		"it has moved": {map[string]error{two: moved}, false, one, map[string][]string{two: there, one: there}, 2}, // the next attempt goes there at once
		"it moves on":  {map[string]error{two: moved, one: replyError("MOVED 15495 " + three)}, false, one, map[string][]string{two: there, one: there}, 2},
		"it is moving": {map[string]error{two: asks}, false, one, map[string][]string{two: there, one: here}, 1},
		"it is moving to a node that has no slot yet": {
			map[string]error{two: replyError("ASK 15495 " + three)}, false, three, map[string][]string{two: there, three: here}, 1,
		},
		"it fails":                  {map[string]error{two: errLoading}, false, two, map[string][]string{two: there}, 1},
		"it fails where it goes to": {map[string]error{two: asks, one: errLoading}, false, one, map[string][]string{two: there, one: here}, 1},
		"its answer is lost":        {map[string]error{two: asks, one: errLost}, false, one, map[string][]string{two: there, one: here}, 1},
		"no replica executes it": {
			map[string]error{two: asks}, true, one, map[string][]string{
				two: {"readwrite", "evalsha", "wait", "readonly"}, one: {"readwrite", "asking", "evalsha", "wait", "readonly"},
			}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c := newTwoNodes(t, tt.readOnly)
				c.script = tt.script
				f := &withTrailer{server: &Server{RDB: c.rdb, Trailed: trailed(c.rdb)}, key: "lock{a}", trailer: acknowledged(1, 0)}
				cmd := redis.NewCmd(t.Context(), "evalsha", "sha", 1, "lock{a}")
				err := f.Process(t.Context(), cmd)
				require.Equal(t, err, cmd.Err())
				require.Equal(t, tt.script[tt.answers], err)
				if err == nil {
					require.EqualValues(t, tt.answers[len("10.0.0.")]-'0', f.last.(*redis.IntCmd).Val())
				}
				require.Empty(t, f.server.redirects.byAddr, "what nobody uses is closed")
				time.Sleep(time.Second) // the map is loaded in the background
				synctest.Wait()
				require.Equal(t, tt.sent, c.sent)
				require.Equal(t, tt.loads, c.loads)
			})
		})
	}
}

// A script that the server does not know is sent once more by its caller: the command has its answer of
// that time.
func TestFakeTimeTrailerOfARepetition(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s, n := newFake(t, "me"), int64(0)
		s.answers(func(_ context.Context, words []any) any {
			if words[0] == "wait" {
				n++
				return n
			}
			return map[bool]any{true: replyError("NOSCRIPT No matching script."), false: int64(1)}[words[0] == "evalsha"]
		})
		f := &withTrailer{server: s.Server, trailer: acknowledged(1, 0)}
		require.Error(t, f.Process(t.Context(), redis.NewCmd(t.Context(), "evalsha", "sha", 0)))
		require.NoError(t, f.Process(t.Context(), redis.NewCmd(t.Context(), "eval", "return 1", 0)))
		require.EqualValues(t, 2, f.last.(*redis.IntCmd).Val())
	})
}

// Without a map of the cluster nothing is sent.
func TestFakeTimeTrailerWithoutAMap(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		none := errors.New("no map")
		rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return nil, none }})
		defer func() { require.NoError(t, rdb.Close()) }()
		f := &withTrailer{server: &Server{RDB: rdb, Trailed: trailed(rdb)}, key: "lock", trailer: info()}
		cmd := redis.NewCmd(t.Context(), "evalsha", "sha", 1, "lock")
		require.ErrorIs(t, f.Process(t.Context(), cmd), none)
	})
}

// taken takes all places of a node.
func taken(t *testing.T, p *Places, ctx context.Context, n node) (release []func()) {
	for range placesOfNode {
		began := time.Now()
		release = append(release, p.take(ctx, n))
		require.Zero(t, time.Since(began))
	}
	return release
}

// Whoever finds no place waits for one, at this node only.
func TestFakeTimePlacesOfANode(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var p Places
		a, b := node{rdb: "a"}, node{rdb: "a", master: "b"}
		release := taken(t, &p, t.Context(), a)
		got := make(chan func(), 2)
		for range cap(got) {
			go func() { got <- p.take(t.Context(), a) }()
		}
		synctest.Wait()
		require.Empty(t, got)
		for _, other := range taken(t, &p, t.Context(), b) {
			other()
		}
		synctest.Wait()
		require.Empty(t, got, "places of another node")
		release[0]()
		synctest.Wait()
		require.Len(t, got, 1, "one for one")
		for _, r := range release[1:] {
			r()
		}
		(<-got)()
		(<-got)()
		require.Empty(t, p.nodes, "what nobody uses is forgotten")
	})
}

// A pipeline may hang for longer than its context: the place is free by then, and what was given back
// is not given back again.
func TestFakeTimePlaceIsFreeWhenTheContextEnds(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var p Places
		a := node{rdb: "a"}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		hang := taken(t, &p, ctx, a)
		impatient, leave := context.WithTimeout(t.Context(), time.Second/2)
		defer leave()
		began := time.Now()
		require.Nil(t, p.take(impatient, a))
		require.Equal(t, time.Second/2, time.Since(began))
		release := p.take(t.Context(), a)
		require.Equal(t, time.Second, time.Since(began))
		rest := make([]func(), placesOfNode-1)
		for i := range rest {
			rest[i] = p.take(t.Context(), a)
		}
		for _, r := range hang {
			r() // at last
		}
		got := make(chan func(), 1)
		go func() { got <- p.take(t.Context(), a) }()
		synctest.Wait()
		require.Empty(t, got, "all places are taken")
		release()
		(<-got)()
		for _, r := range rest {
			r()
		}
		require.Empty(t, p.nodes)
	})
}
