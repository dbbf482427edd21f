package evidence

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

const seed = 1

// rounds is how many make test-all plays, and a few of them in make test.
func rounds() int {
	if testing.Short() {
		return 200
	}
	return 5000
}

var scripts = netfault.Command("evalsha", "eval")

// A quarter of all scripts lose their reply after they were executed. Every
// nested lock and unlock succeeds all the same, exactly once.
func TestLostReplies(t *testing.T) {
	rounds := rounds()
	srv, proxy, c := lossy(t)
	proxy.CutRandom(0.25, seed, scripts)
	wrong := nest(t, srv, c, rounds)
	proxy.Heal()
	stats := proxy.Stats()
	t.Logf("%d rounds, %d requests, %d replies lost: 0 errors, %d wrong counts", rounds, stats.Requests, stats.RepliesCut, wrong)
	require.Greater(t, stats.RepliesCut, int64(rounds))
	require.Zero(t, wrong)
	require.Zero(t, srv.Client(t).DBSize(t.Context()).Val(), "locks left")
}

// One script in ten gets no answer and is executed later, up to 50 ms, when its
// sender has repeated it and gone on. A late count may falsify the figure that
// is shown; nothing else happens, and what a late grant leaves is cleaned up.
func TestLateRequests(t *testing.T) {
	rounds := rounds()
	srv, proxy, c := lossy(t)
	proxy.LateRandom(0.10, 0, 50*time.Millisecond, seed, scripts)
	wrong := nest(t, srv, c, rounds)
	proxy.Heal()
	stats := proxy.Stats()
	t.Logf("%d rounds, %d requests, %d of them late: 0 errors, %d counts shown wrong for a while", rounds, stats.Requests, stats.Late, wrong)
	require.Greater(t, stats.Late, int64(rounds/4))
	rdb := srv.Client(t)
	redistest.Eventually(t, "no lock is left", func() bool { return rdb.DBSize(t.Context()).Val() == 0 })
}

func lossy(t *testing.T) (*redistest.Server, *netfault.Proxy, *rlock.Client) {
	srv := redistest.Start(t)
	proxy := netfault.New(t, srv.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return srv, proxy, newClient(t, rdb, &rlock.Options{LeaseTime: 20 * time.Second})
}

// givenUp is a little less than what a request waits for its answer before it is repeated.
// If one took so long, because the machine stood still, the first one may be executed after
// the second, as in TestLateRequests.
const givenUp = 200 * time.Millisecond

// nest takes, in each round, one to three nested holds and unlocks them in any
// order. It fails at the first error, and returns how often the count on the
// server differed from that of the live holds, without rounds in which a request may have
// been given up.
func nest(t *testing.T, srv *redistest.Server, c *rlock.Client, rounds int) (wrong int) {
	rdb := srv.Client(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		differed, slow := 0, false
		key := "lossy:" + strconv.Itoa(round)
		mu := c.NewLock(key)
		check := func(want int) {
			got, err := rdb.HVals(t.Context(), key).Result()
			require.NoError(t, err)
			switch {
			case want == 0 && len(got) == 0:
			case want > 0 && len(got) == 1 && got[0] == strconv.Itoa(want):
			default:
				differed++
			}
		}
		ctx := context.Context(t.Context())
		var holds []*rlock.Hold
		for n := range 1 + random.IntN(3) {
			began := time.Now()
			held, hold, err := mu.Lock(ctx)
			require.NoError(t, err)
			slow = slow || time.Since(began) > givenUp
			ctx, holds = held, append(holds, hold)
			check(n + 1)
		}
		random.Shuffle(len(holds), func(i, k int) { holds[i], holds[k] = holds[k], holds[i] })
		for i, hold := range holds {
			began := time.Now()
			require.NoError(t, hold.Unlock(ctx))
			slow = slow || time.Since(began) > givenUp
			check(len(holds) - i - 1)
		}
		if !slow {
			wrong += differed
		}
	}
	return wrong
}
