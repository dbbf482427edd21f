package lua_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// While a cluster slot moves, each of its keys is on one of two nodes, and new ones can be
// made on one of them only. Who holds the lock keeps it wherever its keys are. If they are
// not together, nothing is taken for over that is on the other node, and nothing is made
// that would be in the way of it: MIGRATE would fail.
func TestReadWriteWhileTheSlotMoves(t *testing.T) {
	const s = time.Second
	const split = "non local key"
	lock, queue, first, second := "lock", rw("").Queue, holdKey("me:1", 1), holdKey("me:1", 2)
	reads := func(owner string, leases ...time.Duration) func(*testing.T, *redis.Client) {
		return func(t *testing.T, rdb *redis.Client) { putReader(t, rdb, owner, leases...) }
	}
	writes := func(t *testing.T, rdb *redis.Client) { putWriter(t, rdb, "me:1", 10*s) }
	waits := func(t *testing.T, rdb *redis.Client) { putTicket(t, rdb, 'w', own("w:1")) }
	nothing, all := []string{}, []string(nil)
	cluster := redistest.StartCluster(t, 2, 0)
	slot := cluster.Slot(lock)
	rdb := cluster.Client(t)
	for _, tc := range []struct {
		name   string
		before []func(*testing.T, *redis.Client)
		moved  []string
		script string
		answer string // contains
		after  string
	}{
		{"a writer, nothing has moved", []func(*testing.T, *redis.Client){writes}, nothing, "renew", "done", "me:1:write=1,mode=write 20s"},
		{"a writer, all has moved", []func(*testing.T, *redis.Client){writes}, all, "renew", "done", "me:1:write=1,mode=write 20s"},
		{"a reader, nothing has moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s)}, nothing, "renew", "done", "me:1=1,mode=read 20s; me:1#1 20s"},
		{"a reader, all has moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s)}, all, "renew", "done", "me:1=1,mode=read 20s; me:1#1 20s"},
		{"a reader whose hold has not moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s)}, []string{lock}, "renew", split, "me:1=1,mode=read 20s; me:1#1 10s"},
		{"a reader whose hold has moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s)}, []string{first}, "renew", split, "me:1=1,mode=read 20s; me:1#1 10s"},
		{"a reader whose second hold has not moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s, 10*s)}, []string{lock, first}, "renew", split, "me:1=2,mode=read 20s; me:1#1 20s; me:1#2 10s"},
		{"a reader whose second hold has moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s, 10*s)}, []string{second}, "renew", split, "me:1=2,mode=read 20s; me:1#1 20s; me:1#2 10s"},
		{"a reader whose lease is over", []func(*testing.T, *redis.Client){reads("me:1", 0), reads("b:1", 10*s)}, nothing, "renew", split, "b:1=1,me:1=1,mode=read 20s; b:1#1 10s"},
		{"a writer asks", []func(*testing.T, *redis.Client){reads("b:1", 10*s), waits}, []string{lock, queue}, "try", "TRYAGAIN", "b:1=1,mode=read 10s; b:1#1 10s; queue [" + own("w:1") + "]"},
		{"a writer leaves, nothing has moved", []func(*testing.T, *redis.Client){writes}, nothing, "release", "done", ""},
		{"a writer leaves, all has moved", []func(*testing.T, *redis.Client){writes}, all, "release", "done", ""},
		{"a writer leaves, others wait", []func(*testing.T, *redis.Client){writes, waits}, []string{lock, queue}, "release", "done", "; queue [" + own("w:1") + "]"},
		{"a writer leaves, those who wait have moved", []func(*testing.T, *redis.Client){writes, waits}, []string{queue}, "release", "done", "; queue [" + own("w:1") + "]"},
		{"a reader leaves, nothing has moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s)}, nothing, "release", "done", ""},
		{"a reader leaves, all has moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s)}, all, "release", "done", ""},
		{"a reader leaves, its hold has moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s)}, []string{first}, "release", "done", "; me:1#1 10s"},
		{"a reader leaves, its hold has not moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s)}, []string{lock}, "release", "done", "; me:1#1 10s"},
		{"a reader leaves, the other's hold has moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s), reads("b:1", 10*s)}, []string{holdKey("b:1", 1)}, "release", "done", "b:1=1,mode=read 10s; b:1#1 10s"},
		{"a reader leaves, the other's hold has not moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s), reads("b:1", 10*s)}, []string{lock, first}, "release", "done", "b:1=1,mode=read 10s; b:1#1 10s"},
		{"who only waits leaves", []func(*testing.T, *redis.Client){reads("b:1", 10*s)}, nothing, "release", "lua: not the owner", "b:1=1,mode=read 10s; b:1#1 10s"},
		{"a writer counts", []func(*testing.T, *redis.Client){writes}, nothing, "count write", "done", "me:1:write=2,mode=write 20s"},
		{"a writer counts, all has moved", []func(*testing.T, *redis.Client){writes}, all, "count write", "done", "me:1:write=2,mode=write 20s"},
		{"a reader counts down", []func(*testing.T, *redis.Client){reads("me:1", 10*s, 10*s)}, nothing, "count", "done", "me:1=1,mode=read 20s; me:1#1 20s"},
		{"a reader counts up, nothing has moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s)}, nothing, "count up", "TRYAGAIN", "me:1=1,mode=read 20s; me:1#1 20s"},
		{"a reader counts up, all has moved", []func(*testing.T, *redis.Client){reads("me:1", 10*s)}, all, "count up", "done", "me:1=2,mode=read 20s; me:1#1 20s; me:1#2 20s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from, to := cluster.Owner(slot), cluster.Another(slot)
			defer func() {
				for _, node := range cluster.Nodes {
					require.NoError(t, node.Client(t).FlushAll(t.Context()).Err())
				}
			}()
			for _, put := range tc.before {
				put(t, from.Client(t))
			}
			move := cluster.BeginMove(slot, to)
			if tc.moved == nil || len(tc.moved) > 0 {
				move.MoveKeys(tc.moved...)
			}
			r := rwRequest{script: tc.script, owner: "me:1", lease: 20 * s}
			switch tc.script {
			case "count write":
				r.script, r.writes = "count", 2
			case "count up":
				r.script, r.reads = "count", 2
			case "count":
				r.reads = 1
			}
			answer := r.deliver(t, rdb)
			move.MoveKeys()
			move.Finish()
			answer = strings.ReplaceAll(answer, "undeclared keys were accessed during rehashing", split) // Redis 8
			require.Contains(t, answer, tc.answer)
			require.Equal(t, tc.after, showRW(t, to.Client(t)))
		})
	}
}
