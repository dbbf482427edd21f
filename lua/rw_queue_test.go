package lua_test

import (
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

// queueUp has owners wait for the lock of g: 'r' in front for reading, 'w' for writing.
func queueUp(t *testing.T, rdb *redis.Client, lock func(string) lua.RW, owners ...string) {
	t.Helper()
	for _, name := range owners {
		g := lock(own(name[1:]))
		g.Shared = name[0] == 'r'
		reply, err := lua.AskRW(t.Context(), rdb, g, time.Minute, lua.Ticket{Claim: claim, Hears: lua.Counted})
		require.NoError(t, err)
		require.True(t, reply.Leftover, name)
	}
}

// hearRW has clients listen, and returns what they hear: "b: grant b:1 for 6s".
func hearRW(t *testing.T, rdb *redis.Client, clients string) func() string {
	var all []func() []string
	for _, c := range clients {
		all = append(all, listen(t, rdb, lua.GrantChannelRW("lock", strings.Repeat(string(c), 20))))
	}
	return func() string {
		var texts []string
		for i, heard := range all {
			for _, payload := range heard() {
				texts = append(texts, string(clients[i])+": "+rwMessageText(payload))
			}
		}
		return shorten(strings.Join(texts, "; "))
	}
}

func rwMessageText(payload string) string {
	var lines []string
	for line := range strings.SplitSeq(payload, "\n") {
		lines = append(lines, messageText(line))
	}
	return strings.Join(lines, ", ")
}

func lockRW(t *testing.T, rdb *redis.Client, g lua.RW) lua.Reply {
	t.Helper()
	reply, err := lua.AskRW(t.Context(), rdb, g, time.Minute, lua.Ticket{})
	require.NoError(t, err)
	require.True(t, reply.Acquired)
	return reply
}

// A batch takes all readers of the queue along, past the writers among them. Each client gets one
// message; that of the own client is the answer.
func TestReadWriteBatch(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		heard := hearRW(t, rdb, "abc")
		lockRW(t, rdb, rw(own("a:1")))
		queueUp(t, rdb, rw, "rb:1", "wc:2", "ra:3", "rb:4", "wb:5", "rc:6")
		released, err := lua.ReleaseRW(t.Context(), rdb, rw(own("a:1")), lua.Ending{})
		require.NoError(t, err)
		require.False(t, released.More)
		require.Equal(t, "grant a:3 for 6s", shorten(rwMessageText(released.Message)))
		require.Equal(t, "b: grant b:1 for 6s, grant b:4 for 6s; c: grant c:6 for 6s", heard())
		for _, owner := range []string{"b:1", "a:3", "b:4"} {
			_, err = lua.ReleaseRW(t.Context(), rdb, rw(own(owner)), lua.Ending{})
			require.NoError(t, err)
		}
		require.Empty(t, heard(), "a reader is left")
		_, err = lua.ReleaseRW(t.Context(), rdb, rw(own("c:6")), lua.Ending{})
		require.NoError(t, err)
		require.Empty(t, heard(), "the own client is told by the answer")
		require.Equal(t, "c:2:write=1,mode=write 10s; queue [b:5]", shorten(showRW(t, rdb)))
	})
}

// Whoever ends the grant of another client's owner tells the waiters of that client by a message: the
// answer would reach none of them.
func TestReadWriteReleaseByAnotherClient(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		heard := hearRW(t, rdb, "a")
		lockRW(t, rdb, rw(own("a:1")))
		queueUp(t, rdb, rw, "ra:2")
		released, err := lua.ReleaseRW(t.Context(), rdb, rw(own("a:1")), lua.Ending{Evict: true})
		require.NoError(t, err)
		require.Empty(t, released.Message)
		require.Equal(t, "a: grant a:2 for 6s", heard())
	})
}

// A downgrade grants to readers at the head, which have the token of the writer: it still holds the lock, so
// a greater one would have it refused where tokens are checked. The next writer has a greater one.
func TestReadWriteTokensByTheQueue(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		fenced := func(owner string) lua.RW {
			g := rw(owner)
			g.Counter = "redisson_lock_token:{lock}"
			return g
		}
		heard := listen(t, rdb, lua.GrantChannelRW("lock", strings.Repeat("b", 20)))
		message := func() lua.Message {
			all := heard()
			require.Len(t, all, 1)
			return lua.ReadMessage(all[0])
		}
		first := lockRW(t, rdb, fenced(own("a:1")))
		queueUp(t, rdb, fenced, "rb:1", "wb:2")
		_, err := lua.CountRW(t.Context(), rdb, fenced(own("a:1")), time.Minute, 0, 1)
		require.NoError(t, err)
		reader := message()
		require.Equal(t, own("b:1"), reader.Owner)
		require.Equal(t, first.Token, reader.Token)
		require.Zero(t, reader.Spare)

		_, err = lua.ReleaseRW(t.Context(), rdb, fenced(own("a:1")), lua.Ending{})
		require.NoError(t, err)
		released, err := lua.ReleaseRW(t.Context(), rdb, fenced(own("b:1")), lua.Ending{})
		require.NoError(t, err)
		writer := lua.ReadMessage(released.Message)
		require.Equal(t, own("b:2"), writer.Owner)
		require.Greater(t, writer.Token, reader.Token)

		// Likewise of a writer that the queue has granted the lock.
		queueUp(t, rdb, fenced, "rb:3")
		released, err = lua.CountRW(t.Context(), rdb, fenced(own("b:2")), time.Minute, 0, 1)
		require.NoError(t, err)
		reader = lua.ReadMessage(released.Message)
		require.Equal(t, own("b:3"), reader.Owner)
		require.Equal(t, writer.Token, reader.Token)
	})
}

// A long queue is served in portions: the answer says that there is more, and any release serves it.
func TestReadWritePortions(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	lockRW(t, rdb, rw(own("a:1")))
	for i := range 300 {
		putTicket(t, rdb, 'r', own(fmt.Sprintf("b:%d", i)))
	}
	hearRW(t, rdb, "b")
	var portions []int64
	for n, owner := range []string{"a:1", "a:2", "a:3"} {
		released, err := lua.ReleaseRW(t.Context(), rdb, rw(own(owner)), lua.Ending{})
		require.Equal(t, n < 2, released.More, "%v", err)
		portions = append(portions, rdb.HLen(t.Context(), "lock").Val()-1)
	}
	require.Equal(t, []int64{128, 256, 300}, portions)
}

// A writer that is refused looks at few of many readers, and a reader that leaves at one. A writer that
// finds dead readers only takes them out, some at a time, and asks again at once.
func TestReadWriteCrowd(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	ctx := t.Context()
	commands := func(f func()) (n int64) {
		require.NoError(t, rdb.ConfigResetStat(ctx).Err())
		f()
		for line := range strings.SplitSeq(rdb.Info(ctx, "commandstats").Val(), "\r\n") {
			if rest, ok := strings.CutPrefix(line, "cmdstat_pttl:calls="); ok {
				_, err := fmt.Sscanf(rest, "%d", &n)
				require.NoError(t, err)
			}
		}
		return n
	}
	var holds []string
	for i := range 3000 {
		putReader(t, rdb, own(fmt.Sprintf("b:%d", i)), 40*time.Second)
		holds = append(holds, holdKey(own(fmt.Sprintf("b:%d", i)), 1))
	}
	write := func() (reply lua.Reply) {
		reply, err := lua.AskRW(ctx, rdb, rw(own("a:1")), time.Minute, lua.Ticket{})
		require.NoError(t, err)
		return reply
	}
	require.Less(t, commands(func() { require.Greater(t, write().TTL, 30*time.Second) }), int64(12))
	require.Less(t, commands(func() {
		_, err := lua.ReleaseRW(ctx, rdb, rw(own("b:0")), lua.Ending{})
		require.NoError(t, err)
	}), int64(5))
	require.NoError(t, rdb.Del(ctx, holds...).Err())
	asked := 0
	for reply := (lua.Reply{}); !reply.Acquired; asked++ {
		require.Less(t, commands(func() { reply = write() }), int64(1100))
		require.Less(t, asked, 30)
	}
	require.Greater(t, asked, 2)
}

// A server that is out of memory grants to nobody in the queue; those who may have the lock are told to
// ask, and keep their places.
func TestReadWriteQueueOutOfMemory(t *testing.T) {
	rdb := redistest.Start(t, "--maxmemory-policy", "noeviction").Client(t)
	ctx := t.Context()
	lockRW(t, rdb, rw(own("a:1")))
	require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	reply, err := lua.AskRW(ctx, rdb, reader(rw(own("c:1"))), time.Minute, lua.Ticket{Claim: claim, Hears: lua.Counted})
	require.NoError(t, err)
	require.False(t, reply.Acquired || reply.Place.Held(), "no memory for a ticket")
	_, err = lua.ReleaseRW(ctx, rdb, rw(own("a:1")), lua.Ending{})
	require.NoError(t, err)
	require.Empty(t, showRW(t, rdb))
}

// If the server refuses messages, what they grant is taken back, and the tickets stay: the waiters find the
// lock free by their own requests.
func TestReadWriteRefusedChannel(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	for _, tc := range []struct {
		name   string
		before []string // tickets
		denied string   // the client that may not be told
		after  string
		failed bool
	}{
		{"a writer", []string{"wb:1", "rc:1"}, "b", "; queue [b:1 c:1]", true},
		{"all of a batch", []string{"rb:1", "rb:2"}, "b", "; queue [b:1 b:2]", true},
		{"one client of a batch", []string{"rb:1", "rc:1", "wb:2"}, "b", "c:1=1,mode=read 10s; c:1#1 10s; queue [b:1 b:2]", true},
		{"nobody", []string{"rb:1", "rc:1"}, "x", "b:1=1,c:1=1,mode=read 10s; b:1#1 10s; c:1#1 10s", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.NoError(t, admin.FlushAll(t.Context()).Err())
			rules := []any{"~*", "+@all", "&redisson_rwlock:*"}
			for _, c := range "bc" {
				listen(t, admin, lua.GrantChannelRW("lock", strings.Repeat(string(c), 20)))
				if string(c) != tc.denied {
					rules = append(rules, "&"+lua.GrantChannelRW("lock", strings.Repeat(string(c), 20)))
				}
			}
			rdb := user(t, s, rules...)
			lockRW(t, admin, rw(own("a:1")))
			queueUp(t, admin, rw, tc.before...)
			released, err := lua.ReleaseRW(t.Context(), rdb, rw(own("a:1")), lua.Ending{})
			require.NoError(t, err)
			require.Equal(t, tc.failed, released.PublishErr != nil, "%v", released.PublishErr)
			require.Equal(t, tc.after, shorten(showRW(t, admin)))
			if len(rdb.ZRange(t.Context(), rw("").Queue, 0, -1).Val()) > 0 {
				require.Positive(t, admin.PTTL(t.Context(), rw("").Queue).Val())
			}
		})
	}
}

// While a slot moves, a node that has all keys of a release makes no key anew: the lock is left to the first
// tickets, which are told to ask. If the keys are apart, the lock is released alone and the first is told.
func TestReadWriteQueueWhileTheSlotMoves(t *testing.T) {
	cluster := redistest.StartCluster(t, 2, 0)
	slot := cluster.Slot("lock")
	rdb := cluster.Client(t)
	for name, moved := range map[string][]string{"nothing has moved": {}, "the lock has moved": {"lock"}, "the queue has moved": {rw("").Queue}} {
		t.Run(name, func(t *testing.T) {
			from, to := cluster.Owner(slot), cluster.Another(slot)
			source, target := from.Client(t), to.Client(t)
			putReader(t, source, own("a:1"), 20*time.Second)
			putTicket(t, source, 'w', own("b:1"))
			putTicket(t, source, 'r', own("c:1"))
			var heard []func() string
			for _, node := range []*redis.Client{source, target} {
				heard = append(heard, hearRW(t, node, "b"))
			}
			move := cluster.BeginMove(slot, to)
			if len(moved) > 0 {
				move.MoveKeys(moved...)
			}
			_, err := lua.ReleaseRW(t.Context(), rdb, rw(own("a:1")), lua.Ending{})
			require.NoError(t, err)
			move.MoveKeys()
			move.Finish()
			require.Contains(t, shorten(showRW(t, target)), "; queue [b:1 c:1]")
			told := []string{heard[0](), heard[1]()}
			require.True(t, slices.Contains(told, "b: wake b:1"), "%q", told)
			for _, node := range cluster.Nodes {
				require.NoError(t, node.Client(t).FlushAll(context.Background()).Err())
			}
		})
	}
}

// The readers' leases differ, as most of them were granted by a message: for 2.5 s until the renewal. What a
// reader's release costs does not depend on how many others there are. The TTL of the lock is that of the last
// reader as long as there are few, and no shorter than that otherwise.
func TestReadWriteReleaseBesideReadersOfMixedLeases(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	ctx := t.Context()
	release := func(n int) {
		t.Helper()
		_, err := lua.ReleaseRW(ctx, rdb, rw(own(fmt.Sprintf("b:%d", n))), lua.Ending{})
		if n%3 == 1 && err != nil { // on a busy machine such a short lease may be over
			require.ErrorIs(t, err, lua.ErrNotOwner)
			return
		}
		require.NoError(t, err)
	}
	for _, queued := range []bool{false, true} {
		require.NoError(t, rdb.FlushAll(ctx).Err())
		const readers = 1000
		for i := range readers {
			putReader(t, rdb, own(fmt.Sprintf("b:%d", i)), []time.Duration{30 * time.Second, 2500 * time.Millisecond, time.Minute}[i%3])
		}
		if queued {
			queueUp(t, rdb, rw, "wc:1")
		}
		last := readers - 1
		require.NoError(t, rdb.ConfigResetStat(ctx).Err())
		for ; last >= readers-100; last-- {
			release(last)
		}
		var looked, releases int
		stats := rdb.Info(ctx, "commandstats").Val()
		for name, n := range map[string]*int{"pttl": &looked, "evalsha": &releases} {
			_, rest, _ := strings.Cut(stats, "cmdstat_"+name+":calls=")
			_, err := fmt.Sscanf(rest, "%d", n)
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, releases, 100)
		require.LessOrEqual(t, looked, 5*100, "queued %v", queued)
		require.Greater(t, rdb.PTTL(ctx, "lock").Val(), 50*time.Second)
		for ; last > 2; last-- {
			release(last)
		}
		release(2)
		require.InDelta(t, 30*time.Second, rdb.PTTL(ctx, "lock").Val(), float64(10*time.Second))
	}
}

// A reader that leaves finds dead ones in a sample of the others, and takes them out. The sample may be without the one whose
// lease is the longest, so it says nothing of the TTL of the lock: a writer would enter beside that reader.
func TestReadWriteReleaseKeepsTheTTLBesideTheDead(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	ctx := t.Context()
	for range 200 {
		require.NoError(t, rdb.FlushAll(ctx).Err())
		putReader(t, rdb, own("a:1"), 10*time.Minute)
		for i := range 15 {
			putReader(t, rdb, own(fmt.Sprintf("b:%d", i)), 30*time.Second)
		}
		for i := range 6 {
			require.NoError(t, rdb.HSet(ctx, "lock", own(fmt.Sprintf("d:%d", i)), 1).Err()) // its lease is over
		}
		putReader(t, rdb, own("x:1"), 30*time.Second)
		queueUp(t, rdb, rw, "wc:1")
		_, err := lua.ReleaseRW(ctx, rdb, rw(own("x:1")), lua.Ending{})
		require.NoError(t, err)
		require.Greater(t, rdb.PTTL(ctx, "lock").Val(), 9*time.Minute)
	}
}

// A release that the server refuses to announce says of no grants that more are to follow: it has taken them back, and would
// make them, and take them back, for ever.
func TestReadWriteRefusedGrantsAreNotMore(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	rdb := user(t, s, "~*", "&*", "+@all", "-publish")
	lockRW(t, admin, rw(own("w:1")))
	for i := range 130 {
		g := rw(own(fmt.Sprintf("c%d:1", i)))
		g.Shared = true
		_, err := lua.AskRW(t.Context(), admin, g, time.Minute, lua.Ticket{Claim: claim, Hears: lua.Uncounted})
		require.NoError(t, err)
	}
	reply, err := lua.ReleaseRW(t.Context(), rdb, rw(own("w:1")), lua.Ending{})
	require.NoError(t, err)
	require.False(t, reply.More)
	require.Error(t, reply.PublishErr)
}

// lapse ends the lease of whoever holds the lock.
func lapse(t *testing.T, rdb *redis.Client) {
	t.Helper()
	for _, key := range append(rdb.Keys(t.Context(), "{lock}:*").Val(), "lock") {
		require.NoError(t, rdb.Del(t.Context(), key).Err())
	}
}

// Clients stand still one behind the other. The first costs its claim. Then all are called, and the next has
// the lock for no longer than it takes to answer; whoever has not answered loses its tickets, of both sides.
func TestReadWriteLapses(t *testing.T) {
	t.Parallel()
	ticket := lua.Ticket{Claim: claim, Hears: lua.Counted}
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		ask := func(who string) (answer string) {
			t.Helper()
			g := rw(own(who[1:]))
			g.Shared = who[0] == 'r'
			reply, err := lua.AskRW(t.Context(), rdb, g, time.Minute, ticket)
			require.NoError(t, err)
			if reply.Acquired {
				return "has it"
			}
			return shorten(fmt.Sprintf("%d before, %s has it", reply.Place.Before, reply.Holder))
		}
		heard := hearRW(t, rdb, "abcdex")
		lockRW(t, rdb, rw(own("a:1")))
		queueUp(t, rdb, rw, "wb:1", "wc:1", "rb:2", "wd:1", "re:1", "wx:1", "rx:2")
		require.NoError(t, rdb.PExpire(t.Context(), "lock", time.Minute).Err())
		_, err := lua.ReleaseRW(t.Context(), rdb, rw(own("a:1")), lua.Ending{})
		require.NoError(t, err)
		require.Equal(t, "b: grant b:1 for 6s", heard())

		lapse(t, rdb)
		require.Equal(t, "2 before, c:1 has it", ask("wx:1"), "b has lost its tickets")
		require.Equal(t, "b: wake *; c: grant c:1 for 400ms; c: wake *; d: wake *; e: wake *", sorted(heard()))
		require.Equal(t, "1 before, c:1 has it", ask("re:1"))
		require.Empty(t, heard())

		lapse(t, rdb)
		require.Equal(t, "has it", ask("re:1"), "c and d have not answered: readers are a batch")
		require.Equal(t, "d: wake *; x: grant x:2 for 400ms; x: wake *", sorted(heard()))
		require.Contains(t, shorten(showRW(t, rdb)), "e:1=1,mode=read,x:2=1 1m0s; e:1#1 1m0s; ")
		require.Contains(t, shorten(showRW(t, rdb)), "; queue [x:1]")

		// A reader of the batch lapses after the others have left. It was the newest, so its client has no place.
		_, err = lua.ReleaseRW(t.Context(), rdb, rw(own("e:1")), lua.Ending{})
		require.NoError(t, err)
		lapse(t, rdb)
		require.Equal(t, "has it", ask("wd:2"))
		require.Equal(t, "x: wake *", heard())
		require.Empty(t, rdb.ZRange(t.Context(), rw("").Queue, 0, -1).Val())
	})
}

// An owner that releases the lock has not let its grant lapse, and nobody is called for it, whatever ends
// the grant. What is left of the queue then ends with it.
func TestReadWriteReleaseIsNoLapse(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		for name, end := range map[string]func(owner string) error{
			"release": func(owner string) error { _, err := lua.ReleaseRW(ctx, rdb, rw(owner), lua.Ending{}); return err },
			"release by another client": func(owner string) error {
				_, err := lua.ReleaseRW(ctx, rdb, rw(owner), lua.Ending{Evict: true})
				return err
			},
			"force": func(string) error { _, err := lua.ForceReleaseRW(ctx, rdb, rw("")); return err },
			"release without the queue": func(owner string) error { // as its slot moves
				err := rdb.Del(ctx, "lock", holdKey(owner, 1)).Err()
				require.NoError(t, lua.ServeApart(ctx, rdb, rw(owner).Grant, nil, true))
				return err
			},
		} {
			for _, side := range "rw" {
				require.NoError(t, rdb.FlushAll(ctx).Err())
				heard := hearRW(t, rdb, "bcd")
				lockRW(t, rdb, rw(own("a:1")))
				queueUp(t, rdb, rw, string(side)+"b:1")
				_, err := lua.ReleaseRW(ctx, rdb, rw(own("a:1")), lua.Ending{})
				require.NoError(t, err)
				require.LessOrEqual(t, rdb.PTTL(ctx, rw("").Queue).Val(), claim, "nobody waits: the record outlives no claim")
				queueUp(t, rdb, rw, "wc:1", "wd:1")
				heard()
				require.NoError(t, end(own("b:1")), name)
				require.NotContains(t, heard(), "*", name)
				for _, owner := range []string{"c:1", "d:1"} {
					_, err = lua.AskRW(ctx, rdb, rw(own(owner)), time.Minute, lua.Ticket{Claim: claim, Hears: lua.Counted})
					require.NoError(t, err)
					require.NotContains(t, heard(), "*", name)
					_, err = lua.ReleaseRW(ctx, rdb, rw(own(owner)), lua.Ending{})
					require.NoError(t, err)
				}
				require.Zero(t, rdb.Exists(ctx, "lock", rw("").Queue).Val(), name)
			}
		}
	})
}

// sorted sorts what several clients hear.
func sorted(heard string) string {
	all := strings.Split(heard, "; ")
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// A writer leaves with +1, which wakes all threads of Redisson that wait, and -0, which stays for one that does
// not wait yet: see announce.lua. So does one that becomes a reader, or is removed by force, whether
// somebody is in the queue or not. A reader leaves with -0.
func TestReadWriteMessagesOfAWriter(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		me := rw(own("me:1"))
		release := func() error {
			_, err := lua.ReleaseRW(t.Context(), rdb, me, lua.Ending{})
			return err
		}
		downgrade := func() error {
			_, err := lua.CountRW(t.Context(), rdb, me, time.Minute, 0, 1)
			return err
		}
		force := func() error {
			_, err := lua.ForceReleaseRW(t.Context(), rdb, me)
			return err
		}
		heard := listen(t, rdb, lua.UnlockChannelRW("lock"))
		hearRW(t, rdb, "b")
		for name, test := range map[string]struct {
			holder lua.RW
			leave  func() error
			queue  []string
			want   []string
		}{
			"release":                      {me, release, nil, []string{"+1", "-0"}},
			"release, a writer waits":      {me, release, []string{"wb:1"}, []string{"+1", "-0"}},
			"downgrade":                    {me, downgrade, nil, []string{"+1", "-0"}},
			"downgrade, a reader waits":    {me, downgrade, []string{"rb:1"}, []string{"+1", "-0"}},
			"downgrade, a writer waits":    {me, downgrade, []string{"wb:1"}, []string{"+1", "-0"}},
			"force":                        {me, force, nil, []string{"+1", "-0"}},
			"force, a writer waits":        {me, force, []string{"wb:1"}, []string{"+1", "-0"}},
			"reader":                       {reader(me), release, nil, []string{"-0"}},
			"reader, while a writer waits": {reader(me), release, []string{"wb:1"}, []string{"-0"}},
		} {
			t.Run(name, func(t *testing.T) {
				require.NoError(t, rdb.FlushAll(t.Context()).Err())
				lockRW(t, rdb, test.holder)
				queueUp(t, rdb, rw, test.queue...)
				require.NoError(t, test.leave())
				require.Equal(t, test.want, heard())
			})
		}
	})
}
