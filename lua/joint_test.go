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
