package lua_test

import (
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A client is still subscribed to the former master, which is a replica now: what the new one
// sends reaches it, although that has no receiver. A grant that is taken back for want of
// one must not have been sent: the client would take the lock beside whoever has it then.
func TestWhoListensToAReplicaIsToldNothing(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	for name, tt := range map[string]struct {
		how     string
		channel lua.ChannelKind
		start   func(t *testing.T) (master, replica *redis.Client)
	}{
		"single": {"P", lua.Ordinary, func(t *testing.T) (master, replica *redis.Client) {
			server := redistest.Start(t, "--repl-diskless-sync-delay", "0")
			host, port, err := net.SplitHostPort(server.Addr())
			require.NoError(t, err)
			return server.Client(t), redistest.Start(t, "--replicaof", host, port).Client(t)
		}},
		"cluster": {"S", lua.Sharded, func(t *testing.T) (master, replica *redis.Client) {
			nodes := redistest.StartCluster(t, 1, 1).Nodes
			return nodes[0].Client(t), nodes[1].Client(t)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			master, replica := tt.start(t)
			redistest.Eventually(t, "the replica follows", func() bool {
				return strings.Contains(replica.Info(t.Context(), "replication").Val(), "master_link_status:up")
			})
			w := newWaiters(t, master, func(owner string) lua.Grant {
				g := fenced(owner)
				g.ChannelKind = tt.channel
				return g
			})
			sharded := tt.channel == lua.Sharded
			sub, heard := subscribeTo(t, replica, master, w.channel("b"), sharded)
			defer func() { require.NoError(t, sub.Close()) }()
			w.follow(master, false,
				"c listens",
				"a:1 ask -> acquired",
				"b:1 ask "+tt.how+" -> refused by a:1, 20s, first, new",
				"c:1 ask "+tt.how+" -> refused by a:1, 20s, new",
				"a:1 release -> done => c:1=1 10s | !c:1 >> c: grant c:1 for 6s",
				"b:1 ask "+tt.how+" -> refused by c:1, 10s, first, new",
				"c:1 release -> done => |",
			)
			require.Empty(t, heard())

			// A server that must not be asked who listens: then a grant stays, whoever hears of it.
			require.NoError(t, master.Do(t.Context(), "acl", "setuser", "app", "reset", "on", "nopass", "~*", "&*", "+@all", "-pubsub").Err())
			opts := *master.Options()
			opts.Username, opts.Password = "app", "none"
			app := redis.NewClient(&opts)
			defer func() { require.NoError(t, app.Close()) }()
			w.follow(app, false,
				"a:2 ask -> acquired",
				"b:2 ask "+tt.how+" -> refused by a:2, 20s, first, new",
				"a:2 release -> done => b:2=1 10s | !b:2",
			)
			require.Equal(t, []string{"grant b:2 for 6s"}, heardAs(heard))
		})
	}
}

// heardAs are the grants among what was heard.
func heardAs(heard func() []string) (grants []string) {
	for _, payload := range heard() {
		if payload != "-0" {
			grants = append(grants, shorten(messageText(payload)))
		}
	}
	return grants
}
