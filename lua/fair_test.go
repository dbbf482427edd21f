package lua_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

const ticketLife = 10 * time.Second

// fair is a fair lock, with tokens.
func fair(owner string) lua.Fair {
	return lua.Fair{
		Grant: fenced(owner), Queue: "queue:{lock}", Tickets: "tickets:{lock}", Calls: "calls:{lock}",
		Redisson: [2]string{"redisson_lock_queue:{lock}", "redisson_lock_timeout:{lock}"},
	}
}

// fairCalls are the scripts of a fair lock, each with its answer as a text. A
// ticket has a claim of 10 s.
var fairCalls = map[string]func(ctx context.Context, r lua.Runner, f lua.Fair, lease time.Duration) string{
	"queue": func(ctx context.Context, r lua.Runner, f lua.Fair, lease time.Duration) string {
		return acquireFair(ctx, r, f, lease, lua.Ticket{Life: ticketLife, Claim: 10 * time.Second})
	},
	"try": func(ctx context.Context, r lua.Runner, f lua.Fair, lease time.Duration) string {
		return acquireFair(ctx, r, f, lease, lua.Ticket{})
	},
	"keep": func(ctx context.Context, r lua.Runner, f lua.Fair, _ time.Duration) string {
		answer := "no answer"
		keep := lua.KeepTicket(f, ticketLife, func(granted bool, _ int64) {
			answer = "kept"
			if granted {
				answer = "granted"
			}
		})
		if err := lua.Renew(ctx, r, []lua.Renewal{keep})[0]; err != nil {
			return err.Error()
		}
		return answer
	},
	"release": func(ctx context.Context, r lua.Runner, f lua.Fair, _ time.Duration) string {
		_, err := lua.ReleaseFair(ctx, r, f, nil)
		return errText(err)
	},
	"force": func(ctx context.Context, r lua.Runner, f lua.Fair, _ time.Duration) string {
		was, err := lua.ForceReleaseFair(ctx, r, f)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("was held: %t", was)
	},
	"inspect": func(ctx context.Context, r lua.Runner, f lua.Fair, _ time.Duration) string {
		s, err := lua.InspectFair(ctx, r, f)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%v, %s, %d waiting", s.Holds, showTTL(s.TTL), s.Subscribers)
	},
}

func acquireFair(ctx context.Context, r lua.Runner, f lua.Fair, lease time.Duration, t lua.Ticket) string {
	switch reply, err := lua.AcquireFair(ctx, r, f, lease, t); {
	case err != nil:
		return err.Error()
	case reply.Acquired:
		return "acquired"
	case reply.First:
		return "refused, " + showTTL(reply.TTL) + ", first"
	default:
		return "refused, " + showTTL(reply.TTL)
	}
}

// showFair is what the server knows: the lock, and who queues in which order.
func showFair(t require.TestingT, rdb *redis.Client) string {
	ctx := context.Background()
	f := fair("")
	queue, err := rdb.ZRange(ctx, f.Queue, 0, -1).Result()
	require.NoError(t, err)
	tickets, err := rdb.HKeys(ctx, f.Tickets).Result()
	require.NoError(t, err)
	require.ElementsMatch(t, queue, tickets)
	return show(t, rdb, f.Key) + " | " + strings.Join(queue, " ")
}

// age makes the tickets of some owners dead ones.
func age(t *testing.T, rdb *redis.Client, owners ...string) {
	t.Helper()
	for _, owner := range owners {
		require.NoError(t, rdb.HSet(t.Context(), fair("").Tickets, owner, "1 10000").Err())
	}
}

// A course of events, as "owner call -> answer | what is left".
func TestFairCourse(t *testing.T) {
	const notOwner = "lua: not the owner"
	courses := map[string][]string{
		"in order of arrival": {
			"a:1 queue -> acquired -> a:1=1 20s | ",
			"b:1 queue -> refused, 20s, first -> a:1=1 20s | b:1",
			"c:1 queue -> refused, 20s -> a:1=1 20s | b:1 c:1",
			"b:1 queue -> refused, 20s, first -> a:1=1 20s | b:1 c:1",
			"d:1 try -> refused, 20s -> a:1=1 20s | b:1 c:1",
			"a:1 release -> done -> b:1=1 10s | c:1",
			"b:1 keep -> granted -> b:1=1 10s | c:1",
			"c:1 keep -> kept -> b:1=1 10s | c:1",
			"b:1 queue -> acquired -> b:1=1 20s | c:1",
			"a:1 queue -> refused, 20s -> b:1=1 20s | c:1 a:1",
			"b:1 release -> done -> c:1=1 10s | a:1",
			"c:1 release -> done -> a:1=1 10s | ",
			"a:1 release -> done ->  | ",
			"a:1 release -> " + notOwner + " ->  | ",
		},
		"leaving": {
			"a:1 queue -> acquired -> a:1=1 20s | ",
			"b:1 queue -> refused, 20s, first -> a:1=1 20s | b:1",
			"c:1 queue -> refused, 20s -> a:1=1 20s | b:1 c:1",
			"b:1 release -> " + notOwner + " -> a:1=1 20s | c:1",
			"b:1 keep -> " + notOwner + " -> a:1=1 20s | c:1",
			"b:1 queue -> refused, 20s -> a:1=1 20s | c:1 b:1",
		},
		"leaving with a grant": {
			"a:1 queue -> acquired -> a:1=1 20s | ",
			"b:1 queue -> refused, 20s, first -> a:1=1 20s | b:1",
			"c:1 queue -> refused, 20s -> a:1=1 20s | b:1 c:1",
			"a:1 release -> done -> b:1=1 10s | c:1",
			"b:1 release -> done -> c:1=1 10s | ",
		},
		"the holder dies, who is first asks": {
			"a:1 queue -> acquired -> a:1=1 20s | ",
			"b:1 queue -> refused, 20s, first -> a:1=1 20s | b:1",
			"gone",
			"b:1 queue -> acquired -> b:1=1 20s | ",
		},
		"the holder dies, somebody else asks": {
			"a:1 queue -> acquired -> a:1=1 20s | ",
			"b:1 queue -> refused, 20s, first -> a:1=1 20s | b:1",
			"c:1 queue -> refused, 20s -> a:1=1 20s | b:1 c:1",
			"gone",
			"d:1 queue -> refused, 10s -> b:1=1 10s | c:1 d:1",
			"gone",
			"d:1 keep -> kept -> c:1=1 10s | d:1",
			"gone",
			"e:1 try -> refused, 10s -> d:1=1 10s | ",
		},
		"the first dies": {
			"a:1 queue -> acquired -> a:1=1 20s | ",
			"b:1 queue -> refused, 20s, first -> a:1=1 20s | b:1",
			"c:1 queue -> refused, 20s -> a:1=1 20s | b:1 c:1",
			"d:1 queue -> refused, 20s -> a:1=1 20s | b:1 c:1 d:1",
			"dead b:1 c:1",
			"a:1 release -> done -> d:1=1 10s | ",
			"c:1 keep -> " + notOwner + " -> d:1=1 10s | ",
		},
		"the dead come back before they are missed": {
			"a:1 queue -> acquired -> a:1=1 20s | ",
			"b:1 queue -> refused, 20s, first -> a:1=1 20s | b:1",
			"c:1 queue -> refused, 20s -> a:1=1 20s | b:1 c:1",
			"dead b:1 c:1",
			"b:1 keep -> kept -> a:1=1 20s | b:1 c:1",
			"a:1 release -> done -> b:1=1 10s | c:1",
		},
		"by force": {
			"x:1 force -> was held: false ->  | ",
			"a:1 queue -> acquired -> a:1=1 20s | ",
			"b:1 queue -> refused, 20s, first -> a:1=1 20s | b:1",
			"x:1 inspect -> map[a:1:1], 20s, 1 waiting -> a:1=1 20s | b:1",
			"x:1 force -> was held: true -> b:1=1 10s | ",
			"x:1 force -> was held: true ->  | ",
			"a:1 release -> " + notOwner + " ->  | ",
		},
	}
	for name, course := range courses {
		t.Run(name, func(t *testing.T) {
			onBothServers(t, func(t *testing.T, rdb *redis.Client) {
				for i, step := range course {
					words := strings.Fields(step)
					switch words[0] {
					case "gone":
						require.NoError(t, rdb.Del(t.Context(), "lock").Err())
						continue
					case "dead":
						age(t, rdb, words[1:]...)
						continue
					}
					parts := strings.Split(step, " -> ")
					answer := fairCalls[words[1]](t.Context(), rdb, fair(words[0]), 20*time.Second)
					require.Equal(t, parts[1], answer, "step %d: %s", i, step)
					require.Equal(t, parts[2], showFair(t, rdb), "step %d: %s", i, step)
				}
			})
		})
	}
}

// fairModel is a fair lock as the scripts should treat it. Its time stands still.
type fairModel struct {
	owner string
	ttl   time.Duration
	queue []string
}

func (m *fairModel) advance() {
	if m.owner == "" && len(m.queue) > 0 {
		m.owner, m.ttl, m.queue = m.queue[0], 10*time.Second, m.queue[1:]
	}
}

func (m *fairModel) deliver(call, owner string, lease time.Duration) string {
	queued := slices.Contains(m.queue, owner)
	first := func() bool { return len(m.queue) == 0 || m.queue[0] == owner }
	switch {
	case call == "release":
		held := m.owner == owner
		if held {
			m.owner = ""
		}
		m.queue = slices.DeleteFunc(m.queue, func(other string) bool { return other == owner })
		if held || queued {
			m.advance()
		}
		if !held {
			return lua.ErrNotOwner.Error()
		}
		return "done"
	case call == "keep" && m.owner == owner:
		return "granted"
	case call == "keep" && !queued:
		return lua.ErrNotOwner.Error()
	case call == "keep":
		m.advance()
		if m.owner == owner {
			return "granted"
		}
		return "kept"
	case m.owner == owner:
		m.ttl = max(m.ttl, lease)
		return "acquired"
	case m.owner == "" && first():
		m.owner, m.ttl = owner, lease
		m.queue = slices.DeleteFunc(m.queue, func(other string) bool { return other == owner })
		return "acquired"
	}
	m.advance()
	if call == "queue" && !slices.Contains(m.queue, owner) {
		m.queue = append(m.queue, owner)
	}
	answer := "refused, " + showTTL(m.ttl)
	if call == "queue" && first() {
		answer += ", first"
	}
	return answer
}

func (m *fairModel) String() string {
	lock := ""
	if m.owner != "" {
		lock = fmt.Sprintf("%s=1 %s", m.owner, showTTL(m.ttl))
	}
	return lock + " | " + strings.Join(m.queue, " ")
}

// Whatever is delivered, in whatever order, server and model agree, a repetition
// changes nothing, and no key is without TTL.
func TestFairInAnyOrder(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		rapid.Check(t, func(t *rapid.T) {
			require.NoError(t, rdb.FlushDB(ctx).Err())
			m := &fairModel{}
			for range rapid.IntRange(1, 40).Draw(t, "requests") {
				if rapid.IntRange(0, 9).Draw(t, "fate") == 0 {
					require.NoError(t, rdb.Del(ctx, "lock").Err()) // the lease has ended
					m.owner = ""
				}
				call := rapid.SampledFrom([]string{"queue", "try", "keep", "release"}).Draw(t, "call")
				owner := rapid.SampledFrom([]string{"a:1", "a:2", "b:1", "c:1"}).Draw(t, "owner")
				lease := time.Duration(rapid.IntRange(2, 6).Draw(t, "lease")) * 10 * time.Second
				require.Equal(t, m.deliver(call, owner, lease), fairCalls[call](ctx, rdb, fair(owner), lease))
				require.Equal(t, m.String(), showFair(t, rdb))
				if rapid.Bool().Draw(t, "again") {
					fairCalls[call](ctx, rdb, fair(owner), lease)
					require.Equal(t, m.String(), showFair(t, rdb), "repeated")
				}
				for _, key := range rdb.Keys(ctx, "*").Val() {
					require.Positive(t, rdb.PTTL(ctx, key).Val(), key)
				}
			}
		})
	})
}

// Only the one who is granted the lock is told, on its client's channel, with what
// it needs to enter.
func TestFairMessage(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		heardA, heardB := listen(t, rdb, "calls:{lock}:a"), listen(t, rdb, "calls:{lock}:b")
		plain := listen(t, rdb, fair("").Channel)
		for _, owner := range []string{"a:1", "b:7", "a:2"} {
			fairCalls["queue"](t.Context(), rdb, fair(owner), 20*time.Second)
		}
		before := serverMicros(t, rdb)
		_, err := lua.ReleaseFair(t.Context(), rdb, fair("a:1"), nil)
		require.NoError(t, err)
		require.Empty(t, heardA())
		require.Empty(t, plain())
		messages := heardB()
		require.Len(t, messages, 1)
		words := strings.Fields(messages[0])
		require.Len(t, words, 4)
		require.Equal(t, "b:7", words[0])
		at, err := strconv.ParseInt(words[1], 10, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, at, before)
		require.LessOrEqual(t, at, serverMicros(t, rdb))
		require.Equal(t, "10000", words[2])
		again, err := lua.AcquireFair(t.Context(), rdb, fair("b:7"), 20*time.Second, lua.Ticket{})
		require.NoError(t, err)
		require.True(t, again.Acquired)
		require.Equal(t, strconv.FormatInt(again.Token, 10), words[3], "the token of a repeated request")

		fairCalls["release"](t.Context(), rdb, fair("b:7"), 0)
		require.Len(t, heardA(), 1)
		fairCalls["release"](t.Context(), rdb, fair("a:2"), 0)
		require.Equal(t, []string{"0"}, plain(), "nobody queues")
	})
}

func TestFairTokensGrow(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		last := int64(0)
		for i := range 50 {
			owner, next := fmt.Sprint("a:", i), fmt.Sprint("a:", i+1)
			own, err := lua.AcquireFair(t.Context(), rdb, fair(owner), time.Minute, lua.Ticket{})
			require.NoError(t, err)
			require.True(t, own.Acquired)
			require.Greater(t, own.Token, last)
			last = own.Token
			fairCalls["queue"](t.Context(), rdb, fair(next), time.Minute)
			fairCalls["release"](t.Context(), rdb, fair(owner), 0)
		}
	})
}

// What is not a fair lock's is left alone.
func TestFairConflicts(t *testing.T) {
	f := fair("a:1")
	table := map[string][]string{
		f.Key:         {"set", "hset", "rpush"},
		f.Queue:       {"set", "hset", "rpush"},
		f.Tickets:     {"set", "rpush"},
		f.Redisson[0]: {"rpush"},
		f.Redisson[1]: {"zadd"},
		f.Counter:     {"hset", "set"},
	}
	for key, verbs := range table {
		for _, verb := range verbs {
			t.Run(verb+" "+key, func(t *testing.T) {
				onBothServers(t, func(t *testing.T, rdb *redis.Client) {
					args := map[string][]any{"set": {"x"}, "hset": {"x", "y"}, "rpush": {"x"}, "zadd": {1, "x"}}
					require.NoError(t, rdb.Do(t.Context(), append([]any{verb, key}, args[verb]...)...).Err())
					before := rdb.Dump(t.Context(), key).Val()
					for _, ticket := range []lua.Ticket{{}, {Life: ticketLife, Claim: time.Second}} {
						_, err := lua.AcquireFair(t.Context(), rdb, f, time.Minute, ticket)
						var conflict *lua.ConflictError
						require.ErrorAs(t, err, &conflict)
						require.Equal(t, key, conflict.Key)
					}
					keys, err := rdb.Keys(t.Context(), "*").Result()
					require.NoError(t, err)
					require.Equal(t, []string{key}, keys)
					require.Equal(t, before, rdb.Dump(t.Context(), key).Val())
				})
			})
		}
	}
}

// A hand-over costs the server the same however many wait.
func TestFairHandoverIsConstant(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t)
	costs := make(map[string][]int)
	for _, waiters := range []int{3, 300} {
		require.NoError(t, rdb.FlushDB(t.Context()).Err())
		for i := range waiters + 1 {
			fairCalls["queue"](t.Context(), rdb, fair(fmt.Sprint("a:", i)), time.Minute)
		}
		for _, call := range []string{"a:0 release", "a:0 queue", "a:2 keep", "a:3 release"} {
			owner, name, _ := strings.Cut(call, " ")
			m := s.Monitor(t)
			fairCalls[name](t.Context(), rdb, fair(owner), time.Minute)
			n := 0
			for _, c := range m.Commands() {
				if c.Client == "lua" {
					n++
				}
			}
			m.Stop()
			costs[call] = append(costs[call], n)
		}
	}
	for call, n := range costs {
		require.Equal(t, n[0], n[1], call)
		require.Positive(t, n[0], call)
	}
}

// Scripts touch the keys that they declare.
func TestFairDeclaredKeys(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t)
	keyless := []string{"time", "publish"}
	for name, call := range fairCalls {
		for _, counter := range []string{"", fair("").Counter} {
			require.NoError(t, rdb.FlushDB(t.Context()).Err())
			for _, owner := range []string{"a:1", "b:1", "c:1"} {
				f := fair(owner)
				f.Counter = counter
				fairCalls["queue"](t.Context(), rdb, f, time.Minute)
			}
			age(t, rdb, "b:1")
			m := s.Monitor(t)
			f := fair("a:1")
			f.Counter = counter
			call(t.Context(), rdb, f, time.Minute)
			var declared []string
			for _, c := range m.Commands() {
				switch command := strings.ToLower(c.Args[0]); {
				case command == "evalsha" || command == "eval":
					declared = c.Args[3 : 3+int(c.Args[2][0]-'0')]
				case c.Client == "lua" && !slices.Contains(keyless, command):
					require.Contains(t, declared, c.Args[1], "%s: %v", name, c.Args)
				}
			}
			require.NotEmpty(t, declared)
			m.Stop()
		}
	}
}

// A server without memory grants nothing new, but keeps tickets and hands over.
func TestFairOutOfMemory(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	for _, owner := range []string{"a:1", "b:1"} {
		fairCalls["queue"](t.Context(), rdb, fair(owner), time.Minute)
	}
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.Contains(t, fairCalls["queue"](t.Context(), rdb, fair("c:1"), time.Minute), "OOM")
	require.Equal(t, "kept", fairCalls["keep"](t.Context(), rdb, fair("b:1"), time.Minute))
	require.Equal(t, "done", fairCalls["release"](t.Context(), rdb, fair("a:1"), 0))
	require.Equal(t, "b:1=1 10s | ", showFair(t, rdb))
	require.Equal(t, "done", fairCalls["release"](t.Context(), rdb, fair("b:1"), 0))
	require.False(t, errors.Is(rdb.Get(t.Context(), fair("").Counter).Err(), redis.Nil))
}
