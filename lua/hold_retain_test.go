package lua_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
)

// retained are courses of locks that are kept by a client where nobody holds them.
var retained = map[string][]string{
	"and recalled by a ticket": {
		"a listens", "b listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"a:1 retain -> kept: true => a:1=0 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=0 20s | b:1P >> a: wake a:1",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=0 20s | b:1P c:1P >> a: wake a:1",
		"a:1 retain -> kept: false => a:1=0 20s | b:1P c:1P",
		"a:1 release -> done => b:1=1 10s | !b:1 c:1P >> b: grant b:1 for 6s",
		"a:1 retain -> kept: false => b:1=1 10s | !b:1 c:1P",
	},
	"and recalled without a ticket": {
		"a listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"a:1 retain -> kept: true => a:1=0 20s |",
		"b:1 try -> refused by a:1, 20s => a:1=0 20s | >> a: wake a:1",
		"b:2 ask -> refused by a:1, 20s => a:1=0 20s | >> a: wake a:1",
	},
	"although it is nested in": {
		"a listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"a:1 retain -> kept: true => a:1=0 20s |",
		"a:1 count 1 2 -> done => a:1=2 20s |",
		"b:1 try -> refused by a:1, 20s => a:1=2 20s |",
		"a:1 count 1 -> done => a:1=1 20s |",
		"a:1 retain -> kept: true => a:1=0 20s |",
	},
	"not beside those who wait": {
		"a listens", "b listens", "c listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"a:1 retain -> kept: false => a:1=1 20s | b:1P",
		"a:1 release -> done => b:1=1 10s | !b:1 >> b: grant b:1 for 6s",
		"b:1 retain -> kept: true => b:1=0 10s | !b:1",
		"c:1 ask P -> refused by b:1, 10s, first, new => b:1=0 10s | !b:1 c:1P >> b: wake b:1",
		"b:1 retain -> kept: false => b:1=0 10s | !b:1 c:1P",
		"b:1 release -> done => c:1=1 10s | !c:1 >> c: grant c:1 for 6s",
	},
	"not beside Redisson": {
		"a:1 ask -> acquired => a:1=1 20s |",
		"foreign listens",
		"a:1 retain -> kept: false => a:1=1 20s |",
		"foreign deaf",
		"a:1 retain -> kept: true => a:1=0 20s |",
	},
	"not by others": {
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 retain -> kept: false => a:1=1 20s |",
		"- expires",
		"a:1 retain -> kept: false => |",
	},
}

func TestRetained(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(string) lua.Grant{"plain": grant, "fenced": fenced, "fair": fair, "{lock}": named("{lock}"), "{lock}::": named("{lock}::")}
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		for kind, lock := range kinds {
			for name, course := range retained {
				for _, again := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, %s, again %t", kind, name, again), func(t *testing.T) {
						newWaiters(t, rdb, lock).follow(rdb, again, course...)
					})
				}
			}
		}
	})
}

// A key that is no lock is left alone.
func TestRetainElsewhere(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		require.NoError(t, rdb.Set(t.Context(), "lock", "text", 0).Err())
		kept, err := lua.Retain(t.Context(), rdb, grant("a:1"))
		require.NoError(t, err)
		require.False(t, kept)
		require.Equal(t, "text", rdb.Get(t.Context(), "lock").Val())
	})
}
