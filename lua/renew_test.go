package lua_test

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// The server forgets the script in the middle of a batch: those behind are sent
// again, those before it are not.
func TestUnknownScriptInBatch(t *testing.T) {
	t.Parallel()
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		due := make([]lua.Renewal, 300)
		want := make([]error, len(due))
		for i := range due {
			g := grant("me:1")
			g.Key = "lock:" + string(rune('a'+i))
			due[i] = lua.Renewal{Grant: g, Lease: 20 * time.Second}
			switch i % 3 {
			case 0:
				put(t, rdb, g.Key, "me:1=1 10s")
			case 1:
				put(t, rdb, g.Key, "other:1=1 10s")
				want[i] = lua.ErrNotOwner
			case 2:
				put(t, rdb, g.Key, "string")
				want[i] = lua.ErrNotOwner
			}
		}
		require.Equal(t, want, lua.Renew(t.Context(), rdb, due), "a server that does not know the script")
		require.Equal(t, want, lua.Renew(t.Context(), rdb, due), "one that does")

		var sent []int // commands by pipeline
		plain := rdb.WithTimeout(10 * time.Second)
		rdb.AddHook(redistest.Hook{Pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			sent = append(sent, len(cmds))
			if len(sent) > 1 {
				return next(ctx, cmds)
			}
			_ = next(ctx, cmds[:100])
			if err := plain.ScriptFlush(ctx).Err(); err != nil {
				return err
			}
			return next(ctx, cmds[100:])
		}})
		require.Equal(t, want, lua.Renew(t.Context(), rdb, due))
		require.Equal(t, []int{300, 200}, sent)
		for i, d := range due {
			if want[i] == nil {
				require.Equal(t, "me:1=1 20s", show(t, rdb, d.Grant.Key))
			}
		}
	})
}

func TestRenewNothing(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		require.Empty(t, lua.Renew(t.Context(), rdb, nil))
	})
}

// A batch whose server is gone has an error for every lease.
func TestRenewWithoutServer(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, func(o *redis.Options) { o.DialerRetries = 1 })
	s.Kill()
	for _, err := range lua.Renew(t.Context(), rdb, make([]lua.Renewal, 3)) {
		var dial *net.OpError
		require.ErrorAs(t, err, &dial)
	}
}

// A lease that is longer than what a renewal asks for is not renewed by a server that must
// not write: the lock may be another's by now where it may.
func TestRenewalWhereNothingIsWritten(t *testing.T) {
	for code, refuse := range map[string]func(*redis.Client) error{
		"READONLY":   func(rdb *redis.Client) error { return rdb.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err() },
		"NOREPLICAS": func(rdb *redis.Client) error { return rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err() },
	} {
		t.Run(code, func(t *testing.T) {
			rdb := redistest.Start(t).Client(t)
			put(t, rdb, "plain", "me:1=1 1h")
			putWriter(t, rdb, "me:1", time.Hour)
			require.NoError(t, refuse(rdb))
			for _, err := range lua.Renew(t.Context(), rdb, []lua.Renewal{
				{Grant: lua.Grant{Key: "plain", Owner: "me:1"}, Lease: 20 * time.Second},
				lua.RenewalRW(rw("me:1"), 20*time.Second),
			}) {
				require.True(t, says(err, code), "%v", err)
			}
		})
	}
}

// Confirmations travel among renewals, and each has its own answer.
func TestConfirmationsAmongRenewals(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		put(t, rdb, "lock", "me:1=2 10s")
		for range 2 { // the server learns the scripts in the first round
			errs := lua.Renew(t.Context(), rdb, []lua.Renewal{
				lua.Confirmation(grant("me:1")), lua.Confirmation(grant("me:2")),
				{Grant: grant("me:1"), Lease: 20 * time.Second},
				lua.Confirmation(grant("me:1")),
			})
			require.IsType(t, lua.Left(0), errs[0])
			left, ok := errs[3].(lua.Left)
			require.True(t, ok, "%v", errs[3])
			require.InDelta(t, 20*time.Second, time.Duration(left), float64(10*time.Second))
			require.Equal(t, lua.ErrNotOwner, errs[1])
			require.NoError(t, errs[2])
		}
	})
}

// A replica may know of a holder who is gone for long, so it must not answer.
func TestReplicaConfirmsNothing(t *testing.T) {
	replica := redistest.Start(t).Client(t)
	put(t, replica, "lock", "me:1=2 1h")
	require.NoError(t, replica.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	_, err := lua.Confirm(t.Context(), replica, grant("me:1"))
	require.True(t, says(err, "READONLY"), "%v", err)
	err = lua.Renew(t.Context(), replica, []lua.Renewal{lua.Confirmation(grant("me:1"))})[0]
	require.True(t, says(err, "READONLY"), "%v", err)
}

// Floors may be delivered twice, late and in any order: the counter is the largest,
// and the next token greater.
func TestFloor(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		g := fenced("me:1")
		ahead := serverMicros(t, rdb) + time.Hour.Microseconds()
		for _, floor := range []int64{ahead - 5, ahead, ahead, ahead - 5, 1} {
			require.NoError(t, lua.Floor(t.Context(), rdb, g, floor))
		}
		require.Equal(t, strconv.FormatInt(ahead, 10), rdb.Get(t.Context(), g.Counter).Val())
		require.InDelta(t, lua.CounterTTL, rdb.PTTL(t.Context(), g.Counter).Val(), float64(10*time.Second))
		require.Equal(t, ahead+1, lockOnce(t, rdb, "me:1"))

		require.NoError(t, rdb.Persist(t.Context(), g.Counter).Err()) // as Redisson makes it
		require.NoError(t, lua.Floor(t.Context(), rdb, g, ahead+10))
		require.Negative(t, rdb.PTTL(t.Context(), g.Counter).Val())

		require.NoError(t, rdb.Set(t.Context(), g.Counter, "garbage", 0).Err())
		var conflict *lua.ConflictError
		require.ErrorAs(t, lua.Floor(t.Context(), rdb, g, ahead), &conflict)
		require.Equal(t, "garbage", rdb.Get(t.Context(), g.Counter).Val())
	})
}
