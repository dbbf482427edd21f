package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// asked is a lua.Runner that knows no script: so it is shown the hash of each, and then
// the source.
type asked struct{ words []string }

func (a *asked) Process(_ context.Context, cmd redis.Cmder) error {
	a.words = append(a.words, fmt.Sprint(cmd.Args()[1]))
	err := errors.New("not a server")
	if cmd.Name() == "evalsha" {
		err = redisError("NOSCRIPT No matching script.")
	}
	cmd.SetErr(err)
	return err
}

func (a *asked) Pipeline() redis.Pipeliner { panic("for single calls") }

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// scripts returns the hashes and sources of all forms of a script of package lua: one
// after the other, for a lock without a counter and for one with it.
func scripts(name string) (words []string) {
	var a asked
	ctx := context.Background()
	for _, counter := range []string{"", "c"} {
		g := lua.Grant{Key: "k", Queue: "q", Counter: counter, Owner: "o"}
		fair, alone := g, g
		fair.Rivals = [2]string{"r", "s"}
		alone.Queue = ""
		rw := lua.RW{Grant: g, Holds: "h"}
		switch name {
		case "try":
			_, _ = lua.Acquire(ctx, &a, g, time.Second, 0)
		case "ask":
			_, _ = lua.Ask(ctx, &a, g, time.Second, lua.Ticket{}, 0)
		case "ask_fair":
			_, _ = lua.Ask(ctx, &a, fair, time.Second, lua.Ticket{}, 0)
		case "release":
			_, _ = lua.Release(ctx, &a, g, lua.Ending{})
			_, _ = lua.Release(ctx, &a, alone, lua.Ending{})
		case "share":
			_, _, _ = lua.Share(ctx, &a, g, time.Second, lua.Turn{})
		case "yield":
			_, _ = lua.Yield(ctx, &a, g, lua.Turn{}, false)
		case "count":
			_ = lua.Count(ctx, &a, g, time.Second, 1)
		case "inspect":
			_, _ = lua.Inspect(ctx, &a, g)
		case "confirm":
			_, _ = lua.Confirm(ctx, &a, g)
		case "force":
			_, _ = lua.ForceRelease(ctx, &a, g)
		case "floor":
			_ = lua.Floor(ctx, &a, g, 1)
		case "rwask": // of both sides
			_, _ = lua.AskRW(ctx, &a, rw, time.Second, lua.Ticket{})
		case "rwrelease":
			_, _ = lua.ReleaseRW(ctx, &a, rw, lua.Ending{})
		case "rwcount":
			_, _ = lua.CountRW(ctx, &a, rw, time.Second, 1, 0)
		case "retain":
			_, _ = lua.Retain(ctx, &a, g)
		case "renew":
			a.renewal(lua.Renewal{Grant: g, Lease: time.Second})
		default:
			panic("unknown script " + name)
		}
	}
	slices.Sort(a.words)
	return slices.Compact(a.words)
}

// renewal notes the script of a renewal, which goes out in a pipeline.
func (a *asked) renewal(r lua.Renewal) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	rdb.AddHook(redistest.Answers(func(ctx context.Context, cmds ...redis.Cmder) (err error) {
		for _, cmd := range cmds {
			err = a.Process(ctx, cmd)
		}
		return err
	}))
	_ = lua.Renew(context.Background(), rdb, []lua.Renewal{r})
}

var known sync.Map // what scripts returns, by name

// isScript matches the calls of a script of package lua, by hash or by source.
func isScript(name string) netfault.Match {
	value, ok := known.Load(name)
	if !ok {
		value, _ = known.LoadOrStore(name, scripts(name))
	}
	words := value.([]string)
	return func(args []string) bool { return len(args) > 1 && slices.Contains(words, args[1]) }
}

// teach makes the server know the scripts, so that faults meet EVALSHA.
func teach(t testing.TB, srv *redistest.Server) {
	t.Helper()
	rdb := srv.Client(t)
	for _, name := range []string{"try", "ask", "ask_fair", "release", "count", "retain", "renew", "force", "inspect"} {
		for _, word := range scripts(name) {
			if len(word) > 40 { // a source
				require.NoError(t, rdb.ScriptLoad(t.Context(), word).Err())
			}
		}
	}
}
