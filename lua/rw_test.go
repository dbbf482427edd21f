package lua_test

import (
	"cmp"
	"context"
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

func rw(owner string) lua.RW {
	return lua.RW{
		Grant: lua.Grant{Key: "lock", Queue: lua.QueueOfRW("lock"), Channel: lua.UnlockChannelRW("lock"), Owner: owner},
		Holds: "{lock}:",
	}
}

// reader is the side of g for reading.
func reader(g lua.RW) lua.RW { g.Shared = true; return g }

func holdKey(owner string, n int) string { return fmt.Sprintf("{lock}:%s:rwlock_timeout:%d", owner, n) }

// putReader makes owner a reader with a lease for each hold, as Redisson does. A
// lease of 0 is over.
func putReader(t require.TestingT, rdb *redis.Client, owner string, leases ...time.Duration) {
	ctx := context.Background()
	require.NoError(t, rdb.HSet(ctx, "lock", "mode", "read", owner, len(leases)).Err())
	for i, d := range leases {
		if d > 0 {
			require.NoError(t, rdb.Set(ctx, holdKey(owner, i+1), 1, d).Err())
		}
	}
	if longest := max(slices.Max(leases), rdb.PTTL(ctx, "lock").Val()); longest > 0 {
		require.NoError(t, rdb.PExpire(ctx, "lock", longest).Err())
	}
}

func putWriter(t require.TestingT, rdb *redis.Client, owner string, lease time.Duration) {
	ctx := context.Background()
	require.NoError(t, rdb.HSet(ctx, "lock", "mode", "write", owner+":write", 1).Err())
	require.NoError(t, rdb.PExpire(ctx, "lock", lease).Err())
}

// putTicket puts a ticket into the queue, behind all others: 'r' for a reader, 'w' for a writer.
func putTicket(t require.TestingT, rdb *redis.Client, side byte, owner string) {
	g := rw(owner)
	ctx, place := context.Background(), float64(2+2*rdb.ZCard(context.Background(), g.Queue).Val())
	if side == 'r' {
		place++
	}
	require.NoError(t, rdb.ZAdd(ctx, g.Queue, redis.Z{Score: place*32768 + 6000*4, Member: owner}).Err())
	require.NoError(t, rdb.PExpire(ctx, g.Queue, time.Minute).Err())
}

// showRW shows the lock, the keys of read holds, and the tickets of the queue.
func showRW(t require.TestingT, rdb *redis.Client) string {
	ctx := context.Background()
	all := []string{show(t, rdb, "lock")}
	keys, err := rdb.Keys(ctx, "{lock}:*").Result()
	require.NoError(t, err)
	slices.Sort(keys)
	for _, key := range keys {
		all = append(all, strings.NewReplacer("{lock}:", "", ":rwlock_timeout:", "#").Replace(key)+" "+showTTL(rdb.PTTL(ctx, key).Val()))
	}
	tickets := slices.DeleteFunc(rdb.ZRange(ctx, rw("").Queue, 0, -1).Val(), isRecord)
	if len(tickets) > 0 {
		all = append(all, fmt.Sprint("queue ", tickets))
	}
	return strings.Join(all, "; ")
}

// isRecord reports whether a member of a queue is the record of a grant: see queue.lua.
func isRecord(member string) bool { return member[0] == '!' }

// rwRequest is a script call as it may lie about in the network.
type rwRequest struct {
	script        string
	owner         string
	lease         time.Duration
	writes, reads int // of count
}

func (r rwRequest) deliver(t require.TestingT, rdb lua.Runner) string {
	ctx, g := context.Background(), rw(r.owner)
	var err error
	switch r.script {
	case "read", "write", "try read", "try":
		var ticket lua.Ticket
		if !strings.HasPrefix(r.script, "try") {
			ticket.Claim = claim
		}
		g.Shared = strings.HasSuffix(r.script, "read")
		var reply lua.Reply
		if reply, err = lua.AskRW(ctx, rdb, g, r.lease, ticket); err == nil && !reply.Acquired {
			text := fmt.Sprintf("refused, %s", showTTL(reply.TTL))
			if reply.Holder != "" {
				text += " of " + reply.Holder
			}
			for _, part := range []struct {
				is   bool
				text string
			}{{reply.Place.First, ", first"}, {reply.Place.Held(), ", queued"}, {reply.Writer, ", a writer waits"}} {
				if part.is {
					text += part.text
				}
			}
			return text
		}
	case "count":
		_, err = lua.CountRW(ctx, rdb, g, r.lease, r.writes, r.reads)
	case "release":
		_, err = lua.ReleaseRW(ctx, rdb, g, lua.Ending{})
	case "renew":
		err = lua.Renew(ctx, rdb, []lua.Renewal{lua.RenewalRW(g, r.lease)})[0]
	case "force":
		var was bool
		if was, err = lua.ForceReleaseRW(ctx, rdb, g); err == nil {
			return fmt.Sprintf("was held: %t", was)
		}
	}
	return errText(err)
}

// Every answer of every script by an owner "me:1", what it leaves and announces,
// and what it answers the second time. Only a force is not safe to repeat.
func TestReadWriteAnswers(t *testing.T) {
	t.Parallel()
	const s = time.Second
	const notOwner = "lua: not the owner"
	type rdbFunc = func(t require.TestingT, rdb *redis.Client)
	free := func(require.TestingT, *redis.Client) {}
	reading := func(owner string, leases ...time.Duration) rdbFunc {
		return func(t require.TestingT, rdb *redis.Client) { putReader(t, rdb, owner, leases...) }
	}
	writing := func(owner string, lease time.Duration) rdbFunc {
		return func(t require.TestingT, rdb *redis.Client) { putWriter(t, rdb, owner, lease) }
	}
	queued := func(side byte, owner string) rdbFunc {
		return func(t require.TestingT, rdb *redis.Client) { putTicket(t, rdb, side, owner) }
	}
	both := func(all ...rdbFunc) rdbFunc {
		return func(t require.TestingT, rdb *redis.Client) {
			for _, f := range all {
				f(t, rdb)
			}
		}
	}
	downgradable := both(writing("me:1", 20*s), func(t require.TestingT, rdb *redis.Client) {
		require.NoError(t, rdb.HSet(context.Background(), "lock", "me:1", 1).Err())
		require.NoError(t, rdb.Set(context.Background(), holdKey("me:1", 1), 1, 20*s).Err())
	})
	request := func(script string) rwRequest { return rwRequest{script: script, owner: "me:1", lease: 20 * s} }
	count := func(writes, reads int) rwRequest {
		return rwRequest{script: "count", owner: "me:1", lease: 20 * s, writes: writes, reads: reads}
	}
	const mine = "me:1=1,mode=read 20s; me:1#1 20s"
	for _, tc := range []struct {
		name          string
		call          rwRequest
		before        rdbFunc
		answer, after string
		again         string // the repeated answer, if another one
		announced     []string
	}{
		{"read, free", request("read"), free, "done", mine, "", nil},
		{"read, free but awaited", request("read"), queued('w', "b:1"), "refused, 10s of b:1, first, queued", "b:1:write=1,mode=write 10s; queue [me:1]", "", nil},
		{"read, free, and another reader waits", request("read"), queued('r', "b:1"), "done", "b:1=1,me:1=1,mode=read 20s; b:1#1 10s; me:1#1 20s", "", nil},
		{"read beside a longer lease", request("read"), reading("b:1", 30*s), "done", "b:1=1,me:1=1,mode=read 30s; b:1#1 30s; me:1#1 20s", "", nil},
		{"read beside a shorter lease", request("read"), reading("b:1", 10*s), "done", "b:1=1,me:1=1,mode=read 20s; b:1#1 10s; me:1#1 20s", "", nil},
		{"read beside a waiting writer", request("read"), both(reading("b:1", 30*s), queued('w', "c:1")), "refused, 30s of b:1, queued, a writer waits", "b:1=1,mode=read 30s; b:1#1 30s; queue [c:1 me:1]", "", nil},
		{"try to read beside a waiting writer", request("try read"), both(reading("b:1", 30*s), queued('w', "c:1")), "refused, 30s of b:1, a writer waits", "b:1=1,mode=read 30s; b:1#1 30s; queue [c:1]", "", nil},
		{"read again beside a waiting writer", request("read"), both(reading("me:1", 10*s), queued('w', "c:1")), "done", mine + "; queue [c:1]", "", nil},
		{"read under a writer", request("read"), writing("b:1", 30*s), "refused, 30s of b:1, first, queued", "b:1:write=1,mode=write 30s; queue [me:1]", "", nil},
		{"read with a ticket", request("read"), both(queued('r', "me:1"), reading("b:1", 30*s)), "done", "b:1=1,me:1=1,mode=read 30s; b:1#1 30s; me:1#1 20s", "", nil},

		{"write, free", request("write"), free, "done", "me:1:write=1,mode=write 20s", "", nil},
		{"write, free but awaited", request("write"), queued('w', "b:1"), "refused, 10s of b:1, first, queued", "b:1:write=1,mode=write 10s; queue [me:1]", "", nil},
		{"write, free, and readers wait", request("try"), both(queued('r', "b:1"), queued('w', "c:1"), queued('r', "d:1")), "refused, 10s of d:1", "b:1=1,d:1=1,mode=read 10s; b:1#1 10s; d:1#1 10s; queue [c:1]", "", nil},
		{"write again", request("write"), writing("me:1", 10*s), "done", "me:1:write=1,mode=write 20s", "", nil},
		{"write under a writer", request("write"), writing("b:1", 30*s), "refused, 30s of b:1, first, queued", "b:1:write=1,mode=write 30s; queue [me:1]", "", nil},
		{"write under readers", request("write"), both(reading("b:1", 10*s, 30*s), reading("c:1", 40*s)), "refused, 30s of c:1, first, queued", "b:1=2,c:1=1,mode=read 40s; b:1#1 10s; b:1#2 30s; c:1#1 40s; queue [me:1]", "", nil},
		{"try under readers", request("try"), reading("b:1", 30*s), "refused, 30s of b:1", "b:1=1,mode=read 30s; b:1#1 30s", "", nil},
		{"write, one reader dead", request("write"), both(reading("b:1", 0, 0), reading("c:1", 30*s)), "refused, 30s of c:1, first, queued", "c:1=1,mode=read 30s; c:1#1 30s; queue [me:1]", "", nil},
		{"write, all readers dead", request("write"), both(reading("c:1", 30*s), reading("b:1", 0, 0), func(t require.TestingT, rdb *redis.Client) {
			require.NoError(t, rdb.Del(context.Background(), holdKey("c:1", 1)).Err())
		}), "done", "me:1:write=1,mode=write 20s", "", nil},
		{"write after the own downgrade", request("write"), both(reading("me:1", 20*s), reading("b:1", 20*s)), "done", "b:1=1,me:1=1,mode=read 20s; b:1#1 20s; me:1#1 20s", "", nil},

		{"count, free", count(0, 2), free, notOwner, "", "", nil},
		{"count of a reader, up", count(0, 2), reading("me:1", 10*s), "done", "me:1=2,mode=read 20s; me:1#1 20s; me:1#2 20s", "", nil},
		{"count of a reader, down", count(0, 1), reading("me:1", 30*s, 30*s, 30*s), "done", "me:1=1,mode=read 30s; me:1#1 30s", "", nil},
		{"count of a reader whose leases are over", count(0, 1), both(reading("me:1", 0), reading("b:1", 20*s)), "done", "b:1=1,me:1=1,mode=read 20s; b:1#1 20s; me:1#1 20s", "", nil},
		{"count of a writer", count(2, 0), writing("me:1", 10*s), "done", "me:1:write=2,mode=write 20s", "", nil},
		{"count of a writer who reads", count(1, 1), writing("me:1", 10*s), "done", "me:1:write=1,me:1=1,mode=write 20s; me:1#1 20s", "", nil},
		{"count of a writer who read", count(1, 0), downgradable, "done", "me:1:write=1,mode=write 20s", "", nil},
		{"downgrade", count(0, 1), downgradable, "done", mine, "", []string{"+1", "-0"}},
		{"downgrade, a writer waits", count(0, 1), both(downgradable, queued('w', "b:1"), queued('r', "c:1")), "done", mine + "; queue [b:1 c:1]", "", []string{"+1", "-0"}},
		{"count from before the downgrade", count(1, 1), reading("me:1", 20*s), notOwner, mine, "", nil},
		{"count from before the downgrade, not reading", count(1, 0), reading("me:1", 20*s), notOwner, mine, "", nil},

		{"release, free", request("release"), free, notOwner, "", "", nil},
		{"release of the only reader", request("release"), reading("me:1", 10*s, 10*s), "done", "", notOwner, []string{"-0"}},
		{"release beside a shorter lease", request("release"), both(reading("me:1", 60*s), reading("b:1", 20*s)), "done", "b:1=1,mode=read 20s; b:1#1 20s", notOwner, nil},
		{"release beside dead readers", request("release"), both(reading("me:1", 60*s), reading("b:1", 0), reading("c:1", 0)), "done", "", notOwner, []string{"-0"}},
		{"release of a writer", request("release"), writing("me:1", 20*s), "done", "", notOwner, []string{"+1", "-0"}},
		{"release of a writer who reads", request("release"), downgradable, "done", "", notOwner, []string{"+1", "-0"}},
		{"release of who only waits", request("release"), both(reading("b:1", 20*s), queued('w', "me:1")), notOwner, "b:1=1,mode=read 20s; b:1#1 20s", "", nil},
		{"release of a waiting writer before a reader", request("release"), both(reading("b:1", 20*s), queued('w', "me:1"), queued('r', "c:1")), notOwner, "b:1=1,c:1=1,mode=read 20s; b:1#1 20s; c:1#1 10s", "", nil},
		{"release beside somebody's wait", request("release"), both(reading("b:1", 20*s), queued('w', "c:1")), notOwner, "b:1=1,mode=read 20s; b:1#1 20s; queue [c:1]", "", nil},

		{"renewal, free", request("renew"), free, notOwner, "", "", nil},
		{"renewal of a reader", request("renew"), both(reading("me:1", 10*s, 30*s), reading("b:1", 40*s)), "done", "b:1=1,me:1=2,mode=read 40s; b:1#1 40s; me:1#1 20s; me:1#2 30s", "", nil},
		{"renewal of a reader, late", request("renew"), both(reading("me:1", 0), reading("b:1", 10*s)), "done", "b:1=1,me:1=1,mode=read 20s; b:1#1 10s; me:1#1 20s", "", nil},
		{"renewal of a writer", request("renew"), writing("me:1", 10*s), "done", "me:1:write=1,mode=write 20s", "", nil},
		{"renewal of a writer, longer", request("renew"), writing("me:1", 30*s), "done", "me:1:write=1,mode=write 30s", "", nil},
		{"renewal of a writer who reads", request("renew"), both(downgradable), "done", "me:1:write=1,me:1=1,mode=write 20s; me:1#1 20s", "", nil},

		{"force, free", request("force"), free, "was held: false", "", "", nil},
		{"force of a reader", request("force"), reading("b:1", 20*s), "was held: true", "; b:1#1 20s", "was held: false", []string{"+1", "-0"}},
		{"force of a writer", request("force"), writing("b:1", 20*s), "was held: true", "", "was held: false", []string{"+1", "-0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
				heard := listen(t, rdb, rw("").Channel)
				tc.before(t, rdb)
				require.Equal(t, tc.answer, tc.call.deliver(t, rdb))
				require.Equal(t, tc.after, showRW(t, rdb))
				require.Equal(t, cmp.Or(tc.again, tc.answer), tc.call.deliver(t, rdb), "repeated")
				require.Equal(t, tc.after, showRW(t, rdb), "repeated")
				require.Equal(t, tc.announced, heard())
			})
		})
	}
}

// What is not a read/write lock is neither waited for nor changed.
func TestReadWriteConflicts(t *testing.T) {
	for _, before := range []string{"string", "list", "me:1=1 10s", "name=bob"} {
		t.Run(before, func(t *testing.T) {
			onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
				put(t, rdb, "lock", before)
				for _, script := range []string{"read", "write", "try", "try read", "force"} {
					answer := rwRequest{script: script, owner: "me:1", lease: time.Minute}.deliver(t, rdb)
					require.Contains(t, answer, `lua: key "lock" holds a `, script)
				}
				for _, script := range []string{"count", "release", "renew"} {
					answer := rwRequest{script: script, owner: "me:1", lease: time.Minute, reads: 1}.deliver(t, rdb)
					require.Equal(t, lua.ErrNotOwner.Error(), answer, script)
				}
				_, err := lua.InspectRW(t.Context(), rdb, rw(""))
				var conflict *lua.ConflictError
				require.ErrorAs(t, err, &conflict)
				require.Equal(t, before, show(t, rdb, "lock"))
			})
		})
	}
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) { // an application's hash that looks like one, at first
		require.NoError(t, rdb.HSet(t.Context(), "lock", "mode", "read", "name", "bob").Err())
		for _, script := range []string{"read", "write"} {
			require.Contains(t, rwRequest{script: script, owner: "me:1", lease: time.Minute}.deliver(t, rdb), "refused, no end")
		}
		require.NoError(t, rdb.Del(t.Context(), rw("").Queue).Err())
		require.NoError(t, rdb.Expire(t.Context(), "lock", 10*time.Second).Err())
		require.Contains(t, rwRequest{script: "try", owner: "me:1", lease: time.Minute}.deliver(t, rdb), "refused, 10s")
		require.Equal(t, "mode=read,name=bob 10s", show(t, rdb, "lock"))

		require.NoError(t, rdb.Del(t.Context(), "lock").Err())
		put(t, rdb, rw("").Queue, "list")
		putReader(t, rdb, "b:1", time.Minute)
		require.Contains(t, rwRequest{script: "write", owner: "me:1", lease: time.Minute}.deliver(t, rdb), "holds a list")
	})
}

func TestReadWriteInspect(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		putWriter(t, rdb, "a:1", time.Minute)
		require.NoError(t, rdb.HSet(t.Context(), "lock", "a:1", 2).Err())
		s, err := lua.InspectRW(t.Context(), rdb, rw(""))
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"a:1": 3}, s.Holds)
		require.Equal(t, map[string]int64{"a:1": 2}, s.Shared)
		require.Greater(t, s.TTL, 50*time.Second)
	})
}

// A server that wants every key declared refuses the one of another reader's lease.
// The release of a lone reader asks for none.
func TestReleaseOfALoneReaderDeclaresItsKeys(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	r := rwRequest{script: "release", owner: "me:1"}
	require.Equal(t, "lua: not the owner", r.deliver(t, rdb)) // the server knows the script now
	putReader(t, rdb, "me:1", 10*time.Second)
	m := srv.Monitor(t)
	require.Equal(t, "done", r.deliver(t, rdb))
	for _, c := range m.Commands() {
		if c.Client == "lua" && len(c.Args) > 1 && !strings.EqualFold(c.Args[0], "publish") {
			require.Contains(t, []string{"lock", rw("").Queue, holdKey("me:1", 1)}, c.Args[1], "%q", c.Args)
		}
	}
}

// Less than no reads are none.
func TestCountOfNegativeReads(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	_, err := lua.CountRW(t.Context(), rdb, rw("a:1"), time.Second, 1, -3)
	require.ErrorIs(t, err, lua.ErrNotOwner)
}

// A full server refuses new holders, and lets those there are count, renew,
// become readers and leave.
func TestReadWriteOutOfMemory(t *testing.T) {
	rdb := redistest.Start(t, "--maxmemory-policy", "noeviction").Client(t)
	ctx := t.Context()
	_, err := lua.AskRW(ctx, rdb, rw("me:1"), 20*time.Second, lua.Ticket{})
	require.NoError(t, err)
	require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	deliver := func(r rwRequest) {
		t.Helper()
		r.owner, r.lease = "me:1", 20*time.Second
		require.Equal(t, "done", r.deliver(t, rdb))
	}
	deliver(rwRequest{script: "count", writes: 1, reads: 1})
	deliver(rwRequest{script: "count", reads: 2})
	deliver(rwRequest{script: "renew"})
	require.NoError(t, rdb.Del(ctx, holdKey("me:1", 1), holdKey("me:1", 2)).Err())
	deliver(rwRequest{script: "renew"})
	require.Equal(t, "me:1=2,mode=read 20s; me:1#1 20s; me:1#2 20s", showRW(t, rdb))
	_, err = lua.AskRW(ctx, rdb, reader(rw("b:1")), time.Minute, lua.Ticket{})
	require.True(t, says(err, "OOM"), "%v", err)
	deliver(rwRequest{script: "release"})
	_, err = lua.AskRW(ctx, rdb, rw("b:1"), time.Minute, lua.Ticket{})
	require.True(t, says(err, "OOM"), "%v", err)
	require.Empty(t, showRW(t, rdb))
}

// Where a script may run, but not every command in it, the error must not look
// like a lock that is lost, or free.
func TestReadWriteRefusedCommand(t *testing.T) {
	for _, command := range []string{"-hmget", "-hset", "-pexpire", "-pexpire -del", "-pttl", "-del", "-set", "-get", "-hdel", "-hrandfield"} {
		t.Run(command, func(t *testing.T) {
			s := redistest.Start(t)
			admin := s.Client(t)
			rules := []any{"~*", "&*", "+@all"}
			for _, rule := range strings.Fields(command) {
				rules = append(rules, rule)
			}
			rdb := user(t, s, rules...)
			for _, script := range []string{"read", "write", "count", "release", "renew"} {
				require.NoError(t, admin.FlushAll(t.Context()).Err())
				putReader(t, admin, "me:1", 20*time.Second)
				putReader(t, admin, "b:1", 10*time.Second)
				r := rwRequest{script: script, owner: "me:1", lease: 30 * time.Second, reads: 2}
				require.NotEqual(t, lua.ErrNotOwner.Error(), r.deliver(t, rdb), script)

				require.NoError(t, admin.FlushAll(t.Context()).Err())
				r.owner = "c:1"
				r.deliver(t, rdb)
				require.NotEqual(t, time.Duration(-1), admin.PTTL(t.Context(), "lock").Val(), "%s leaves a lock without TTL", script)
			}
		})
	}
}

// A server that refuses messages cannot tell the tickets in front. Each answer says so, and the free lock
// goes to whoever has waited and asks. A new call takes its place behind them.
func TestReadWriteWhereMessagesAreRefused(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	hearRW(t, admin, "bc")
	rdb := user(t, s, "~*", "&*", "+@all", "-publish")
	ticket := lua.Ticket{Claim: claim, Hears: lua.Counted}
	ask := func(rdb lua.Runner, owner string) lua.Reply {
		t.Helper()
		reply, err := lua.AskRW(t.Context(), rdb, rw(own(owner)), time.Minute, ticket)
		require.NoError(t, err)
		return reply
	}
	lockRW(t, rdb, rw(own("a:1")))
	require.False(t, ask(admin, "b:1").Place.Mute)
	require.True(t, ask(rdb, "b:1").Place.Mute)
	require.True(t, ask(rdb, "c:1").Place.Mute)
	_, err := lua.ReleaseRW(t.Context(), rdb, rw(own("a:1")), lua.Ending{})
	require.NoError(t, err)
	require.Equal(t, "; queue [b:1 c:1]", shorten(showRW(t, admin)))
	reader := rw(own("r:1"))
	reader.Shared = true
	reply, err := lua.AskRW(t.Context(), rdb, reader, time.Minute, lua.Ticket{Claim: 0})
	require.NoError(t, err)
	require.False(t, reply.Writer, "no reader holds the lock")
	fresh := ask(rdb, "a:2")
	require.False(t, fresh.Acquired, "it has passed those who wait")
	require.Zero(t, fresh.TTL)
	require.True(t, ask(rdb, "c:1").Acquired)
	require.Equal(t, "c:1:write=1,mode=write 1m0s; queue [b:1 a:2]", shorten(showRW(t, admin)))
}

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

// Tokens of writers grow; a reader has that of the newest writer, and a first one
// before any writer.
func TestReadWriteTokens(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		fenced := func(owner string) lua.RW {
			g := rw(owner)
			g.Counter = "redisson_lock_token:{lock}"
			return g
		}
		read := func(owner string) int64 {
			r, err := lua.AskRW(t.Context(), rdb, reader(fenced(owner)), time.Minute, lua.Ticket{})
			require.NoError(t, err)
			require.True(t, r.Acquired)
			return r.Token
		}
		write := func(owner string) int64 {
			r, err := lua.AskRW(t.Context(), rdb, fenced(owner), time.Minute, lua.Ticket{})
			require.NoError(t, err)
			require.True(t, r.Acquired)
			return r.Token
		}
		release := func(owners ...string) {
			for _, owner := range owners {
				_, err := lua.ReleaseRW(t.Context(), rdb, fenced(owner), lua.Ending{})
				require.NoError(t, err)
			}
		}
		first := read("a:1")
		require.Positive(t, first)
		require.Equal(t, first, read("b:1"))
		release("a:1", "b:1")
		second := write("a:2")
		require.Greater(t, second, first)
		require.Equal(t, second, write("a:2"), "repeated")
		require.NoError(t, rdb.Del(t.Context(), fenced("").Counter).Err())
		second = write("a:2")
		require.Positive(t, second, "repeated after the counter is gone")
		release("a:2")
		require.Equal(t, second, read("a:3"))
		require.Equal(t, second, read("a:3"), "repeated")
		release("a:3")
		require.Greater(t, write("a:4"), second)
		release("a:4")
		require.NoError(t, rdb.Set(t.Context(), fenced("").Counter, "garbage", 0).Err())
		for _, err := range []error{
			func() error {
				_, err := lua.AskRW(t.Context(), rdb, reader(fenced("a:5")), time.Minute, lua.Ticket{})
				return err
			}(),
			func() error {
				_, err := lua.AskRW(t.Context(), rdb, fenced("a:5"), time.Minute, lua.Ticket{})
				return err
			}(),
		} {
			var conflict *lua.ConflictError
			require.ErrorAs(t, err, &conflict)
			require.Equal(t, fenced("").Counter, conflict.Key)
		}
		require.Empty(t, showRW(t, rdb))
	})
}

// Whoever frees the lock may do so without a counter: the lock of another client, or of a command. Then a
// waiting writer has no token from the queue, and asks for one. The answer is a token of its own, and the same one
// when the request is repeated. The newest one before is the token of the writer before. So it is if the lock had
// lapsed, and the request of an owner without a counter has served the queue.
func TestReadWriteTokenAfterAReleaseWithoutCounter(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		fenced := func(owner string) lua.RW {
			g := rw(owner)
			g.Counter = "redisson_lock_token:{lock}"
			return g
		}
		ask := func(g lua.RW, lease time.Duration, ticket lua.Ticket) lua.Reply {
			reply, err := lua.AskRW(t.Context(), rdb, g, lease, ticket)
			require.NoError(t, err)
			return reply
		}
		for name, free := range map[string]func(lua.RW) error{
			"release": func(g lua.RW) error {
				_, err := lua.ReleaseRW(t.Context(), rdb, g, lua.Ending{})
				return err
			},
			"force": func(g lua.RW) error {
				_, err := lua.ForceReleaseRW(t.Context(), rdb, g)
				return err
			},
			"lapse": func(g lua.RW) error {
				require.NoError(t, rdb.Del(t.Context(), g.Key).Err())
				g = rw(own("c:1"))
				require.True(t, ask(g, time.Minute, lua.Ticket{Claim: claim, Hears: lua.Counted}).Leftover)
				_, err := lua.ReleaseRW(t.Context(), rdb, g, lua.Ending{})
				require.ErrorIs(t, err, lua.ErrNotOwner)
				return nil
			},
		} {
			t.Run(name, func(t *testing.T) {
				require.NoError(t, rdb.FlushAll(t.Context()).Err())
				hearRW(t, rdb, "bc")
				before := lockRW(t, rdb, fenced(own("a:1"))).Token
				queueUp(t, rdb, fenced, "wb:1")
				require.NoError(t, free(rw(own("a:1"))))
				token := lockRW(t, rdb, fenced(own("b:1"))).Token
				require.Greater(t, token, before)
				require.Equal(t, token, lockRW(t, rdb, fenced(own("b:1"))).Token, "repeated")
				_, err := lua.CountRW(t.Context(), rdb, fenced(own("b:1")), time.Minute, 0, 1)
				require.NoError(t, err)
				require.Equal(t, token, lockRW(t, rdb, reader(fenced(own("c:9")))).Token, "a reader beside the writer that has become one")
			})
		}
	})
}
