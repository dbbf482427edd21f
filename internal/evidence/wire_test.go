package evidence

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// 100 goroutines in three processes wait for 11 s. Between their subscription and the
// wake-up the server hears of each process, but for the probes, after about 1, 2, 4 and 8 s.
func TestWaitersAreSilent(t *testing.T) {
	redistest.Long(t, "11 s of silence")
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	mu := newClient(t, rdb, nil).NewLock(name, rlock.WithLeaseTime(time.Hour)) // no renewal within the test
	held, hold, err := mu.Lock(t.Context())
	require.NoError(t, err)
	defer hold.Unlock(held) // if the test fails

	var children []*redistest.Child
	for _, n := range []string{"33", "33", "34"} {
		child := redistest.Spawn(t, "wait", srv.Addr(), n)
		child.Expect("waiting", 10*time.Second)
		children = append(children, child)
	}
	redistest.Eventually(t, "three processes have a ticket, and can hear", func() bool {
		state, err := mu.Inspect(t.Context())
		require.NoError(t, err)
		return state.Waiters == 3 && len(rdb.PubSubChannels(t.Context(), "rlock_channel:{"+name+"}:*").Val()) == 3
	})

	monitor := srv.Monitor(t)
	defer monitor.Stop()
	began := time.Now()
	timer := time.NewTimer(11 * time.Second)
	<-timer.C
	probes, requests, records := 0, 0, 0
	for _, c := range monitor.Commands() {
		switch command := strings.ToLower(c.Args[0]); {
		case c.Client == "lua", command == "hello", command == "client": // in a script; the connection of the first probe
		case command == "eval" && strings.Contains(c.Args[3], "rlock-probe:"), command == "publish" && strings.Contains(c.Args[1], "rlock-probe:"):
			probes++
		case (command == "evalsha" || command == "eval") && strings.HasPrefix(c.Args[3], "rlock_client"): // who waits
			records++
		case command == "evalsha":
			requests++
		default:
			require.Fail(t, "a waiter sent a command", "%v", c.Args)
		}
	}
	waited := time.Since(began)
	require.Positive(t, probes)
	each := 0
	for at := 900 * time.Millisecond; at <= waited+time.Second; at += min(at, 5*time.Second) { // they wait for a little longer than we look
		each++
	}
	require.LessOrEqual(t, requests, len(children)*each)
	scripts := 2 * len(children) // each may be sent in full once
	require.LessOrEqual(t, records, scripts+2*len(children)*(1+int(waited/(10*time.Second))))
	t.Logf("%v, 100 waiting goroutines in 3 processes: %d probes, %d requests, %d about records, and no other command",
		waited.Round(time.Second), probes, requests, records)

	require.NoError(t, hold.Unlock(held))
	for _, child := range children {
		child.Expect("served", 20*time.Second)
	}
}

// 2,000 held locks and 500 waiters in one process.
func TestManyLocksAndWaiters(t *testing.T) {
	redistest.Long(t, "2,000 locks and 500 waiters")
	const locks, waiters = 2000, 500
	srv := redistest.Start(t)
	pools := func(o *redis.Options) { o.ClientName, o.PoolSize, o.PipelinePoolSize = "one", 8, 4 }
	c := newClient(t, srv.Client(t, pools), &rlock.Options{LeaseTime: 3 * time.Second})
	rdb := srv.Client(t)
	other := newClient(t, rdb, nil)

	var mu sync.Mutex
	var holds []*rlock.Hold
	hold := func(c *rlock.Client, key string) {
		_, h, err := c.NewLock(key).Lock(context.Background())
		require.NoError(t, err)
		mu.Lock()
		holds = append(holds, h)
		mu.Unlock()
	}
	hold(c, "first") // starts the watchdog
	base := redistest.Goroutines()
	for i := range locks - 1 {
		hold(c, "held:"+strconv.Itoa(i))
	}
	added := redistest.Goroutines() - base
	t.Logf("goroutines added by %d held locks: %d", locks, added)
	require.LessOrEqual(t, added, 16, "goroutines grow with the number of held locks")

	for i := range 50 {
		hold(other, "wanted:"+strconv.Itoa(i))
	}
	var served sync.WaitGroup
	base = redistest.Goroutines()
	for i := range waiters {
		served.Go(func() {
			err := c.NewLock("wanted:"+strconv.Itoa(i%50)).Do(context.Background(), func(context.Context) error { return nil })
			assert.NoError(t, err)
		})
	}
	redistest.Eventually(t, "50 channels are subscribed", func() bool {
		channels, err := rdb.PubSubChannels(t.Context(), "rlock_channel:{wanted:*").Result()
		require.NoError(t, err)
		return len(channels) == 50
	})
	redistest.Eventually(t, "no request is under way", func() bool {
		added = redistest.Goroutines() - base
		return added-waiters <= 16
	})
	t.Logf("goroutines added by %d waiting ones, beside themselves: %d", waiters, added-waiters)

	// Two renewal periods of all leases, with everything going on.
	renewed := srv.CommandCalls(t)["pexpire"]
	redistest.Eventually(t, "every lease was renewed twice", func() bool {
		return srv.CommandCalls(t)["pexpire"]-renewed > 2*locks
	})
	subscriptions, connections := len(srv.Clients(t, "pubsub")), 0
	for _, conn := range srv.Clients(t, "normal") {
		if conn["name"] == "one" {
			connections++
		}
	}
	t.Logf("connections of the process: %d for subscriptions, %d for commands and pipelines", subscriptions, connections)
	require.Equal(t, 1, subscriptions)
	require.LessOrEqual(t, connections, 8+4)

	for _, h := range holds {
		require.NoError(t, h.Unlock(t.Context()))
	}
	served.Wait()
}
