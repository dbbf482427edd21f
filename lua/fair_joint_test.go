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

// asking returns commands with which owners ask for a fair lock.
func asking(t *testing.T, f lua.Fair, lease time.Duration, ticket lua.Ticket, owners ...string) (cmds []redis.Cmder) {
	for _, f.Owner = range owners {
		var c caught
		_, _ = lua.AcquireFair(t.Context(), &c, f, lease, ticket)
		cmds = append(cmds, c.cmd)
	}
	return cmds
}

// timeless is the answer to a request for a fair lock without the clock's part in it.
func timeless(cmd redis.Cmder) string {
	reply, ok := cmd.(interface{ Val() any }).Val().([]any)
	if !ok || len(reply) != 4 {
		return text(cmd)
	}
	switch reply[0] {
	case int64(0):
		return fmt.Sprint("refused ", showTTL(time.Duration(reply[1].(int64))*time.Millisecond), " ", reply[3])
	case int64(1):
		return fmt.Sprint("acquired ", reply[1].(int64) > 0, " ", reply[3])
	}
	return text(cmd)
}

// Whoever asks in company has the answer that he would have if they asked one after
// the other, and leaves the same behind.
func TestFairJoined(t *testing.T) {
	held := func(t *testing.T, rdb *redis.Client) { put(t, rdb, "lock", "x:1=1 20s") }
	queue := func(t *testing.T, rdb *redis.Client, owners ...string) {
		for _, owner := range owners {
			fairCalls["queue"](t.Context(), rdb, fair(owner), time.Minute)
		}
	}
	states := map[string]func(t *testing.T, rdb *redis.Client){
		"free":    func(*testing.T, *redis.Client) {},
		"held":    held,
		"endless": func(t *testing.T, rdb *redis.Client) { put(t, rdb, "lock", "x:1=1") },
		"with a queue": func(t *testing.T, rdb *redis.Client) {
			held(t, rdb)
			queue(t, rdb, "b:1", "b:2")
		},
		"some queue already": func(t *testing.T, rdb *redis.Client) {
			held(t, rdb)
			queue(t, rdb, "a:2", "b:1", "a:3")
		},
		"one of them holds it": func(t *testing.T, rdb *redis.Client) {
			put(t, rdb, "lock", "a:2=1 20s")
			queue(t, rdb, "b:1")
		},
		"one of them holds it for longer": func(t *testing.T, rdb *redis.Client) { put(t, rdb, "lock", "a:2=1 50s") },
		"the holder has died": func(t *testing.T, rdb *redis.Client) {
			held(t, rdb)
			queue(t, rdb, "b:1", "a:2")
			require.NoError(t, rdb.Del(t.Context(), "lock").Err())
		},
		"all have died": func(t *testing.T, rdb *redis.Client) {
			held(t, rdb)
			queue(t, rdb, "b:1", "b:2")
			age(t, rdb, "b:1", "b:2")
			require.NoError(t, rdb.Del(t.Context(), "lock").Err())
		},
		"the queue is about to expire": func(t *testing.T, rdb *redis.Client) {
			held(t, rdb)
			queue(t, rdb, "b:1")
			for _, key := range []string{fair("").Queue, fair("").Tickets} {
				require.NoError(t, rdb.PExpire(t.Context(), key, time.Second).Err())
			}
		},
		"no lock":    func(t *testing.T, rdb *redis.Client) { put(t, rdb, "lock", "list") },
		"no queue":   func(t *testing.T, rdb *redis.Client) { put(t, rdb, fair("").Queue, "list") },
		"no tickets": func(t *testing.T, rdb *redis.Client) { put(t, rdb, fair("").Tickets, "list") },
		"no counter": func(t *testing.T, rdb *redis.Client) { put(t, rdb, fair("").Counter, "list") },
		"Redisson's": func(t *testing.T, rdb *redis.Client) { put(t, rdb, fair("").Redisson[0], "list") },
		"no lock's field": func(t *testing.T, rdb *redis.Client) {
			require.NoError(t, rdb.HSet(t.Context(), "lock", "colour", "1").Err())
		},
	}
	tickets := map[string]lua.Ticket{
		"waiting": {Life: ticketLife, Claim: 10 * time.Second},
		"once":    {},
	}
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		queue(t, rdb, "a:1") // the server knows the script
		for name, prepare := range states {
			for how, ticket := range tickets {
				for _, counter := range []string{"", fair("").Counter} {
					outcome := func(joined bool) (answers []string, left string) {
						require.NoError(t, rdb.FlushAll(t.Context()).Err())
						prepare(t, rdb)
						f := fair("")
						f.Counter = counter
						cmds := asking(t, f, 30*time.Second, ticket, "a:1", "a:2", "a:3")
						if joined {
							require.False(t, lua.Send(t.Context(), rdb, cmds, true))
						} else {
							for _, cmd := range cmds {
								require.False(t, lua.Send(t.Context(), rdb, []redis.Cmder{cmd}, true))
							}
						}
						for _, cmd := range cmds {
							answers = append(answers, timeless(cmd))
						}
						all, err := rdb.Keys(t.Context(), "*").Result()
						require.NoError(t, err)
						for _, key := range slices.Sorted(slices.Values(all)) {
							left += " " + key + " " + rdb.Type(t.Context(), key).Val() + " " + showTTL(rdb.PTTL(t.Context(), key).Val())
						}
						if name != "no queue" {
							left += strings.Join(rdb.ZRange(t.Context(), f.Queue, 0, -1).Val(), " ")
						}
						left += strings.Join(slices.Sorted(slices.Values(rdb.HKeys(t.Context(), f.Tickets).Val())), " ")
						return answers, left + fmt.Sprint(rdb.HGetAll(t.Context(), "lock").Val())
					}
					answers, left := outcome(false)
					for _, known := range []bool{true, false} {
						if !known {
							require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
						}
						joined, leftByThem := outcome(true)
						require.Equal(t, answers, joined, "%s, %s, %s", name, how, counter)
						require.Equal(t, left, leftByThem, "%s, %s, %s", name, how, counter)
					}
				}
			}
		}
	})
}

// Those who ask for the same fair lock, and in the same way, are one command.
func TestWhoJoinsForAFairLock(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t)
	other := fair("")
	other.Key, other.Queue, other.Tickets = "other", "other queue", "other tickets"
	wait := lua.Ticket{Life: ticketLife, Claim: 10 * time.Second}
	cmds := slices.Concat(
		asking(t, fair(""), time.Minute, wait, "a:1", "a:2", "a:3"),
		asking(t, fair(""), time.Minute, lua.Ticket{}, "a:4"),
		asking(t, other, time.Minute, wait, "a:5", "a:6"),
	)
	require.False(t, lua.Send(t.Context(), rdb, cmds, true)) // the server knows the script
	before := executions(t, s)
	require.False(t, lua.Send(t.Context(), rdb, cmds, true))
	require.EqualValues(t, 3, executions(t, s)-before)
	for i, want := range []string{"acquired true 0", "refused 1m0s 1", "refused 1m0s 0", "refused 1m0s 0"} {
		require.Equal(t, want, timeless(cmds[i]))
	}
}

// An error in the middle is that of one owner. On a replica, who holds the lock is told
// so, and the others have no ticket.
func TestFairJoinedOnAReplica(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t)
	put(t, rdb, "lock", "a:1=1 50s")
	wait := lua.Ticket{Life: ticketLife, Claim: 10 * time.Second}
	cmds := asking(t, fair(""), 30*time.Second, wait, "a:1", "a:2", "a:3")
	require.NoError(t, rdb.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	require.False(t, lua.Send(t.Context(), rdb, cmds, true))
	require.Equal(t, "acquired false 0", timeless(cmds[0]))
	for _, cmd := range cmds[1:] {
		require.True(t, redis.HasErrorPrefix(cmd.Err(), "READONLY"), "%v", cmd.Err())
	}
}

// Where nobody can be given a ticket, each is told so.
func TestFairJoinedOutOfMemory(t *testing.T) {
	s := redistest.Start(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	put(t, rdb, "lock", "x:1=1 20s")
	wait := lua.Ticket{Life: ticketLife, Claim: 10 * time.Second}
	require.False(t, lua.Send(t.Context(), rdb, asking(t, fair(""), time.Minute, wait, "a:1", "a:2"), true))
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	cmds := asking(t, fair(""), time.Minute, wait, "a:3", "a:4")
	require.False(t, lua.Send(t.Context(), rdb, cmds, true))
	for _, cmd := range cmds {
		require.True(t, redis.IsOOMError(cmd.Err()), "%v", cmd.Err())
	}
	require.Equal(t, "x:1=1 20s | a:1 a:2", showFair(t, rdb))
}
