package lua_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// What the server knows of a lock is told as it is: one that is free has no lease, and one
// without an end has a negative one; an owner that may be recalled holds it 0 times.
func TestInspect(t *testing.T) {
	const counter = 7
	for name, tt := range map[string]struct {
		before string
		holds  map[string]int64
		ttl    time.Duration
	}{
		"free":               {"", map[string]int64{}, 0},
		"held":               {"me:1=2 10s", map[string]int64{"me:1": 2}, 10 * time.Second},
		"held without end":   {"me:1=1", map[string]int64{"me:1": 1}, -time.Millisecond},
		"it may be recalled": {"me:1=0 10s", map[string]int64{"me:1": 0}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
				if tt.before != "" {
					put(t, rdb, "lock", tt.before)
				}
				require.NoError(t, rdb.Set(t.Context(), fenced("").Counter, counter, 0).Err())
				for token, g := range map[int64]lua.Grant{0: grant(""), counter: fenced("")} {
					s, err := lua.Inspect(t.Context(), rdb, g)
					require.NoError(t, err)
					require.Equal(t, tt.holds, s.Holds)
					require.Empty(t, s.Shared)
					require.InDelta(t, tt.ttl, s.TTL, float64(5*time.Second))
					require.Equal(t, tt.ttl < 0, s.TTL < 0)
					require.Equal(t, token, s.Token)
					require.Zero(t, s.Waiters)
				}
			})
		})
	}
}

// Whoever waits has a ticket, or listens for the release. A lock without a queue has listeners only.
func TestInspectCountsWaiters(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		put(t, rdb, "lock", "me:1=1 10s")
		require.NoError(t, rdb.ZAdd(t.Context(), lua.QueueOf("lock"), redis.Z{Score: 32773, Member: "you:1"}, redis.Z{Score: 65542, Member: "you:2"}).Err())
		for listeners := range int64(3) {
			for tickets, g := range map[int64]lua.Grant{2: grant(""), 0: {Key: "lock"}} {
				s, err := lua.Inspect(t.Context(), rdb, g)
				require.NoError(t, err)
				require.Equal(t, tickets+listeners, s.Waiters)
			}
			sub := rdb.Subscribe(t.Context(), lua.UnlockChannel("lock"))
			defer func() { require.NoError(t, sub.Close()) }()
			_, err := sub.Receive(t.Context())
			require.NoError(t, err)
		}
	})
}

// The listeners of a lock whose releases are announced by SPUBLISH are others than those of PUBLISH.
func TestInspectCountsListenersOfItsKind(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	sub := rdb.SSubscribe(t.Context(), lua.UnlockChannel("lock"))
	defer func() { require.NoError(t, sub.Close()) }()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	for kind, want := range map[lua.ChannelKind]int64{lua.Ordinary: 0, lua.Sharded: 1, lua.Both: 1} {
		s, err := lua.Inspect(t.Context(), rdb, lua.Grant{Key: "lock", ChannelKind: kind})
		require.NoError(t, err)
		require.Equal(t, want, s.Waiters)
	}
}

// A key that is not that of a lock of this kind is named.
func TestInspectTellsWhatElseItIs(t *testing.T) {
	for name, tt := range map[string]struct {
		key    string
		fields []any
		want   lua.ConflictError
	}{
		"a read/write lock":    {"lock", []any{"mode", "read", "me:1", 1}, lua.ConflictError{Key: "lock", Type: lua.ReadWriteLock}},
		"a hash":               {"lock", []any{"name", "bob"}, lua.ConflictError{Key: "lock", Type: `hash with the field "name"`}},
		"a queue that is none": {lua.QueueOf("lock"), []any{"name", "bob"}, lua.ConflictError{Key: lua.QueueOf("lock"), Type: "hash"}},
	} {
		t.Run(name, func(t *testing.T) {
			onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
				require.NoError(t, rdb.HSet(t.Context(), tt.key, tt.fields...).Err())
				_, err := lua.Inspect(t.Context(), rdb, grant(""))
				var conflict *lua.ConflictError
				require.ErrorAs(t, err, &conflict)
				require.Equal(t, tt.want, *conflict)
			})
		})
	}
}

func TestHoldCountThatIsNone(t *testing.T) {
	rdb := answering([]any{int64(1), int64(1000), int64(0), int64(0), "owner", "many"})
	defer func() { _ = rdb.Close() }()
	_, err := lua.Inspect(t.Context(), rdb, grant(""))
	require.ErrorContains(t, err, `"owner"`)
}

func TestRefusedPubSub(t *testing.T) {
	rdb := user(t, redistest.Start(t), "~*", "&*", "+@all", "-pubsub")
	put(t, rdb, "lock", "me:1=1 10s")
	state, err := lua.Inspect(t.Context(), rdb, grant(""))
	require.NoError(t, err)
	require.EqualValues(t, -1, state.Waiters)
	require.Equal(t, map[string]int64{"me:1": 1}, state.Holds)
}
