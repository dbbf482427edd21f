package lua_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

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
