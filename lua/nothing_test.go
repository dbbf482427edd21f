package lua_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/redistest"
	sends "github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// owners are the requests of an owner that are answered ErrNotOwner if the owner holds nothing.
var owners = map[string]func(ctx context.Context, rdb *redis.Client) error{
	"renew": func(ctx context.Context, rdb *redis.Client) error {
		return lua.Renew(ctx, rdb, []lua.Renewal{{Grant: grant(own("a:1")), Lease: time.Minute}})[0]
	},
	"count": func(ctx context.Context, rdb *redis.Client) error {
		return lua.Count(ctx, rdb, grant(own("a:1")), time.Minute, 2)
	},
	"confirm": func(ctx context.Context, rdb *redis.Client) error {
		_, err := lua.Confirm(ctx, rdb, grant(own("a:1")))
		return err
	},
	"confirm among renewals": func(ctx context.Context, rdb *redis.Client) error {
		return lua.Renew(ctx, rdb, []lua.Renewal{lua.Confirmation(grant(own("a:1")))})[0]
	},
	"release": func(ctx context.Context, rdb *redis.Client) error {
		_, err := lua.Release(ctx, rdb, grant(own("a:1")), lua.Ending{})
		return err
	},
	"release of another client's owner": func(ctx context.Context, rdb *redis.Client) error {
		_, err := lua.Release(ctx, rdb, grant(own("a:1")), lua.Ending{Evict: true})
		return err
	},
	"read/write renew": func(ctx context.Context, rdb *redis.Client) error {
		return lua.Renew(ctx, rdb, []lua.Renewal{lua.RenewalRW(rw(own("a:1")), time.Minute)})[0]
	},
	"read/write count": func(ctx context.Context, rdb *redis.Client) error {
		_, err := lua.CountRW(ctx, rdb, rw(own("a:1")), time.Minute, 0, 2)
		return err
	},
	"read/write count of a writer": func(ctx context.Context, rdb *redis.Client) error {
		_, err := lua.CountRW(ctx, rdb, rw(own("a:1")), time.Minute, 2, 0)
		return err
	},
	"read/write release": func(ctx context.Context, rdb *redis.Client) error {
		_, err := lua.ReleaseRW(ctx, rdb, rw(own("a:1")), lua.Ending{})
		return err
	},
}

// A server that may not write must not say that an owner holds nothing: it may know less than the
// master. It has executed nothing, and the request is repeated.
func TestOnlyAMasterSaysNotTheOwner(t *testing.T) {
	for name, server := range map[string]func(t *testing.T, rdb *redis.Client){
		"a replica without its master": func(t *testing.T, rdb *redis.Client) {
			require.NoError(t, rdb.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
		},
		"a master without enough replicas": func(t *testing.T, rdb *redis.Client) {
			require.NoError(t, rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
		},
	} {
		for data, fill := range map[string]func(t *testing.T, rdb *redis.Client){
			"empty":                 func(*testing.T, *redis.Client) {},
			"another holder":        func(t *testing.T, rdb *redis.Client) { put(t, rdb, "lock", own("b:1")+"=1 20s") },
			"another reader":        func(t *testing.T, rdb *redis.Client) { putReader(t, rdb, own("b:1"), 20*time.Second) },
			"another writer":        func(t *testing.T, rdb *redis.Client) { putWriter(t, rdb, own("b:1"), 20*time.Second) },
			"a ticket, and no lock": func(t *testing.T, rdb *redis.Client) { putTicket(t, rdb, 'w', own("b:1")) },
			"a ticket, and a reader": func(t *testing.T, rdb *redis.Client) {
				putReader(t, rdb, own("b:1"), 20*time.Second)
				putTicket(t, rdb, 'w', own("b:2"))
			},
		} {
			t.Run(name+"/"+data, func(t *testing.T) {
				t.Parallel()
				rdb := redistest.Start(t).Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
				fill(t, rdb)
				heard := hearRW(t, rdb, "b")
				server(t, rdb)
				before := showRW(t, rdb)
				for script, send := range owners {
					err := send(t.Context(), rdb)
					if _, ok := err.(*lua.ConflictError); ok && script == "release of another client's owner" { //nolint:errorlint // it is not wrapped
						continue // a key of another kind, whose owner is nobody of ours
					}
					requireRefused(t, err, script)
				}
				require.Equal(t, before, showRW(t, rdb))
				require.Empty(t, heard(), "a replica tells nobody anything")
			})
		}
	}
}

// requireRefused checks that an error says: not executed, and to be repeated.
func requireRefused(t *testing.T, err error, script string) {
	t.Helper()
	require.Error(t, err, script)
	require.NotErrorIs(t, err, lua.ErrNotOwner, script)
	outcome, final := kind.Classify(err)
	require.Equal(t, sends.NotExecuted, outcome, "%s: %v", script, err)
	require.False(t, final, "%s: %v", script, err)
}

// A master says it, whatever its key holds, and changes nothing there, also if it is out of memory.
func TestMasterSaysNotTheOwner(t *testing.T) {
	rdb := redistest.Start(t, "--maxmemory-policy", "noeviction").Client(t)
	ctx := t.Context()
	for name, put := range map[string]func() error{
		"nothing":                     func() error { return nil },
		"another holder":              func() error { return rdb.HSet(ctx, "lock", own("b:1"), 1).Err() },
		"another reader":              func() error { return rdb.HSet(ctx, "lock", "mode", "read", own("b:1"), 1).Err() },
		"another writer":              func() error { return rdb.HSet(ctx, "lock", "mode", "write", own("b:1")+":write", 1).Err() },
		"an application's hash":       func() error { return rdb.HSet(ctx, "lock", "", "x", "y", "z").Err() },
		"an application's only field": func() error { return rdb.HSet(ctx, "lock", "", "x").Err() },
		"a string":                    func() error { return rdb.Set(ctx, "lock", "x", 0).Err() },
		"a list":                      func() error { return rdb.RPush(ctx, "lock", "x", own("a:1")).Err() },
	} {
		for _, full := range []bool{false, true} {
			require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "0").Err())
			require.NoError(t, rdb.FlushAll(ctx).Err())
			require.NoError(t, put())
			before := rdb.Dump(ctx, "lock").Val()
			if full {
				require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
			}
			for script, send := range owners {
				err := send(ctx, rdb)
				if _, ok := err.(*lua.ConflictError); ok && script == "release of another client's owner" { //nolint:errorlint // it is not wrapped
					continue
				}
				require.Equal(t, lua.ErrNotOwner, err, "%s: %s, full %v", script, name, full)
			}
			require.Equal(t, before, rdb.Dump(ctx, "lock").Val(), "%s, full %v", name, full)
		}
	}
}
