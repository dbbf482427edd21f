package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// answer is what one call answers, and what it leaves.
type answer struct {
	call, before  string
	answer, after string
	again         string // answer to the repeated call
	announced     bool
}

// answers are for TestAnswers and TestVectors.
func answers() []answer {
	const (
		notOwner = "lua: not the owner"
		conflict = `lua: key "lock" holds a `
	)
	return []answer{
		{"acquire 20s", "", "acquired", "me:1=1 20s", "acquired", false},
		{"acquire 20s", "me:1=2 10s", "acquired", "me:1=2 20s", "acquired", false},
		{"acquire 20s", "me:1=2 30s", "acquired", "me:1=2 30s", "acquired", false},
		{"acquire 20s", "me:1=2", "acquired", "me:1=2 20s", "acquired", false},
		{"acquire 20s", "other:1=2 10s", "refused by other:1, 10s", "other:1=2 10s", "refused by other:1, 10s", false},
		{"acquire 20s", "other:1=2", "refused by other:1, no end", "other:1=2", "refused by other:1, no end", false},
		{"acquire 20s", "string", conflict + "string, not a lock", "string", conflict + "string, not a lock", false},
		{"acquire 20s", "list", conflict + "list, not a lock", "list", conflict + "list, not a lock", false},

		{"acquire 20s", "name=2 10s", conflict + `hash with the field "name", not a lock`, "name=2 10s", conflict + `hash with the field "name", not a lock`, false},
		{"acquire 20s", "me:1=bob", conflict + `hash with the field "me:1", not a lock`, "me:1=bob", conflict + `hash with the field "me:1", not a lock`, false},
		{"force 20s", "name=2 10s", conflict + `hash with the field "name", not a lock`, "name=2 10s", conflict + `hash with the field "name", not a lock`, false},

		{"ask 20s", "", "acquired", "me:1=1 20s", "acquired", false},
		{"ask 20s", "me:1=2 10s", "acquired", "me:1=2 20s", "acquired", false},
		{"ask 20s", "me:1=2 30s", "acquired", "me:1=2 30s", "acquired", false},
		{"ask 20s", "me:1=2", "acquired", "me:1=2 20s", "acquired", false},
		{"ask 20s", "other:1=2 10s", "refused by other:1, 10s", "other:1=2 10s", "refused by other:1, 10s", false},
		{"ask 20s", "other:1=2", "refused by other:1, no end", "other:1=2", "refused by other:1, no end", false},
		{"ask 20s", "string", conflict + "string, not a lock", "string", conflict + "string, not a lock", false},
		{"ask 20s", "name=2 10s", conflict + `hash with the field "name", not a lock`, "name=2 10s", conflict + `hash with the field "name", not a lock`, false},
		{"queue 20s", "", "acquired", "me:1=1 20s", "acquired", false},
		{"queue 20s", "me:1=2 10s", "acquired", "me:1=2 20s", "acquired", false},
		{"queue 20s", "other:1=2 10s", "refused by other:1, 10s, first, new", "other:1=2 10s", "refused by other:1, 10s, first", false},
		{"queue 20s", "other:1=2", "refused by other:1, no end, first, new", "other:1=2", "refused by other:1, no end, first", false},
		{"queue 20s", "list", conflict + "list, not a lock", "list", conflict + "list, not a lock", false},

		{"count 3 20s", "", notOwner, "", notOwner, false},
		{"count 3 20s", "me:1=2 10s", "done", "me:1=3 20s", "done", false},
		{"count 3 20s", "me:1=4 30s", "done", "me:1=3 30s", "done", false},
		{"count 3 20s", "me:1=2", "done", "me:1=3 20s", "done", false},
		{"count 3 20s", "me:1=garbage 10s", "done", "me:1=3 20s", "done", false},
		{"count 3 20s", "other:1=2 10s", notOwner, "other:1=2 10s", notOwner, false},
		{"count 3 20s", "string", notOwner, "string", notOwner, false},

		{"release 20s", "", notOwner, "", notOwner, false},
		{"release 20s", "me:1=1 10s", "done", "", notOwner, true},
		{"release 20s", "me:1=5 10s", "done", "", notOwner, true},
		{"release 20s", "me:1=1", "done", "", notOwner, true},
		{"release 20s", "other:1=1 10s", notOwner, "other:1=1 10s", notOwner, false},
		{"release 20s", "string", notOwner, "string", notOwner, false},

		{"renew 20s", "", notOwner, "", notOwner, false},
		{"renew 20s", "me:1=2 10s", "done", "me:1=2 20s", "done", false},
		{"renew 20s", "me:1=2 30s", "done", "me:1=2 30s", "done", false},
		{"renew 20s", "me:1=2", "done", "me:1=2 20s", "done", false},
		{"renew 20s", "other:1=2 10s", notOwner, "other:1=2 10s", notOwner, false},
		{"renew 20s", "other:1=2", notOwner, "other:1=2", notOwner, false},
		{"renew 20s", "list", notOwner, "list", notOwner, false},

		{"confirm 20s", "", notOwner, "", notOwner, false},
		{"confirm 20s", "me:1=2 10s", "held, 10s", "me:1=2 10s", "held, 10s", false},
		{"confirm 20s", "me:1=2", "held, no end", "me:1=2", "held, no end", false},
		{"confirm 20s", "other:1=2 10s", notOwner, "other:1=2 10s", notOwner, false},
		{"confirm 20s", "list", notOwner, "list", notOwner, false},

		{"force 20s", "", "was held: false", "", "was held: false", false},
		{"force 20s", "me:1=2 10s", "was held: true", "", "was held: false", true},
		{"force 20s", "other:1=2", "was held: true", "", "was held: false", true},
		{"force 20s", "string", conflict + "string, not a lock", "string", conflict + "string, not a lock", false},

		{"inspect 20s", "", "map[], 0s, 1 waiting", "", "map[], 0s, 1 waiting", false},
		{"inspect 20s", "me:1=2 10s", "map[me:1:2], 10s, 1 waiting", "me:1=2 10s", "map[me:1:2], 10s, 1 waiting", false},
		{"inspect 20s", "other:1=2", "map[other:1:2], no end, 1 waiting", "other:1=2", "map[other:1:2], no end, 1 waiting", false},
		{"inspect 20s", "list", conflict + "list, not a lock", "list", conflict + "list, not a lock", false},
	}
}

// Every answer of every script by an owner "me:1", and what it leaves. A repeated
// call may get another answer but changes nothing, except that of force.
func TestAnswers(t *testing.T) {
	table := answers()
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		g := grant("me:1")
		heard := listen(t, rdb, lua.UnlockChannel(g.Key))
		for i, tc := range slices.Concat(table, table) {
			var r lua.Runner = rdb
			if i >= len(table) {
				r = company{rdb}
			}
			t.Run(fmt.Sprintf("%s on %s, %T", tc.call, tc.before, r), func(t *testing.T) {
				require.NoError(t, rdb.Del(t.Context(), g.Queue).Err())
				put(t, rdb, g.Key, tc.before)
				space := strings.LastIndex(tc.call, " ")
				lease, err := time.ParseDuration(tc.call[space+1:])
				require.NoError(t, err)
				call := calls[tc.call[:space]]

				require.Equal(t, tc.answer, call(t.Context(), r, g, lease))
				require.Equal(t, tc.after, show(t, rdb, g.Key))
				require.Equal(t, tc.again, call(t.Context(), r, g, lease), "repeated")
				require.Equal(t, tc.after, show(t, rdb, g.Key), "repeated")

				var want []string
				if tc.announced {
					want = []string{"-0"}
				}
				require.Equal(t, want, heard())
			})
		}
	})
}

// A holder's PTTL can read 0 in its last millisecond, and that is not free yet.
// The embedded server is left out: its clock does not stand still in a script.
func TestLastMillisecondIsStillHeld(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	for range 20 {
		held, err := lua.Acquire(t.Context(), rdb, grant("other:1"), 10*time.Millisecond, 0)
		require.NoError(t, err)
		require.True(t, held.Acquired)
		reply := lua.Reply{}
		for start := time.Now(); !reply.Acquired; {
			require.Less(t, time.Since(start), 10*time.Second)
			reply, err = lua.Acquire(t.Context(), rdb, grant("me:1"), 10*time.Second, 0)
			require.NoError(t, err)
			require.GreaterOrEqual(t, reply.TTL, time.Duration(0))
			require.LessOrEqual(t, reply.TTL, 10*time.Millisecond, 0)
		}
		require.Equal(t, "me:1=1 10s", show(t, rdb, "lock"))
		_, err = lua.Release(t.Context(), rdb, grant("me:1"), lua.Ending{})
		require.NoError(t, err)
	}
}

// What Redisson finds is what it would have written itself.
func TestNothingBesideRedissonsData(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		g := fenced("d4q1kmh4vo0c73b7vol0:1")
		reply, err := lua.Acquire(ctx, rdb, g, 10*time.Second, 0)
		require.NoError(t, err)
		require.NoError(t, lua.Count(ctx, rdb, g, 10*time.Second, 2))

		keys, err := rdb.Keys(ctx, "*").Result()
		require.NoError(t, err)
		require.ElementsMatch(t, []string{g.Key, g.Counter}, keys)
		hash, err := rdb.HGetAll(ctx, g.Key).Result()
		require.NoError(t, err)
		require.Equal(t, map[string]string{g.Owner: "2"}, hash)
		token, err := rdb.Get(ctx, g.Counter).Int64()
		require.NoError(t, err)
		require.Equal(t, reply.Token, token)

		_, err = lua.Release(ctx, rdb, g, lua.Ending{})
		require.NoError(t, err)
		keys, err = rdb.Keys(ctx, "*").Result()
		require.NoError(t, err)
		require.Equal(t, []string{g.Counter}, keys)
	})
}

// Leases go out as whole milliseconds and never as 0, which would delete the key.
func TestLeaseUnits(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		30 * time.Second:                30 * time.Second,
		1999*time.Millisecond + 999_999: 1999 * time.Millisecond,
		10 * 365 * 24 * time.Hour:       10 * 365 * 24 * time.Hour,
	} {
		t.Run(lease.String(), func(t *testing.T) {
			onBothServers(t, func(t *testing.T, rdb *redis.Client) {
				began := time.Now()
				reply, err := lua.Acquire(t.Context(), rdb, grant("me:1"), lease, 0)
				require.NoError(t, err)
				require.True(t, reply.Acquired)
				ttl, err := rdb.PTTL(t.Context(), "lock").Result()
				require.NoError(t, err)
				require.LessOrEqual(t, ttl, want)
				require.Greater(t, ttl, want-time.Since(began)-10*time.Millisecond)
			})
		})
	}
}

// PEXPIRE with 0 deletes the key, and HSET behind it would make one without TTL.
func TestImpossibleLeaseIsShort(t *testing.T) {
	for _, lease := range []time.Duration{time.Microsecond, 0, -1, -time.Hour} {
		t.Run(lease.String(), func(t *testing.T) {
			onBothServers(t, func(t *testing.T, rdb *redis.Client) {
				gone := func() bool { return show(t, rdb, "lock") == "" }
				_, err := lua.Acquire(t.Context(), rdb, grant("me:1"), lease, 0)
				require.NoError(t, err)
				redistest.Eventually(t, "the acquired lock expires", gone)

				// The clock of the embedded server, unlike that of Redis, goes on during a script: on a
				// busy machine the millisecond may be over before the HSET, which makes the key anew.
				embedded := strings.HasSuffix(t.Name(), "embedded")
				var counted time.Time
				redistest.Eventually(t, "the counted lock expires", func() bool {
					if counted.IsZero() || embedded && time.Since(counted) > 100*time.Millisecond {
						put(t, rdb, "lock", "me:1=1")
						require.NoError(t, lua.Count(t.Context(), rdb, grant("me:1"), lease, 2))
						counted = time.Now()
					}
					return gone()
				})

				put(t, rdb, "lock", "me:1=1")
				require.NoError(t, lua.Renew(t.Context(), rdb, []lua.Renewal{{Grant: grant("me:1"), Lease: lease}})[0])
				redistest.Eventually(t, "the renewed lock expires", gone)
			})
		})
	}
}
