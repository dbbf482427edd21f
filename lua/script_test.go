package lua_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A reply is lost after the script was executed, and nobody sends it again,
// whatever the client's options.
func TestSentOnce(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			for _, retries := range []int{0, 10} { // 0: go-redis's default of 3
				s := redistest.Start(t)
				proxy := netfault.New(t, s.Addr())
				put(t, s.Client(t), "lock", "me:1=1 10s")
				rdb := s.Client(t, func(o *redis.Options) { o.Addr, o.MaxRetries = proxy.Addr(), retries })
				call(t.Context(), s.Client(t), grant("other:1"), time.Minute) // the server knows the script
				before := executions(t, s)

				proxy.CutReplies(1, netfault.Command("evalsha"))
				answer := call(t.Context(), rdb, grant("me:1"), time.Minute)
				require.Condition(t, func() bool {
					return strings.Contains(answer, io.EOF.Error()) || strings.Contains(answer, "reset")
				}, answer)
				require.EqualValues(t, 1, proxy.Stats().RepliesCut)
				require.Equal(t, before+1, executions(t, s))
			}
		})
	}
}

// executions returns how many scripts the server has run.
func executions(t *testing.T, s *redistest.Server) int64 {
	t.Helper()
	n := s.CommandCalls(t)
	return n["evalsha"] + n["eval"]
}

// A hook of the user may send everything twice, a release included.
func TestSentTwice(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		rdb.AddHook(redistest.SendTwice())
		ctx := t.Context()
		for range 2 { // the second time the server knows the scripts
			g := fenced("me:1")
			reply, err := lua.Acquire(ctx, rdb, g, 10*time.Second, 0)
			require.NoError(t, err)
			require.True(t, reply.Acquired)
			require.Equal(t, "me:1=1 10s", show(t, rdb, "lock"))
			token, err := rdb.Get(ctx, g.Counter).Int64()
			require.NoError(t, err)
			require.Equal(t, reply.Token, token)
			require.NoError(t, lua.Count(ctx, rdb, g, 10*time.Second, 2))
			require.NoError(t, lua.Renew(ctx, rdb, []lua.Renewal{{Grant: g, Lease: 20 * time.Second}})[0])
			require.Equal(t, "me:1=2 20s", show(t, rdb, "lock"))
			if _, err = lua.Release(ctx, rdb, g, lua.Ending{}); err != nil {
				require.ErrorIs(t, err, lua.ErrNotOwner)
			}
			require.Empty(t, show(t, rdb, "lock"))
		}
	})
}

func TestUnknownScript(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		for name, call := range calls {
			t.Run(name, func(t *testing.T) {
				put(t, rdb, "lock", "me:1=3 10s")
				want := call(t.Context(), rdb, grant("me:1"), 10*time.Second)
				for range 3 {
					put(t, rdb, "lock", "me:1=3 10s")
					require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
					require.Equal(t, want, call(t.Context(), rdb, grant("me:1"), 10*time.Second))
				}
			})
		}
	})
}

// want are the keys that a script should declare.
func want(name string, g lua.Grant) []string {
	keys := []string{g.Key}
	if !slices.Contains([]string{"acquire", "count 3", "renew", "confirm"}, name) {
		keys = append(keys, g.Queue)
	}
	if g.Counter != "" && name != "count 3" && name != "renew" && name != "confirm" {
		keys = append(keys, g.Counter)
	}
	return keys
}

// Scripts touch the keys that they declare, and a second one is declared only
// where it is needed.
func TestDeclaredKeys(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t)
	keyless := []string{"time", "publish", "pubsub"}
	for _, g := range []lua.Grant{grant("me:1"), fenced("me:1")} {
		for name, call := range calls {
			for _, before := range []string{"", "me:1=1 10s", "other:1=1 10s"} {
				put(t, rdb, g.Key, before)
				m := s.Monitor(t)
				call(t.Context(), rdb, g, time.Minute)
				scripts := 0
				var declared []string
				for _, c := range m.Commands() {
					command := strings.ToLower(c.Args[0])
					switch {
					case command == "evalsha" || command == "eval":
						scripts++
						declared = c.Args[3 : 3+int(c.Args[2][0]-'0')]
						require.Equal(t, want(name, g), declared, name)
					case c.Client == "lua" && !slices.Contains(keyless, command):
						require.Contains(t, declared, c.Args[1], "%s: %v", name, c.Args)
					}
				}
				require.Positive(t, scripts)
				m.Stop()
			}
		}
	}
}

// answering returns a client that gets the same answer to everything, whatever
// stands between it and a server. A value that is an error is an error reply.
func answering(value any) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	rdb.AddHook(redistest.Answers(func(_ context.Context, cmds ...redis.Cmder) error {
		for _, cmd := range cmds {
			if err, ok := value.(error); ok {
				cmd.SetErr(err)
			} else {
				cmd.(interface{ SetVal(any) }).SetVal(value)
			}
		}
		return nil
	}))
	return rdb
}

// ask makes each call of a lock that the answer could be for.
func ask(ctx context.Context, value any) (acquired lua.Reply, errs map[string]error) {
	rdb := answering(value)
	defer func() { _ = rdb.Close() }()
	g := fenced("me:1")
	errs = make(map[string]error)
	acquired, errs["acquire"] = lua.Acquire(ctx, rdb, g, time.Minute, 0)
	asked, err := lua.Ask(ctx, rdb, g, time.Minute, lua.Ticket{}, 0)
	asked.Place, errs["ask"] = lua.Place{}, err
	if asked != acquired {
		errs["acquire"] = fmt.Errorf("asked: %v", asked)
	}
	errs["count"] = lua.Count(ctx, rdb, g, time.Minute, 2)
	_, errs["release"] = lua.Release(ctx, rdb, g, lua.Ending{})
	errs["renew"] = lua.Renew(ctx, rdb, []lua.Renewal{{Grant: g, Lease: time.Minute}})[0]
	_, errs["confirm"] = lua.Confirm(ctx, rdb, g)
	_, errs["force"] = lua.ForceRelease(ctx, rdb, g)
	_, errs["inspect"] = lua.Inspect(ctx, rdb, g)
	return acquired, errs
}

func TestStrangeReplies(t *testing.T) {
	for _, value := range []any{
		nil,
		"OK",
		"1",
		"",
		true,
		1.0,
		int64(2),
		int64(-2),
		[]any{},
		[]any{nil},
		[]any{"1", int64(7)},
		[]any{true, int64(7)},
		[]any{int64(2), int64(7)},
		[]any{[]any{int64(1), int64(7)}},
		map[any]any{int64(1): int64(7)},
		redis.Nil,
		errors.New("ERR of some kind"),
	} {
		t.Run(fmt.Sprintf("%T %v", value, value), func(t *testing.T) {
			reply, errs := ask(t.Context(), value)
			require.Zero(t, reply)
			for call, err := range errs {
				require.Error(t, err, call)
				require.NotErrorIs(t, err, lua.ErrNotOwner, call)
			}
		})
	}
}

// An answer that breaks off, or is that of another script, is no lock.
func TestTruncatedReplies(t *testing.T) {
	for _, value := range []any{
		int64(1),
		int64(0),
		[]any{int64(1)},
		[]any{int64(0)},
		[]any{int64(1), "seven"},
		[]any{int64(1), nil},
		[]any{int64(0), nil},
	} {
		t.Run(fmt.Sprint(value), func(t *testing.T) {
			reply, errs := ask(t.Context(), value)
			require.Zero(t, reply)
			require.Error(t, errs["acquire"])
			require.Error(t, errs["inspect"])
		})
	}
}

func TestTokenOfALockWithoutTokens(t *testing.T) {
	rdb := answering([]any{int64(1), int64(7), int64(3)})
	defer func() { _ = rdb.Close() }()
	reply, err := lua.Acquire(t.Context(), rdb, grant("me:1"), time.Minute, 0)
	require.NoError(t, err)
	require.Equal(t, lua.Reply{Acquired: true}, reply)
}

// FuzzReply: whatever comes back, a lock is acquired only by {1, token}, and
// counted or renewed only by 1.
func FuzzReply(f *testing.F) {
	f.Add([]byte{4, 2, 0, 1, 0, 7}) // {1, 7}
	f.Add([]byte{4, 2, 0, 0, 0, 7}) // {0, 7}
	f.Add([]byte{4, 1, 0, 1})       // {1}
	f.Add([]byte{0, 1})             // 1
	f.Add([]byte{4, 3, 0, 255, 1, 1, 'k', 1, 1, 't'})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, data []byte) {
		value := decode(&data, 3)
		reply, errs := ask(t.Context(), value)

		list, _ := value.([]any)
		isStatus := func(v any) bool { return v == int64(0) || v == int64(1) }
		wellFormed := len(list) >= 2 && isStatus(list[0])
		if wellFormed {
			switch second := list[1].(type) {
			case int64:
			case string:
				_, err := strconv.ParseInt(second, 10, 64)
				wellFormed = err == nil && list[0] == int64(1)
			default:
				wellFormed = false
			}
		}
		if (errs["acquire"] == nil) != wellFormed {
			t.Errorf("acquire: %v: %v", value, errs["acquire"])
		}
		if reply.Acquired != (wellFormed && list[0] == int64(1)) {
			t.Errorf("acquire: %v: %+v", value, reply)
		}
		first := value
		if len(list) > 0 {
			first = list[0]
		}
		for _, call := range []string{"count", "renew", "confirm", "release", "force"} {
			if errs[call] == nil && !isStatus(first) || errors.Is(errs[call], lua.ErrNotOwner) && first != int64(0) {
				t.Errorf("%s: %v: %v", call, value, errs[call])
			}
		}
	})
}

// decode takes a value off data: a kind, then what belongs to it.
func decode(data *[]byte, depth int) any {
	next := func() byte {
		if len(*data) == 0 {
			return 0
		}
		b := (*data)[0]
		*data = (*data)[1:]
		return b
	}
	switch kind := next() % 7; {
	case kind == 0:
		return int64(int8(next()))
	case kind == 1:
		n := min(int(next()), len(*data))
		s := string((*data)[:n])
		*data = (*data)[n:]
		return s
	case kind == 2:
		return nil
	case kind == 3:
		return next()%2 == 1
	case kind == 4 && depth > 0:
		list := make([]any, next()%8)
		for i := range list {
			list[i] = decode(data, depth-1)
		}
		return list
	case kind == 5:
		return float64(next())
	default:
		return errors.New("ERR of some kind")
	}
}

// A key may have a TTL longer than a Duration can be.
func TestTTLBeyondADuration(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t)
	put(t, rdb, "lock", "you:1=1 10s")
	require.NoError(t, rdb.Do(t.Context(), "pexpire", "lock", "10000000000000").Err())
	r, err := lua.Acquire(t.Context(), rdb, grant("me:1"), time.Minute, 0)
	require.NoError(t, err)
	require.False(t, r.Acquired)
	require.Greater(t, r.TTL, 100*365*24*time.Hour)
}

// A server that is full, and evicts nothing, grants no lock but lets those that
// hold one count, renew and release.
func TestOutOfMemory(t *testing.T) {
	rdb := redistest.Start(t, "--maxmemory-policy", "noeviction").Client(t)
	ctx := t.Context()
	held := fenced("me:1")
	reply, err := lua.Acquire(ctx, rdb, held, 10*time.Second, 0)
	require.NoError(t, err)
	require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	require.True(t, redis.IsOOMError(rdb.Set(ctx, "x", "y", 0).Err()))

	for _, g := range []lua.Grant{
		{Key: "free", Owner: "me:1"},
		{Key: "free", Owner: "me:1", Counter: "new"},
		{Key: "free", Owner: "me:1", Counter: held.Counter},
	} {
		_, err = lua.Acquire(ctx, rdb, g, time.Minute, 0)
		require.True(t, says(err, "OOM"), "%v", err)
		require.Empty(t, show(t, rdb, "free"))
		require.Zero(t, rdb.Exists(ctx, "new").Val())
	}
	token, err := rdb.Get(ctx, held.Counter).Int64()
	require.NoError(t, err)
	require.Equal(t, reply.Token, token)

	again, err := lua.Acquire(ctx, rdb, held, 20*time.Second, 0)
	require.NoError(t, err)
	require.True(t, again.Acquired)
	require.Greater(t, again.Token, reply.Token)
	refused, err := lua.Acquire(ctx, rdb, fenced("other:1"), 20*time.Second, 0)
	require.NoError(t, err)
	require.False(t, refused.Acquired)

	require.NoError(t, lua.Count(ctx, rdb, held, 20*time.Second, 2))
	require.Equal(t, "me:1=2 20s", show(t, rdb, "lock"))
	require.NoError(t, lua.Renew(ctx, rdb, []lua.Renewal{{Grant: held, Lease: 30 * time.Second}})[0])
	require.Equal(t, "me:1=2 30s", show(t, rdb, "lock"))
	_, err = lua.Inspect(ctx, rdb, held)
	require.NoError(t, err)
	_, err = lua.Release(ctx, rdb, held, lua.Ending{})
	require.NoError(t, err)
	require.Empty(t, show(t, rdb, "lock"))
}

// user returns a client that may do what the rules say.
func user(t *testing.T, s *redistest.Server, rules ...any) *redis.Client {
	t.Helper()
	args := append([]any{"acl", "setuser", "app", "reset", "on", "nopass"}, rules...)
	require.NoError(t, s.Client(t).Do(t.Context(), args...).Err())
	return s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "none" })
}

// A release that may not be announced is a release.
func TestRefusedPublish(t *testing.T) {
	for name, rules := range map[string][]any{
		"no channel": {"~*", "+@all", "resetchannels"},
		"no PUBLISH": {"~*", "&*", "+@all", "-publish"},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			rdb := user(t, s, rules...)
			ctx := t.Context()
			for range 2 {
				reply, err := lua.Acquire(ctx, rdb, grant("me:1"), time.Minute, 0)
				require.NoError(t, err)
				require.True(t, reply.Acquired)
				released, err := lua.Release(ctx, rdb, grant("me:1"), lua.Ending{})
				require.NoError(t, err)
				require.Error(t, released.PublishErr)
				require.NotEmpty(t, released.PublishErr.Error())
				require.Empty(t, show(t, s.Client(t), "lock"))

				put(t, s.Client(t), "lock", "other:1=1 10s")
				was, err := lua.ForceRelease(ctx, rdb, grant(""))
				require.NoError(t, err)
				require.True(t, was)
				require.Empty(t, show(t, s.Client(t), "lock"))
			}
		})
	}
}

// Without the right to a key nothing is done, and what the server says is the
// error, not a lock that somebody else holds.
func TestRefusedKey(t *testing.T) {
	s := redistest.Start(t)
	rdb := user(t, s, "~lock", "&*", "+@all")
	for name, g := range map[string]lua.Grant{
		"counter": fenced("me:1"),
		"lock":    {Key: "other lock", Owner: "me:1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := lua.Acquire(t.Context(), rdb, g, time.Minute, 0)
			require.True(t, redis.IsPermissionError(err), "%v", err)
			require.Empty(t, show(t, s.Client(t), g.Key))
		})
	}
}

// Where a script may run, but not every command in it, the error must not look
// like a lock that is lost.
func TestRefusedCommand(t *testing.T) {
	for _, command := range []string{"-type", "-hlen", "-hset", "-pexpire", "-pttl", "-del"} {
		t.Run(command, func(t *testing.T) {
			s := redistest.Start(t)
			put(t, s.Client(t), "lock", "me:1=1 10s")
			rdb := user(t, s, "~*", "&*", "+@all", command)
			for name, call := range calls {
				answer := call(t.Context(), rdb, grant("me:1"), 20*time.Second)
				require.NotEqual(t, "lua: not the owner", answer, name)
				put(t, s.Client(t), "lock", "me:1=1 10s")
			}
		})
	}
}

// words returns all words of so many of these letters.
func words(letters string, size int) (all []string) {
	for all = []string{""}; size > 0; size-- {
		var longer []string
		for _, w := range all {
			for _, l := range letters {
				longer = append(longer, w+string(l))
			}
		}
		all = longer
	}
	return all
}

// No two locks have a queue, a channel for grants or an intent in common, and the slot is
// that of the lock. The scripts know the same names: see TestCourses and TestRetained.
func TestOwnNamesAreOfOneLock(t *testing.T) {
	t.Parallel()
	locks := make(map[string]string)
	for size := 1; size <= 7; size++ {
		for _, key := range words("a:{}", size) {
			if !strings.Contains(key, "{") && strings.Contains(key, "}") {
				continue // has no queue in its slot, and is refused
			}
			queue := lua.QueueOf(key)
			require.Empty(t, locks[queue], "%s and %s have %s", locks[queue], key, queue)
			locks[queue] = key
			require.Equal(t, "rlock_channel"+strings.TrimPrefix(queue, "rlock_queue")+":client", lua.GrantChannel(key, "client"))
			if strings.Contains(key, "{") {
				require.Equal(t, key, strings.TrimSuffix(strings.TrimPrefix(queue, "rlock_queue:"), strings.Repeat(":", len(queue)-len(key)-12)))
			}
		}
	}
	require.Equal(t, "rlock_queue:{a}", lua.QueueOf("a"))
	require.Equal(t, "rlock_queue:{a}b", lua.QueueOf("{a}b"))
	require.Equal(t, "rlock_queue:{a}:", lua.QueueOf("{a}"))
}
