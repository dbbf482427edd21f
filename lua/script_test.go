package lua_test

import (
	"io"
	"slices"
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
