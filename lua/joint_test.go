package lua_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// company is a Runner that lets every command travel between two others, which take
// and give back a lock of their own.
type company struct{ *redis.Client }

func (c company) Process(ctx context.Context, cmd redis.Cmder) error {
	bystander := lua.Grant{Key: "bystander", Queue: lua.QueueOf("bystander"), Owner: "by:1"}
	var before, after caught
	_, _ = lua.Acquire(ctx, &before, bystander, time.Minute, 0)
	_, _ = lua.Release(ctx, &after, bystander, lua.Ending{})
	lua.Send(ctx, c.Client, []redis.Cmder{before.cmd, cmd, after.cmd}, true)
	return cmd.Err()
}

// caught is a Runner that keeps the command instead.
type caught struct {
	lua.Runner
	cmd redis.Cmder
}

func (c *caught) Process(_ context.Context, cmd redis.Cmder) error {
	if c.cmd == nil {
		c.cmd = cmd
	}
	return redis.ErrClosed
}

// text is the answer of a caught command.
func text(cmd redis.Cmder) string {
	if err := cmd.Err(); err != nil {
		return err.Error()
	}
	return fmt.Sprint(cmd.(interface{ Val() any }).Val())
}

// batch returns commands that acquire locks, and then release them.
func batch(names ...string) (cmds []redis.Cmder) {
	for _, release := range []bool{false, true} {
		for i, name := range names {
			var c caught
			g := lua.Grant{Key: name, Queue: lua.QueueOf(name), Owner: fmt.Sprintf("me:%d", i+1)}
			if release {
				_, _ = lua.Release(context.Background(), &c, g, lua.Ending{})
			} else {
				_, _ = lua.Acquire(context.Background(), &c, g, time.Minute, 0)
			}
			cmds = append(cmds, c.cmd)
		}
	}
	return cmds
}

func texts(cmds []redis.Cmder) (all []string) {
	for _, cmd := range cmds {
		all = append(all, text(cmd))
	}
	return all
}

// teach has a server know the scripts.
func teach(t *testing.T, rdb *redis.Client) {
	t.Helper()
	_, err := lua.Acquire(t.Context(), rdb, fenced("me:1"), time.Minute, 0)
	require.NoError(t, err)
	_, err = lua.Release(t.Context(), rdb, fenced("me:1"), lua.Ending{})
	require.NoError(t, err)
	require.False(t, lua.Send(t.Context(), rdb, batch("teach", "taught"), true))
}

// Who joins others gets what one would get alone, whatever becomes of the others.
func TestJoined(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		for range 2 { // the second time the server knows the script
			put(t, rdb, "held", "other:1=2 10s")
			put(t, rdb, "endless", "other:1=2")
			put(t, rdb, "strange", "list")
			put(t, rdb, "mine", "me:5=7 10s")
			cmds := batch("free", "held", "endless", "strange", "mine")
			require.False(t, lua.Send(t.Context(), rdb, cmds, true))
			got := texts(cmds)
			require.Regexp(t, `^\[0 (9\d\d\d|10000) other:1\]$`, got[1])
			got[1] = "held"
			require.Equal(t, []string{
				"1", "held", "[0 -1 other:1]", "[-1 strange list]", "1",
				"[0]", "[0]", "[0]", "[0]", "1",
			}, got, "releases come first")
			require.Equal(t, "me:1=1 1m0s", show(t, rdb, "free"))
			require.NoError(t, rdb.Del(t.Context(), "free").Err())
			require.Equal(t, "me:5=1 1m0s", show(t, rdb, "mine"))
			require.Equal(t, "other:1=2 10s", show(t, rdb, "held"))
		}
	})
}

// One command goes to the server in place of all that can join; others keep their
// own.
func TestWhoJoins(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t)
	teach(t, rdb)
	calls := func(joined bool) int64 {
		var counter caught
		_, _ = lua.Acquire(t.Context(), &counter, fenced("me:1"), time.Minute, 0)
		cmds := append(batch("a", "b", "c"), counter.cmd, redis.NewCmd(t.Context(), "set", "k", "v"))
		require.False(t, lua.Send(t.Context(), rdb, cmds, joined))
		before := executions(t, s)
		require.False(t, lua.Send(t.Context(), rdb, cmds, joined))
		require.NotContains(t, strings.Join(texts(cmds[:6]), " "), "ERR")
		require.Equal(t, "v", rdb.Get(t.Context(), "k").Val())
		return executions(t, s) - before
	}
	require.EqualValues(t, 7, calls(false))
	require.EqualValues(t, 3, calls(true), "one for each kind, and the one with a counter")
	before := executions(t, s)
	require.False(t, lua.Send(t.Context(), rdb, batch("a")[:1], true))
	require.EqualValues(t, 1, executions(t, s)-before, "nobody to join")
}

// What the server refuses one of them, it does not refuse the others.
func TestJoinedWithoutTheRight(t *testing.T) {
	s := redistest.Start(t)
	rdb := user(t, s, "~mine:*", "~rlock_queue:{mine:*", "&*", "+@all")
	teach(t, s.Client(t))
	for range 2 {
		cmds := batch("mine:1", "yours", "mine:2")
		require.True(t, lua.Send(t.Context(), rdb, cmds[:3], true), "to be remembered")
		require.True(t, lua.Send(t.Context(), rdb, cmds[3:], true))
		got := texts(cmds)
		for _, i := range []int{1, 4} {
			require.Contains(t, got[i], "NOPERM")
			got[i] = "NOPERM"
		}
		require.Equal(t, []string{"1", "NOPERM", "1", "1", "NOPERM", "1"}, got)
	}
}

// A server that is short of memory grants nothing, also to those who ask beside a
// release, which is let through; an error is that of one part.
func TestJoinedOutOfMemory(t *testing.T) {
	s := redistest.Start(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	teach(t, rdb)
	for _, first := range []string{"release", "acquire"} {
		put(t, rdb, "mine", "me:1=1 10s")
		put(t, rdb, "held", "other:1=1 10s")
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		all := batch("mine", "a", "held", "b")
		cmds := []redis.Cmder{all[4], all[1], all[2], all[3]} // release mine, ask for the others
		if first == "acquire" {
			cmds = []redis.Cmder{all[1], all[2], all[3], all[4]}
		}
		got := make(map[redis.Cmder]string)
		require.False(t, lua.Send(t.Context(), rdb, cmds, true), "%v", texts(cmds))
		for _, cmd := range cmds {
			got[cmd] = text(cmd)
		}
		require.True(t, says(all[1].Err(), "OOM"), "%v", got)
		require.True(t, says(all[3].Err(), "OOM"), "%v", got)
		require.Contains(t, got[all[2]], "other:1")
		require.Equal(t, "1", got[all[4]])
		require.Empty(t, show(t, rdb, "a")+show(t, rdb, "b")+show(t, rdb, "mine"))
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	}
}

// A script is not so long that others wait for it.
func TestJoinedInParts(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t)
	teach(t, rdb)
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprint("lock", i))
	}
	cmds := batch(names...)
	before := executions(t, s)
	require.False(t, lua.Send(t.Context(), rdb, cmds[:300], true))
	require.EqualValues(t, 3, executions(t, s)-before)
	require.Equal(t, strings.Repeat("1 ", 300), strings.Join(texts(cmds[:300]), " ")+" ")
}

// Without an answer nobody has one, and nothing is sent again.
func TestJoinedWithoutAnswer(t *testing.T) {
	s := redistest.Start(t)
	teach(t, s.Client(t))
	proxy := netfault.New(t, s.Addr())
	rdb := s.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	before := executions(t, s)
	proxy.CutReplies(1, netfault.Command("evalsha"))
	all := batch("x", "y")
	cmds := all[:2]
	require.False(t, lua.Send(t.Context(), rdb, cmds, true))
	for _, cmd := range cmds {
		require.Error(t, cmd.Err())
		var reply redis.Error
		require.NotErrorAs(t, cmd.Err(), &reply)
	}
	require.Equal(t, before+1, executions(t, s))
	require.Equal(t, "me:1=1 1m0s", show(t, rdb, "x"), "though it was executed")
}

// A hook of the client that lets nothing through need not tell that to each command: go-redis
// gives its error to who has sent the pipeline.
func TestHookThatRefusesPipelines(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t)
	refused := errors.New("the circuit is open")
	rdb.AddHook(redistest.Hook{Pipeline: func(context.Context, []redis.Cmder, redis.ProcessPipelineHook) error { return refused }})
	for _, joined := range []bool{false, true} {
		cmds := batch("x", "y")
		require.False(t, lua.Send(t.Context(), rdb, cmds, joined))
		for _, cmd := range cmds {
			require.ErrorIs(t, cmd.Err(), refused)
		}
	}
	for _, err := range lua.Renew(t.Context(), rdb, make([]lua.Renewal, 3)) {
		require.ErrorIs(t, err, refused)
	}
}

// command is a request that was caught on its way: "a:1 ask P", as those of [waiters].
func (w *waiters) command(call string) redis.Cmder {
	w.t.Helper()
	var c caught
	w.do(&c, call)
	return c.cmd
}

// timeless is the answer to a command without what differs from one run to the next:
// clocks, tokens and the last digits of TTLs.
func timeless(cmd redis.Cmder) string {
	reply, ok := cmd.(interface{ Val() any }).Val().([]any)
	if !ok || cmd.Err() != nil {
		return text(cmd)
	}
	all := ""
	for i, v := range reply {
		switch v := v.(type) {
		case int64:
			switch {
			case v > 1e12:
				all += " clock"
			case v > 5:
				all += " " + showTTL(time.Duration(v)*time.Millisecond)
			default:
				all += fmt.Sprint(" ", v)
			}
		case string:
			if i == 2 && v != "" && lua.ReadMessage(v).Granted {
				v = messageText(v)
			}
			all += " " + shorten(v)
		}
	}
	return all
}

// Whoever travels with others gets the answer that it would have if they came one after
// the other, and leaves the same behind, also if the server does not know the script.
func TestJoinedIsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	states := map[string][]string{
		"free":                           nil,
		"held":                           {"x:1 ask"},
		"held by a stranger":             {"uuid:7 takes"},
		"with a queue":                   {"x:1 ask", "b:1 ask P", "b:2 ask P", "c:1 ask P"},
		"some queue already":             {"x:1 ask", "a:2 ask P", "b:1 ask -", "a:3 ask p"},
		"one of them holds it":           {"a:2 ask", "b:1 ask P"},
		"one of them holds it, deaf":     {"a:1 ask", "a:2 ask -", "c:1 ask P"},
		"the holder has died":            {"x:1 ask", "b:1 ask P", "a:2 ask P", "- expires"},
		"all have died":                  {"x:1 ask", "c:1 ask P", "c:2 ask P", "- expires"},
		"a grant has lapsed":             {"x:1 ask", "b:1 ask P", "c:1 ask -", "b:2 ask P", "x:1 release", "- expires"},
		"a grant of theirs has lapsed":   {"x:1 ask", "a:9 ask P", "a:2 ask P", "b:1 ask P", "x:1 release", "- expires"},
		"strangers listen":               {"x:1 ask", "b:1 ask P", "redisson listens"},
		"strangers listen, one holds it": {"a:1 ask", "a:2 ask P", "redisson listens"},
		"no lock":                        {"lock is list"},
		"no queue":                       {"queue is list"},
		"no counter":                     {"counter is list"},
		"no queue, held":                 {"a:1 ask", "queue is list"},
		"no counter, queue":              {"a:1 ask", "b:1 ask P", "counter is list"},
		"Redisson's":                     {"rival is list"},
	}
	calls := [][]string{
		{"a:1 ask P", "a:2 ask P", "a:3 ask P"},
		{"a:1 ask -", "b:1 ask P", "a:2 ask", "a:1 ask P"},
		{"a:1 ask", "a:2 ask", "b:2 ask"},
		{"a:1 try", "a:2 try", "b:1 try", "a:2 try"},
		{"a:1 release", "a:2 release", "a:3 release", "x:1 release", "a:1 release"},
		{"a:2 release a:2", "b:1 release b:1", "x:1 release", "c:1 release c:1 b:2", "a:1 release"},
	}
	alone := func(owner string) lua.Grant { return lua.Grant{Key: "lock", Owner: owner} }
	kinds := map[string]func(string) lua.Grant{"plain": grant, "fenced": fenced, "fair": fair, "fair without tokens": func(owner string) lua.Grant {
		g := fair(owner)
		g.Counter = ""
		return g
	}, "without queue": alone}
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		if strings.HasSuffix(t.Name(), "embedded") {
			redistest.Long(t, "5 s of computing")
		}
		for kind, lock := range kinds {
			if testing.Short() && kind != "fenced" && kind != "fair" {
				continue // the others are these without tokens, or without a queue
			}
			if strings.HasSuffix(t.Name(), "embedded") && kind != "fenced" {
				continue // the other kinds differ in what the scripts do, not in how they are joined
			}
			for name, events := range states {
				for _, parts := range calls {
					if kind == "without queue" && parts[0][4:] == "ask P" {
						continue
					}
					outcome := func(joined, known bool) string {
						w := newWaiters(t, rdb, lock)
						for _, part := range parts {
							w.do(rdb, part) // the server knows the scripts
						}
						w = newWaiters(t, rdb, fenced)
						w.hear("a")
						w.hear("b")
						for _, event := range events {
							w.event(event)
						}
						w.messages()
						w.lock = lock
						var cmds []redis.Cmder
						for _, part := range parts {
							cmds = append(cmds, w.command(part))
						}
						if !known {
							require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
						}
						if joined {
							require.False(t, lua.Send(t.Context(), rdb, cmds, true))
						}
						for _, cmd := range cmds {
							if !joined {
								_ = rdb.Process(t.Context(), cmd)
							}
						}
						outcome := ""
						for i, cmd := range cmds {
							outcome += parts[i] + ":" + timeless(cmd) + "\n"
						}
						outcome += w.everything() + "\n" + w.messages()
						for client := range w.subs {
							w.deafen(client)
						}
						return outcome
					}
					want := outcome(false, true)
					about := fmt.Sprintf("%s, %s", kind, name)
					require.Equal(t, want, outcome(true, true), about)
					if name == "with a queue" {
						require.Equal(t, want, outcome(true, false), about+", to a server that does not know the script")
					}
				}
			}
		}
	})
}

// event prepares a state.
func (w *waiters) event(event string) {
	w.t.Helper()
	keys := map[string]string{"lock is list": "lock", "queue is list": lua.QueueOf("lock"), "counter is list": fenced("").Counter, "rival is list": fair("").Rivals[1]}
	if key, ok := keys[event]; ok {
		put(w.t, w.rdb, key, "list")
		return
	}
	w.do(w.rdb, event)
}

// everything is what all keys hold, without clocks.
func (w *waiters) everything() (all string) {
	ctx := context.Background()
	keys, err := w.rdb.Keys(ctx, "*").Result()
	require.NoError(w.t, err)
	for _, key := range []string{"lock", lua.QueueOf("lock"), fenced("").Counter, fair("").Rivals[0], fair("").Rivals[1]} {
		all += fmt.Sprintf("%s: %s %s %v; ", key, show(w.t, w.rdb, key), showTTL(w.rdb.PTTL(ctx, key).Val()), w.rdb.ZRangeWithScores(ctx, key, 0, -1).Val())
	}
	return shorten(fmt.Sprint(len(keys), " ", all))
}

// three are wanted together: the second is fenced.
func three(n string) []lua.Wanted {
	return []lua.Wanted{
		{Grant: lua.Grant{Key: "{k}1", Owner: "me:1" + n}, Lease: 10 * time.Second},
		{Grant: lua.Grant{Key: "{k}2", Owner: "me:2" + n, Counter: "{k}tokens"}, Lease: 20 * time.Second},
		{Grant: lua.Grant{Key: "{k}3", Owner: "me:3" + n}, Lease: 30 * time.Second},
	}
}

func TestAcquireAll(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		first, err := lua.AcquireAll(t.Context(), rdb, three(""))
		require.NoError(t, err)
		require.True(t, first.Acquired)
		require.Zero(t, first.Tokens[0])
		require.Positive(t, first.Tokens[1])
		for _, w := range three("") {
			held, err := lua.Acquire(t.Context(), rdb, w.Grant, time.Millisecond, 0)
			require.NoError(t, err)
			require.True(t, held.Acquired)
			require.Equal(t, w.Grant.Counter != "", held.Token > first.Tokens[1])
			require.InDelta(t, w.Lease, rdb.PTTL(t.Context(), w.Grant.Key).Val(), float64(5*time.Second))
		}

		again, err := lua.AcquireAll(t.Context(), rdb, three("")) // delivered twice
		require.NoError(t, err)
		require.True(t, again.Acquired)
		require.Zero(t, again.Tokens[0])
		require.Greater(t, again.Tokens[1], first.Tokens[1])
		first = again

		_, err = lua.Release(t.Context(), rdb, three("")[0].Grant, lua.Ending{})
		require.NoError(t, err)
		refused, err := lua.AcquireAll(t.Context(), rdb, three("x"))
		require.NoError(t, err)
		require.False(t, refused.Acquired)
		require.Equal(t, 1, refused.Busy)
		require.Equal(t, three("")[1].Grant.Owner, refused.Holder)
		require.InDelta(t, 20*time.Second, refused.TTL, float64(5*time.Second))
		require.Empty(t, show(t, rdb, "{k}1"), "none of them is taken")
	})
}

// What is not a lock, or does not count, is not touched, and nothing is taken.
func TestAcquireAllConflicts(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		for _, key := range []string{"{k}3", "{k}tokens"} {
			require.NoError(t, rdb.RPush(t.Context(), key, "x").Err())
			_, err := lua.AcquireAll(t.Context(), rdb, three(""))
			var conflict *lua.ConflictError
			require.ErrorAs(t, err, &conflict)
			require.Equal(t, lua.ConflictError{Key: key, Type: "list"}, *conflict)
			require.EqualValues(t, 1, rdb.DBSize(t.Context()).Val())
			require.NoError(t, rdb.Del(t.Context(), key).Err())
		}
	})
}
