package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// While a cluster slot moves, a node that has all keys of a script executes it, but makes
// none anew: a script that looks at a key which it has removed itself would fail half-way.
func TestQueueWhileTheSlotMoves(t *testing.T) {
	cluster := redistest.StartCluster(t, 2, 0)
	slot := cluster.Slot("lock")
	rdb, ctx, queue := cluster.Client(t), t.Context(), lua.QueueOf("lock")
	for _, tc := range []struct {
		name   string
		ticket string // the only member of the queue
		score  float64
		call   func() string
		answer string
		after  string // the lock, and who is in the queue
	}{
		{
			"the only one in the queue begins to hear", own("b:1"), 1<<15 + 6000*4,
			func() string {
				return replyText(lua.Ask(ctx, rdb, grant(own("b:1")), time.Minute, lua.Ticket{Claim: claim, Hears: lua.Uncounted}, 0))
			},
			"refused by a:1, 20s, first", "a:1=1 20s [b:1]",
		},
		{
			"a release takes the only ticket out", own("a:1"), 1<<15 + 6000*4,
			func() string {
				return releasedText(lua.Release(ctx, rdb, grant(own("a:1")), lua.Ending{Tickets: []string{own("a:1")}}))
			},
			"done", " []",
		},
		{
			"a release finds that the grant of another has lapsed", "!" + own("b:1"), 0,
			func() string { return releasedText(lua.Release(ctx, rdb, grant(own("a:1")), lua.Ending{})) },
			"done", " []",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from, to := cluster.Owner(slot), cluster.Another(slot)
			source, target := from.Client(t), to.Client(t)
			put(t, source, "lock", own("a:1")+"=1 20s")
			require.NoError(t, source.ZAdd(ctx, queue, redis.Z{Score: tc.score, Member: tc.ticket}).Err())
			require.NoError(t, source.PExpire(ctx, queue, time.Minute).Err())
			heard := listen(t, source, lua.UnlockChannel("lock"))
			move := cluster.BeginMove(slot, to)
			answer := shorten(tc.call())
			move.MoveKeys()
			move.Finish()
			require.Equal(t, tc.answer, answer)
			require.Equal(t, tc.answer == "done", len(heard()) > 0, "announced")
			left, err := target.ZRange(ctx, queue, 0, -1).Result()
			require.NoError(t, err)
			require.Equal(t, tc.after, shorten(fmt.Sprint(show(t, target, "lock"), " ", left)))
			require.NoError(t, target.FlushAll(ctx).Err())
		})
	}
}
