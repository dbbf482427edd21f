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
