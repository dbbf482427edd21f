package lua_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

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
