package lua_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A master that has become a replica knows lock and ticket. It must not answer that the lock is
// held, also if nothing would be written.
func TestAskOfAReplicaIsRefused(t *testing.T) {
	t.Parallel()
	former, next := redistest.Start(t), redistest.Start(t)
	rdb := former.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	_, err := lua.Acquire(t.Context(), rdb, queued("a:1"), time.Minute, 0)
	require.NoError(t, err)
	ticket := lua.Ticket{Claim: 5 * time.Second}
	for range 2 { // the second changes nothing
		_, err = lua.Ask(t.Context(), rdb, queued("b:1"), time.Minute, ticket, 0)
		require.NoError(t, err)
	}
	host, port, err := net.SplitHostPort(next.Addr())
	require.NoError(t, err)
	require.NoError(t, rdb.ReplicaOf(t.Context(), host, port).Err())
	_, err = lua.Ask(t.Context(), rdb, queued("b:1"), time.Minute, ticket, 0)
	require.Error(t, err)
	require.True(t, redis.IsReadOnlyError(err) || strings.Contains(err.Error(), "READONLY"), "%v", err)
}

// The answer tells a client that believes to hear whether it is subscribed there.
func TestAskTellsWhoIsAbsent(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	_, err := lua.Acquire(t.Context(), rdb, queued("a:1"), time.Minute, 0)
	require.NoError(t, err)
	absent := func(how lua.Hearing) bool {
		r, err := lua.Ask(t.Context(), rdb, queued("b:1"), time.Minute, lua.Ticket{Claim: 5 * time.Second, Hears: how}, 0)
		require.NoError(t, err)
		require.True(t, r.Place.Held())
		return r.Place.Absent
	}
	require.False(t, absent(lua.Deaf))
	require.True(t, absent(lua.Counted))
	require.False(t, absent(lua.Uncounted), "of a cluster it is not known")
	require.False(t, absent(lua.ShardHeard), "nor while a slot moves")
	sub := rdb.Subscribe(t.Context(), lua.GrantChannel(queued("").Key, "b"))
	defer func() { require.NoError(t, sub.Close()) }()
	_, err = sub.Receive(t.Context())
	require.NoError(t, err)
	require.False(t, absent(lua.Counted))
}

func queued(owner string) lua.Grant {
	return lua.Grant{Key: "former", Queue: lua.QueueOf("former"), Owner: owner}
}
