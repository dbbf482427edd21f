package lua_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// courses of events, see [waiters.follow]. The clients a, b, c and d are ours.
var courses = map[string][]string{
	"in order of arrival": {
		"a listens", "b listens", "c listens",
		"a:1 ask P -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P",
		"b:1 ask P -> refused by a:1, 20s, first => a:1=1 20s | b:1P c:1P",
		"d:1 ask -> refused by a:1, 20s => a:1=1 20s | b:1P c:1P",
		"a:1 release -> done => b:1=1 10s | !b:1 c:1P >> b: grant b:1 for 6s",
		"b:1 ask P -> acquired => b:1=1 20s | !b:1 c:1P",
		"a:1 ask P -> refused by b:1, 20s, new => b:1=1 20s | !b:1 c:1P a:1P",
		"b:1 release -> done => c:1=1 10s | !c:1 a:1P >> c: grant c:1 for 6s",
		"c:1 release -> done => a:1=1 10s | !a:1 >> a: grant a:1 for 6s",
		"a:1 release -> done => |",
		"a:1 release -> lua: not the owner => |",
	},
	"to owners of the client that releases": {
		"a listens", "b listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"a:2 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | a:2P",
		"a:3 ask P -> refused by a:1, 20s, new => a:1=1 20s | a:2P a:3P",
		"b:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | a:2P a:3P b:1P",
		"a:4 ask P -> refused by a:1, 20s, new => a:1=1 20s | a:2P a:3P b:1P a:4P",
		"a:1 release -> done, grant a:2 for 6s, then a:3 => a:2=1 10s | !a:2 a:3P b:1P a:4P",
		"a:1 release -> lua: not the owner, wake a:2 => a:2=1 10s | !a:2 a:3P b:1P a:4P",
		"a:2 release a:3 -> done => b:1=1 10s | !b:1 a:4P >> b: grant b:1 for 6s",
		"a:2 release a:3 -> lua: not the owner => b:1=1 10s | !b:1 a:4P",
		"b:1 release -> done => a:4=1 10s | !a:4 >> a: grant a:4 for 6s",
		"b:1 release -> lua: not the owner => a:4=1 10s | !a:4",
	},
	"with those who come next": {
		"b listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"b:2 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P b:2P",
		"b:3 ask - -> refused by a:1, 20s, new => a:1=1 20s | b:1P b:2P b:3-",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P b:2P b:3- c:1P",
		"b:4 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P b:2P b:3- c:1P b:4P",
		"a:1 release -> done => b:1=1 10s | !b:1 b:2P b:3- c:1P b:4P >> b: grant b:1 for 6s, then b:2 b:3",
	},
	"nobody hears": {
		"b listens", "d listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"b:2 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P b:2P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P b:2P c:1P",
		"d:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P b:2P c:1P d:1P",
		"b deaf",
		"a:1 release -> done => d:1=1 10s | !d:1 >> d: grant d:1 for 6s",
	},
	"all are dead": {
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P",
		"a:1 release -> done => |",
	},
	"uncounted is believed": {
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask p -> refused by a:1, 20s, first, new => a:1=1 20s | b:1p",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1p c:1P",
		"a:1 release -> done => b:1=1 10s | !b:1 c:1P",
	},
	"the deaf is believed, and told in case it hears by now": {
		"b listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask - -> refused by a:1, 20s, first, new => a:1=1 20s | b:1-",
		"a:1 release -> done => b:1=1 10s | !b:1 >> b: grant b:1 for 6s",
		"b:1 ask - -> acquired => b:1=1 20s | !b:1",
	},
	"who hears stays one": {
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask - -> refused by a:1, 20s, first, new => a:1=1 20s | b:1-",
		"c:1 ask - -> refused by a:1, 20s, new => a:1=1 20s | b:1- c:1-",
		"b:1 ask P -> refused by a:1, 20s, first => a:1=1 20s | b:1P c:1-",
		"b:1 ask - -> refused by a:1, 20s, first => a:1=1 20s | b:1P c:1-",
		"b:1 ask p -> refused by a:1, 20s, first => a:1=1 20s | b:1p c:1-",
	},
	"one grant lapses after the other": {
		"a listens", "b listens", "c listens", "d listens", "e listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P",
		"d:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P d:1P",
		"x:1 ask - -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P d:1P x:1-",
		"d:2 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P d:1P x:1- d:2P",
		"e:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P d:1P x:1- d:2P e:1P",
		"a:1 release -> done => b:1=1 10s | !b:1 c:1P d:1P x:1- d:2P e:1P >> b: grant b:1 for 6s",
		"- expires",
		"a:2 ask P -> refused by c:1, 10s, new => c:1=1 10s | !c:1 d:1P? x:1- d:2P? e:1P? a:2P >> c: grant c:1 for 400ms; c: wake *; d: wake *; e: wake *",
		"d:2 ask P -> refused by c:1, 10s => c:1=1 10s | !c:1 d:1P? x:1- d:2P e:1P? a:2P", // one answer is enough for all of d
		"- expires",
		"a:2 ask P -> refused by d:1, 10s => d:1=1 10s | !d:1 x:1- d:2P? a:2P >> d: grant d:1 for 400ms; d: wake *; e: wake *", // e has not answered, x cannot hear
		"d:1 ask P -> acquired => d:1=1 20s | !d:1 x:1- d:2P? a:2P",
	},
	"a grant lapses": {
		"a listens", "b listens", "c listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P",
		"b:2 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P b:2P",
		"a:1 release -> done => b:1=1 10s | !b:1 c:1P b:2P >> b: grant b:1 for 6s",
		"- expires",
		"a:2 ask P -> refused by c:1, 10s, first, new => c:1=1 10s | !c:1 a:2P >> b: wake *; c: grant c:1 for 400ms; c: wake *",
	},
	"a grant lapses, and the others of its client ask": {
		"b listens", "c listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P",
		"b:2 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P b:2P",
		"a:1 release -> done => b:1=1 10s | !b:1 c:1P b:2P >> b: grant b:1 for 6s",
		"- expires",
		"b:2 ask P -> refused by c:1, 10s, first => c:1=1 10s | !c:1 b:2P >> c: grant c:1 for 6s",
	},
	"a grant lapses, and nobody asks but a release": {
		"b listens", "c listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"b:2 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P b:2P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P b:2P c:1P",
		"a:1 release -> done => b:1=1 10s | !b:1 b:2P c:1P >> b: grant b:1 for 6s, then b:2",
		"- expires",
		"a:1 release -> lua: not the owner => c:1=1 10s | !c:1 >> b: wake *; c: grant c:1 for 400ms; c: wake *",
	},
	"a grant lapses, and a stranger takes the lock": {
		"b listens", "c listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P",
		"a:1 release -> done => b:1=1 10s | !b:1 c:1P >> b: grant b:1 for 6s",
		"uuid:7 takes => uuid:7=1 20s | !b:1 c:1P",
		"d:1 ask P -> refused by uuid:7, 20s, new => uuid:7=1 20s | !b:1 c:1P d:1P",
		"c:1 release c:1 -> lua: not the owner => uuid:7=1 20s | !b:1 d:1P",
	},
	"strangers listen": {
		"redisson listens", "b listens", "c listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P",
		"a:1 release -> done => | b:1P c:1P >> b: wake b:1; redisson: -0",
		"b:1 ask P -> acquired => b:1=1 20s | c:1P",
		"b:1 release -> done => | c:1P >> c: wake c:1; redisson: -0",
		"c:1 ask P -> acquired => c:1=1 20s |",
		"c:1 release -> done => | >> redisson: -0",
	},
	"strangers listen, and the next is of the client that releases": {
		"redisson listens", "a listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"a:2 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | a:2P",
		"a:1 release -> done, wake a:2 => | a:2P >> redisson: -0",
		"a:1 release -> lua: not the owner => | a:2P >> a: wake a:2; redisson: -0",
	},
	"strangers listen, and the first are dead": {
		"redisson listens", "c listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"b:2 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P b:2P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P b:2P c:1P",
		"a:1 release -> done => | c:1P >> c: wake c:1; redisson: -0",
	},
	"strangers listen, and all are dead": {
		"redisson listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"a:1 release -> done => | >> redisson: -0",
	},
	"strangers listen, and whoever was told to ask is dead": {
		"redisson listens", "b listens", "c listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P",
		"a:1 release -> done => | b:1P c:1P >> b: wake b:1; redisson: -0",
		"b deaf",
		"c:1 ask P -> acquired => c:1=1 20s |",
	},
	"behind a stranger": {
		"b listens", "c listens", "d listens",
		"uuid:7 takes",
		"b:1 ask P -> refused by uuid:7, 20s, first, new => uuid:7=1 20s | b:1P",
		"c:1 ask P -> refused by uuid:7, 20s, new => uuid:7=1 20s | b:1P c:1P",
		"d:1 ask P -> refused by uuid:7, 20s, new => uuid:7=1 20s | b:1P c:1P d:1P",
		"b:1 ask P -> refused by uuid:7, 20s, first => uuid:7=1 20s | b:1P c:1P d:1P >> c: wake c:1", // two watch it
		"c:1 ask P -> refused by uuid:7, 20s => uuid:7=1 20s | b:1P c:1P d:1P",
		"c:1 release c:1 -> lua: not the owner => uuid:7=1 20s | b:1P d:1P",
		"b:1 release b:1 -> lua: not the owner => uuid:7=1 20s | d:1P >> d: wake d:1", // now it is the first
	},
	"withdrawing": {
		"b listens", "c listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P",
		"b:1 release b:1 -> lua: not the owner => a:1=1 20s | c:1P",
		"b:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | c:1P b:1P",
		"a:1 release -> done => c:1=1 10s | !c:1 b:1P >> c: grant c:1 for 6s",
		"c:1 release c:1 -> done => b:1=1 10s | !b:1 >> b: grant b:1 for 6s", // it has left before it heard
		"b:1 release b:1 -> done => |",
	},
	"the holder has died": {
		"b listens", "c listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P",
		"- expires",
		"d:1 ask P -> refused by b:1, 10s, new => b:1=1 10s | !b:1 c:1P d:1P >> b: grant b:1 for 6s",
		"- expires",
		"d:1 release d:1 -> lua: not the owner => c:1=1 10s | !c:1 >> c: grant c:1 for 400ms; c: wake *",
	},
	"those before are dead": {
		"c listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P",
		"- expires",
		"c:1 ask P -> acquired => c:1=1 20s |", // in the answer, not by a message
	},
	"those before are dead, and so would be whoever asks": {
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"b:2 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P b:2P",
		"- expires",
		"b:2 ask P -> acquired => b:2=1 20s |",
	},
	"without a ticket": {
		"b listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"- expires",
		"c:1 ask -> refused by b:1, 10s => b:1=1 10s | !b:1 >> b: grant b:1 for 6s",
		"b:1 release -> done => |",
		"c:1 ask -> acquired => c:1=1 20s |",
		"b:2 ask P -> refused by c:1, 20s, first, new => c:1=1 20s | b:2P",
		"b deaf", "- expires",
		"d:1 ask -> acquired => d:1=1 20s |", // all that wait are dead
	},
	"without a ticket any more": {
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"- expires",
		"b:1 ask -> acquired => b:1=1 20s |",
	},
	"past the queue": {
		"b listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"c:1 try -> refused by a:1, 20s => a:1=1 20s | b:1P",
		"- expires",
		"c:1 try -> acquired => c:1=1 20s | b:1P",
		"c:1 release -> done => b:1=1 10s | !b:1 >> b: grant b:1 for 6s",
	},
	"by force": {
		"b listens", "c listens",
		"a:1 force -> was held: false => |",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P",
		"b:2 ask P -> refused by a:1, 20s, new => a:1=1 20s | b:1P c:1P b:2P",
		"d:1 force -> was held: true => b:1=1 10s | !b:1 c:1P b:2P >> b: grant b:1 for 6s",
		"d:1 force -> was held: true => c:1=1 10s | !c:1 b:2P >> c: grant c:1 for 6s",
		"c:1 release -> done => b:2=1 10s | !b:2 >> b: grant b:2 for 6s",
		"d:1 force -> was held: true => |",
	},
}

func TestCourses(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(string) lua.Grant{"plain": grant, "fenced": fenced, "fair": fair, "{lock}": named("{lock}"), "{lock}::": named("{lock}::")}
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		if strings.HasSuffix(t.Name(), "embedded") {
			redistest.Long(t, "8 s of computing")
		}
		for kind, lock := range kinds {
			if testing.Short() && (kind == "plain" || kind == "{lock}::") {
				continue // the others are these with tokens, or with fewer braces
			}
			for name, course := range courses {
				for _, again := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, %s, again %t", kind, name, again), func(t *testing.T) {
						newWaiters(t, rdb, lock).follow(rdb, again, course...)
					})
				}
				t.Run(fmt.Sprintf("%s, %s, in company", kind, name), func(t *testing.T) {
					newWaiters(t, rdb, lock).follow(company{rdb}, false, course...)
				})
			}
		}
	})
}

// The same by sharded channels, whose receivers are counted as well.
func TestCoursesByShardedChannels(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	node := redistest.StartCluster(t, 1, 0).Nodes[0]
	rdb := node.Client(t)
	sharded := func(owner string) lua.Grant {
		g := fenced(owner)
		g.ChannelKind = lua.Sharded
		return g
	}
	for name, course := range courses {
		t.Run(name, func(t *testing.T) {
			var sharper []string
			for _, step := range course {
				sharper = append(sharper, strings.NewReplacer("P", "S").Replace(step))
			}
			newWaiters(t, rdb, sharded).follow(rdb, true, sharper...)
		})
	}
}

// A score holds the place, the claim and how its owner hears; places grow by one, and
// none is given twice while the queue is there.
func TestScores(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		put(t, rdb, "lock", "uuid:7=1 20s")
		for i, tc := range []lua.Ticket{
			{Claim: time.Millisecond, Hears: lua.Counted},
			{Claim: 8 * time.Second, Hears: lua.Deaf},
			{Claim: 7999 * time.Millisecond, Hears: lua.ShardHeard},
			{Claim: 3 * time.Second, Hears: lua.Uncounted},
			{Claim: time.Millisecond, Hears: lua.Counted},
		} {
			owner := own(fmt.Sprint("a:", i))
			for range 2 {
				reply, err := lua.Ask(t.Context(), rdb, grant(owner), time.Minute, tc, 0)
				require.NoError(t, err)
				require.InDelta(t, serverMicros(t, rdb), reply.Place.Time, 5e6)
				score := int64(rdb.ZScore(t.Context(), lua.QueueOf("lock"), owner).Val())
				require.EqualValues(t, tc.Hears, score%4)
				require.Equal(t, tc.Claim, time.Duration(score/4%8192)*time.Millisecond)
				require.EqualValues(t, i+1, score/32768)
			}
		}
		// Far behind: places up to 2^38 are exact.
		far := int64(1<<38 - 3)
		require.NoError(t, rdb.ZAdd(t.Context(), lua.QueueOf("lock"), redis.Z{Score: float64(far*32768 + 4*7 + 1), Member: own("b:1")}).Err())
		for i := range 2 {
			owner := own(fmt.Sprint("c:", i))
			for range 2 {
				reply, err := lua.Ask(t.Context(), rdb, grant(owner), time.Minute, lua.Ticket{Claim: time.Hour, Hears: lua.ShardHeard}, 0)
				require.NoError(t, err)
				require.False(t, reply.Place.First)
				score := rdb.ZScore(t.Context(), lua.QueueOf("lock"), owner).Val()
				require.Less(t, score, math.Exp2(53))
				require.EqualValues(t, (far+int64(i)+1)*32768+8000*4+3, int64(score))
			}
		}
	})
}

// However soon the queue would expire when an owner asks, it is kept for much longer
// than owners let pass between two requests; and so is the record of a grant while
// others wait. That of the last one is of no use when the grant has lapsed.
func TestQueueIsKept(t *testing.T) {
	queue := lua.QueueOf("lock")
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		w := newWaiters(t, rdb, fenced)
		w.follow(rdb, false, "a:1 ask -> acquired", "b:1 ask - -> refused by a:1, 20s, first, new")
		for _, age := range []func() error{
			func() error { return nil },
			func() error { return rdb.Persist(t.Context(), queue).Err() },
			func() error { return rdb.PExpire(t.Context(), queue, time.Second).Err() },
			func() error { return rdb.PExpire(t.Context(), queue, 29*time.Second).Err() },
		} {
			require.NoError(t, age())
			w.follow(rdb, false, "b:1 ask - -> refused by a:1, 20s, first => a:1=1 20s | b:1-")
			require.Greater(t, rdb.PTTL(t.Context(), queue).Val(), 29*time.Second)
			require.LessOrEqual(t, rdb.PTTL(t.Context(), queue).Val(), time.Minute)
		}
		w.follow(rdb, false, "c:1 ask - -> refused by a:1, 20s, new => a:1=1 20s | b:1- c:1-")
		require.NoError(t, rdb.PExpire(t.Context(), queue, time.Second).Err())
		w.follow(rdb, false, "a:1 release -> done => b:1=1 10s | !b:1 c:1-")
		require.Greater(t, rdb.PTTL(t.Context(), queue).Val(), 29*time.Second)
		w.follow(rdb, false, "b:1 release -> done => c:1=1 10s | !c:1")
		require.LessOrEqual(t, rdb.PTTL(t.Context(), queue).Val(), 10*time.Second)
		require.Greater(t, rdb.PTTL(t.Context(), queue).Val(), 5*time.Second)
		w.follow(rdb, false, "d:1 ask - -> refused by c:1, 10s, first, new => c:1=1 10s | !c:1 d:1-")
		require.Greater(t, rdb.PTTL(t.Context(), queue).Val(), 29*time.Second)
	})
}

// Many of the same client follow: the message does not grow without end.
func TestManyFollow(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		w := newWaiters(t, rdb, fenced)
		w.hear("b")
		w.do(rdb, "a:1 ask")
		for i := range 100 {
			w.do(rdb, fmt.Sprintf("b:%d ask P", i))
		}
		w.do(rdb, "a:1 release")
		m := lua.ReadMessage(w.heard["b"]()[0])
		require.Equal(t, own("b:0"), m.Owner)
		require.Len(t, m.Next, 64)
		require.Equal(t, own("b:64"), m.Next[63])
	})
}

// A queue is served without its lock: tickets are taken out, and the first that can
// hear is told to ask and keeps its place. Nothing is granted.
func TestServeApart(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	of := func(owner string) lua.Grant { return lua.Grant{Key: "lock", Queue: lua.QueueOf("lock"), Owner: owner} }
	_, err := lua.Acquire(ctx, rdb, of("a:1"), time.Minute, 0)
	require.NoError(t, err)
	for _, owner := range []string{"b:1", "dead:1", "c:1", "d:1"} {
		_, err := lua.Ask(ctx, rdb, of(owner), time.Minute, lua.Ticket{Claim: time.Second, Hears: lua.Counted}, 0)
		require.NoError(t, err)
	}
	sub := rdb.Subscribe(ctx, lua.GrantChannel("lock", "c"), lua.GrantChannel("lock", "b"))
	defer func() { require.NoError(t, sub.Close()) }()
	for range 2 {
		_, err = sub.Receive(ctx)
		require.NoError(t, err)
	}

	require.NoError(t, lua.ServeApart(ctx, rdb, of(""), []string{"b:1", "x:1"}, false))
	require.Equal(t, []string{"dead:1", "c:1", "d:1"}, tickets(t, rdb))
	require.NoError(t, lua.ServeApart(ctx, rdb, of(""), nil, true))
	require.Equal(t, []string{"c:1", "d:1"}, tickets(t, rdb), "nobody hears what is for the first")
	msg, err := sub.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, "c:1", msg.Payload)
	require.Equal(t, map[string]string{"a:1": "1"}, rdb.HGetAll(ctx, "lock").Val())

	require.NoError(t, lua.ServeApart(ctx, rdb, of(""), []string{"c:1", "d:1"}, true))
	require.Empty(t, rdb.Exists(ctx, of("").Queue).Val())
	require.NoError(t, lua.ServeApart(ctx, rdb, of(""), []string{"c:1"}, true), "there is no queue")
}

func tickets(t *testing.T, rdb *redis.Client) []string {
	all, err := rdb.ZRange(t.Context(), lua.QueueOf("lock"), 0, -1).Result()
	require.NoError(t, err)
	return all
}

func TestReadMessage(t *testing.T) {
	for payload, want := range map[string]lua.Message{
		"":                                 {},
		"a:1":                              {Owner: "a:1"},
		"*":                                {Owner: lua.Everybody},
		"a:1 5 6000 7 8":                   {Owner: "a:1", Granted: true, Time: 5, Claim: 6 * time.Second, Token: 7, Spare: 8, Next: []string{}},
		"a:1 5 1 0 0 a:2 a:3":              {Owner: "a:1", Granted: true, Time: 5, Claim: time.Millisecond, Next: []string{"a:2", "a:3"}},
		"a:1 5 6000 9223372036854775807 0": {Owner: "a:1", Granted: true, Time: 5, Claim: 6 * time.Second, Token: math.MaxInt64, Next: []string{}},
		// No grants.
		"a:1 5 6000 7":                     {Owner: "a:1"},
		"a:1 5 6000 7 x":                   {Owner: "a:1"},
		"a:1 5 6000  8":                    {Owner: "a:1"},
		"a:1 5.5 6000 7 8":                 {Owner: "a:1"},
		"a:1 5 6000 9223372036854775808 0": {Owner: "a:1"},
		"a:1 5 -1 7 8":                     {Owner: "a:1"},
		"a:1 5 0 7 8":                      {Owner: "a:1"},
		"a:1 -5 6000 7 8":                  {Owner: "a:1"},
		"a:1 5 6000 -7 8":                  {Owner: "a:1"},
		"a:1 5 6000 7 -8":                  {Owner: "a:1"},
		"a:1 5 9223372036854775807 7 8":    {Owner: "a:1"},
		"a:1 5 6000 9223372036854775807 1": {Owner: "a:1"},
		" 5 6000 7 8":                      {},
		"* 5 6000 7 8":                     {Owner: "*"},
	} {
		t.Run(payload, func(t *testing.T) {
			require.Equal(t, want, lua.ReadMessage(payload))
		})
	}
}

// FuzzReadMessage: whatever is heard, a grant is of the form of one, and its numbers
// can be counted with.
func FuzzReadMessage(f *testing.F) {
	for _, seed := range []string{
		"", " ", "*", "a:1", "a:1 5 6000 7 8", "a:1 5 6000 7 8 a:2 a:3", "a:1 5 -1 7 8", "a:1 +5 +6 +7 +8",
		"a:1 5 6000 9223372036854775807 9223372036854775807", "a:1 0 99999999999999999999 0 0", "* 1 2 3 4", "a:1 1 2 3 4 ",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		m := lua.ReadMessage(payload)
		if !strings.HasPrefix(payload, m.Owner) || strings.Contains(m.Owner, " ") {
			t.Errorf("%q: %+v", payload, m)
		}
		if !m.Granted {
			if fmt.Sprint(m) != fmt.Sprint(lua.Message{Owner: m.Owner}) {
				t.Errorf("%q: no grant, but %+v", payload, m)
			}
			return
		}
		words := strings.Split(payload, " ")
		if len(words) != 5+len(m.Next) || m.Owner == "" || m.Owner == lua.Everybody {
			t.Errorf("%q: %+v", payload, m)
		}
		if m.Time < 0 || m.Claim <= 0 || m.Token < 0 || m.Spare < 0 || m.Token+m.Spare < m.Token {
			t.Errorf("%q: %+v", payload, m)
		}
	})
}
