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
)

// twoNodes is a cluster without servers. Keys with the hash tag {a} are on the second node. A test
// says what a node answers to the script.
type twoNodes struct {
	rdb *redis.ClusterClient

	mu     sync.Mutex // guards what follows
	loads  int        // of the map
	script map[string]error
	sent   map[string][]string // names of commands in order
}

const one, two = "10.0.0.1:1", "10.0.0.2:1"

func newTwoNodes(t *testing.T) *twoNodes {
	c := &twoNodes{script: make(map[string]error), sent: make(map[string][]string)}
	c.rdb = redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.loads++
		return []redis.ClusterSlot{{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: one}}}, {Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: two}}}}, nil
	}, DisableRoutingPolicies: true})
	t.Cleanup(func() { require.NoError(t, c.rdb.Close()) })
	c.rdb.OnNewNode(func(node *redis.Client) {
		addr := node.Options().Addr
		node.AddHook(redistest.Answers(func(_ context.Context, cmds ...redis.Cmder) (err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, cmd := range cmds {
				c.sent[addr] = append(c.sent[addr], cmd.Name())
				switch cmd.Name() {
				case "wait":
					cmd.(*redis.IntCmd).SetVal(int64(len(addr)))
				case "evalsha":
					err = c.script[addr]
					cmd.SetErr(err)
				}
			}
			return err
		}))
	})
	return c
}

// The command goes to the server process that has run the script, also where that is another
// one than the client's map says, and tells of that process.
func TestFakeTimeTrailerFollowsItsScript(t *testing.T) {
	for name, tt := range map[string]struct {
		script map[string]error // that a node answers to it
		err    string
		sent   map[string][]string
		loads  int
	}{
		"it is there": {nil, "", map[string][]string{two: {"evalsha", "wait"}}, 1},
		"it has moved": {
			map[string]error{two: replyError("MOVED 15495 " + one)}, "MOVED 15495 " + one, map[string][]string{two: {"evalsha", "wait"}}, 2, // the next attempt is right
		},
		"it is moving": {
			map[string]error{two: replyError("ASK 15495 " + one)}, "", map[string][]string{two: {"evalsha", "wait"}, one: {"asking", "evalsha", "wait"}}, 2, // go-redis loads it before it goes through the nodes
		},
		"it is moving to a node that is not known": {
			map[string]error{two: replyError("ASK 15495 10.0.0.3:1")}, "ASK 15495 10.0.0.3:1", map[string][]string{two: {"evalsha", "wait"}}, 2,
		},
		"it fails":                  {map[string]error{two: errLoading}, errLoading.Error(), map[string][]string{two: {"evalsha", "wait"}}, 1},
		"it fails where it goes to": {map[string]error{two: replyError("ASK 15495 " + one), one: errLoading}, errLoading.Error(), map[string][]string{two: {"evalsha", "wait"}, one: {"asking", "evalsha", "wait"}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c := newTwoNodes(t)
				c.script = tt.script
				f := &withTrailer{rdb: c.rdb, key: "lock{a}", send: trailedBy(func() redis.Cmder { return redis.NewIntCmd(t.Context(), "wait", 1, 0) })}
				cmd := redis.NewCmd(t.Context(), "evalsha", "sha", 1, "lock{a}")
				err := f.Process(t.Context(), cmd)
				require.Equal(t, err, cmd.Err())
				if tt.err == "" {
					require.NoError(t, err)
					require.EqualValues(t, len(one), f.last.(*redis.IntCmd).Val())
				} else {
					require.EqualError(t, err, tt.err)
				}
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
		f := &withTrailer{rdb: s.RDB, send: trailedBy(func() redis.Cmder { return redis.NewIntCmd(t.Context(), "wait", 1, 0) })}
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
		f := &withTrailer{rdb: rdb, key: "lock", send: trailedBy(func() redis.Cmder { panic("nothing is sent") })}
		cmd := redis.NewCmd(t.Context(), "evalsha", "sha", 1, "lock")
		require.ErrorIs(t, f.Process(t.Context(), cmd), none)
		require.ErrorIs(t, cmd.Err(), none)
	})
}
