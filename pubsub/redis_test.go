package pubsub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/pubsub"
)

// Otherwise a goroutine of the hub would panic, at the first subscription.
func TestRedisRefusesARing(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer func() { require.NoError(t, ring.Close()) }()
	assert.PanicsWithValue(t,
		"pubsub: Redis cannot use a redis.Ring, whose shards do not pass messages on to each other: use a Client or a ClusterClient",
		func() { pubsub.Redis(ring, "probe") })
}

func TestRedisPublishWakesAll(t *testing.T) {
	s := redistest.Start(t)
	protocols(t, func(t *testing.T, edit func(*redis.Options)) {
		rdb := s.Client(t, edit)
		h := hub(t, rdb, pubsub.Options{})
		var waiters []*waiter
		for range 5 {
			w := newWaiter(h, "a")
			live(t, w)
			waiters = append(waiters, w)
		}
		require.EqualValues(t, 1, rdb.Publish(t.Context(), "a", "0").Val())
		for _, w := range waiters {
			wake(t, w)
			w.Leave()
		}
		w := newWaiter(h, "a")
		assert.True(t, w.Live(), "the channel lingers")
	})
}

func TestRedisUnsubscribes(t *testing.T) {
	s := redistest.Start(t)
	protocols(t, func(t *testing.T, edit func(*redis.Options)) {
		rdb := s.Client(t, edit)
		h := hub(t, rdb, pubsub.Options{}.Lingering(-1))
		w := newWaiter(h, "a")
		live(t, w)
		w.Leave()
		redistest.Eventually(t, "a is unsubscribed", func() bool {
			return rdb.PubSubNumSub(t.Context(), "a").Val()["a"] == 0
		})
		live(t, newWaiter(h, "a"))
		assert.EqualValues(t, 1, rdb.PubSubNumSub(t.Context(), "a").Val()["a"])
	})
}

func TestRedisKilledConnection(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	h := hub(t, rdb, pubsub.Options{})
	waiters := []*waiter{newWaiter(h, "a"), newWaiter(h, "a"), newWaiter(h, "b")}
	for _, w := range waiters {
		live(t, w)
	}
	for i := range 200 {
		require.EqualValues(t, 1, rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Val(), "round %d", i)
		for _, w := range waiters {
			live(t, w)
		}
		for _, w := range waiters {
			assert.True(t, w.Live(), "round %d", i)
		}
	}
}

// A waiter must learn that its connection is lost before another is made.
func TestRedisLossIsReportedBeforeADialEnds(t *testing.T) {
	s := redistest.Start(t)
	var d dialler
	h := hub(t, s.Client(t, func(o *redis.Options) { o.Dialer = d.dial }), pubsub.Options{})
	w := newWaiter(h, "a")
	live(t, w)
	d.hang.Store(true)
	require.EqualValues(t, 1, s.Client(t).ClientKillByFilter(t.Context(), "TYPE", "pubsub").Val())
	wake(t, w)
	assert.False(t, w.Live())

	start := time.Now()
	newWaiter(h, "b").Leave()
	require.NoError(t, h.Close(t.Context()))
	assert.Less(t, time.Since(start), 4*time.Second, "nobody waits for a dial")
}

func TestRedisRefusedSubscription(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	protocols(t, func(t *testing.T, edit func(*redis.Options)) {
		require.NoError(t, admin.ACLSetUser(t.Context(), "u", "reset", "on", "nopass", "+@all", "allkeys").Err())
		var d dialler
		var log lockedBuffer
		rdb := s.Client(t, edit, func(o *redis.Options) { o.Username, o.Password, o.Dialer = "u", "x", d.dial })
		const interval = 100 * time.Millisecond
		h := hub(t, rdb, pubsub.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}.Probing(interval))
		for _, channel := range []string{"a", "b"} {
			w := newWaiter(h, channel)
			wake(t, w)
			assert.False(t, w.Live())
		}
		pings := s.CommandCalls(t)["ping"]
		redistest.Eventually(t, "PING keeps the connection alive", func() bool {
			return s.CommandCalls(t)["ping"] > pings+3
		})
		assert.EqualValues(t, 1, d.dials.Load())
		assert.Equal(t, 1, strings.Count(log.String(), "\n"), "%s", log.String())
		assert.Contains(t, log.String(), "NOPERM")
	})
}

func TestRedisProbeUnderACL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	for _, denied := range []string{"-publish", "-ping", "-publish -ping", "resetchannels &a"} {
		t.Run(denied, func(t *testing.T) {
			rules := append([]string{"reset", "on", "nopass", "+@all", "allkeys", "allchannels"}, strings.Fields(denied)...)
			require.NoError(t, admin.ACLSetUser(t.Context(), "u", rules...).Err())
			require.NoError(t, admin.ConfigResetStat(t.Context()).Err())
			var d dialler
			rdb := s.Client(t, func(o *redis.Options) { o.Username, o.Password, o.Dialer = "u", "x", d.dial })
			h := hub(t, rdb, pubsub.Options{}.Probing(200*time.Millisecond))
			w := newWaiter(h, "a")
			live(t, w)
			id := s.Clients(t, "pubsub")[0]["id"]
			start := time.Now()
			redistest.Eventually(t, "5 probe intervals", func() bool { return time.Since(start) > time.Second })
			if strings.Contains(denied, "-publish") {
				redistest.Eventually(t, "probes that are a PING only, as one follows each that is refused", func() bool {
					_, published := calls(t, admin, "publish")
					pings, refused := calls(t, admin, "ping")
					return pings+refused > published+2
				})
			}
			require.Len(t, s.Clients(t, "pubsub"), 1)
			assert.Equal(t, id, s.Clients(t, "pubsub")[0]["id"], "no reconnection")
			assert.True(t, w.Live())
			_, refused := calls(t, admin, "publish")
			assert.LessOrEqual(t, refused, 3, "the first, and two that were under way by then")
		})
	}
}

// calls counts how often the server has executed a command, and refused it, for anybody.
func calls(t *testing.T, admin *redis.Client, command string) (executed, refused int) {
	t.Helper()
	info, err := admin.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for line := range strings.Lines(info) {
		_, rest, ok := strings.Cut(line, "cmdstat_"+command+":")
		if !ok {
			continue
		}
		_, err := fmt.Sscanf(rest, "calls=%d", &executed)
		require.NoError(t, err)
		_, rest, _ = strings.Cut(rest, "rejected_calls=")
		_, err = fmt.Sscanf(rest, "%d", &refused)
		require.NoError(t, err)
	}
	return executed, refused
}

func TestRedisStoppedServerIsNoticed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, func(o *redis.Options) { o.ReadTimeout = 500 * time.Millisecond })
	h := hub(t, rdb, pubsub.Options{}.Probing(200*time.Millisecond))
	w := newWaiter(h, "a")
	live(t, w)
	s.Stop()
	wake(t, w)
	assert.False(t, w.Live())
	s.Cont()
	live(t, w)
}

func TestRedisRestartedServer(t *testing.T) {
	s := redistest.Start(t)
	h := hub(t, s.Client(t), pubsub.Options{})
	w := newWaiter(h, "a")
	live(t, w)
	s.Kill()
	wake(t, w)
	assert.False(t, w.Live())
	s.Restart()
	live(t, w)
}

// A connection to a former master looks sound: it answers PING.
func TestRedisIsolatedMasterIsLeft(t *testing.T) {
	former, current := redistest.Start(t), redistest.Start(t)
	var d dialler
	d.addr.Store(former.Addr())
	h := hub(t, former.Client(t, func(o *redis.Options) { o.Dialer = d.dial }),
		pubsub.Options{}.Probing(100*time.Millisecond))
	w := newWaiter(h, "a")
	live(t, w)
	d.addr.Store(current.Addr()) // no command was sent yet: the first probe is
	live(t, w)
	assert.EqualValues(t, 1, current.Client(t).PubSubNumSub(t.Context(), "a").Val()["a"])
	redistest.Eventually(t, "the former master is left", func() bool {
		return len(former.Clients(t, "pubsub")) == 0
	})
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--cluster-enabled", "yes")
	admin := s.Client(t)
	require.NoError(t, admin.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	redistest.Eventually(t, "the cluster serves", func() bool {
		return strings.Contains(admin.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	h := hub(t, rdb, pubsub.Options{}.Probing(100*time.Millisecond))
	first, second := newWaiter(h, "a"), newWaiter(h, "b") // of different slots
	live(t, first)
	live(t, second)
	assert.Len(t, s.Clients(t, "pubsub"), 1)
	published := s.CommandCalls(t)["publish"]
	redistest.Eventually(t, "probes are published", func() bool {
		return s.CommandCalls(t)["publish"] > published+5
	})
	assert.False(t, awake(first), "and come back")
	for range 20 {
		require.EqualValues(t, 1, admin.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Val())
		live(t, first)
		live(t, second)
	}
	require.NoError(t, rdb.Publish(t.Context(), "b", "0").Err())
	wake(t, second)
	assert.False(t, awake(first))
}

// A client that waits has a connection for messages, and another for requests and probes. The probes are
// sent one after the other: a hub may send another one while a slow server has not answered, and two at
// once need two connections.
func TestRedisProbeUsesAnIdleConnection(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	before := s.Clients(t, "normal")
	source, err := pubsub.Redis(rdb, "probe").Open(t.Context(), "", "")
	require.NoError(t, err)
	events := make(chan pubsub.Event)
	go func() { // ends with the source
		defer close(events)
		for {
			e, err := source.Receive()
			if err != nil {
				return
			}
			events <- e
		}
	}()
	<-events // the probe channel is subscribed to
	for range 5 {
		sent, err := source.Probe(t.Context())
		require.NoError(t, err)
		require.True(t, sent, "it is published")
		<-events
	}
	assert.Len(t, s.Clients(t, "normal"), len(before))
	assert.Len(t, s.Clients(t, "pubsub"), 1)
	require.NoError(t, source.Close())
	<-events
}

// The probe must not stand in a queue with the application's commands.
func TestRedisProbeWithAnExhaustedPool(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, func(o *redis.Options) { o.PoolSize = 1 })
	h := hub(t, rdb, pubsub.Options{}.Probing(100*time.Millisecond))
	w := newWaiter(h, "a")
	live(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { rdb.BLPop(ctx, 0, "never") })
	published := s.CommandCalls(t)["publish"]
	redistest.Eventually(t, "probes are published", func() bool {
		return s.CommandCalls(t)["publish"] > published+5
	})
	assert.True(t, w.Live())
	assert.False(t, awake(w), "no reconnection")
	cancel()
	require.NoError(t, s.Client(t).RPush(t.Context(), "never", "x").Err())
	wg.Wait()
}

func TestRedisManyChannelsShareAConnection(t *testing.T) {
	const n = 2000
	s := redistest.Start(t)
	h := hub(t, s.Client(t), pubsub.Options{}.Lingering(10*time.Millisecond).Idling(10*time.Millisecond))
	assert.Empty(t, s.Clients(t, "pubsub"), "nothing before the first waiter")
	var waiters []*waiter
	for i := range n {
		waiters = append(waiters, newWaiter(h, fmt.Sprint("channel ", i)))
	}
	for _, w := range waiters {
		live(t, w)
	}
	clients := s.Clients(t, "pubsub")
	require.Len(t, clients, 1)
	assert.Equal(t, fmt.Sprint(n+1), clients[0]["sub"], "all of them, and the probe")
	for _, w := range waiters {
		w.Leave()
	}
	redistest.Eventually(t, "an idle hub has no connection", func() bool {
		return len(s.Clients(t, "pubsub")) == 0
	})
}

func TestRedisManyJoinAndLeave(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t)
	h := hub(t, rdb, pubsub.Options{}.Lingering(time.Microsecond))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				channel := fmt.Sprint(rand.IntN(3))
				w := newWaiter(h, channel)
				for <-w.C(); !w.Live(); {
					<-w.C()
				}
				if rdb.Publish(t.Context(), channel, "1").Val() != 1 {
					t.Errorf("live on %s without a subscription", channel)
				}
				w.Leave()
			}
		})
	}
	wg.Wait()
	redistest.Eventually(t, "only the probe is subscribed", func() bool {
		return len(rdb.PubSubChannels(t.Context(), "*").Val()) == 1
	})
}

func TestMiniredisInABubble(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		rdb := redis.NewClient(&redis.Options{
			Addr:   "127.0.0.1:1", // go-redis looks a name up, and a resolver has no place in a bubble
			Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		})
		h := pubsub.NewHub(pubsub.Redis(rdb, "probe"), pubsub.Options{})
		w := newWaiter(h, "a")
		live(t, w)
		time.Sleep(time.Minute)
		assert.True(t, w.Live())
		assert.False(t, awake(w), "probes came back")
		m.Publish("a", "0")
		wake(t, w)
		w.Leave()
		time.Sleep(time.Minute)
		assert.Empty(t, m.PubSubChannels("*"))
		require.NoError(t, h.Close(t.Context()))
		require.NoError(t, rdb.Close())
		m.Close()
	})
}

// lockedBuffer takes the log of a hub, which writes from several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A former master lives on, with all connections to it, and the name leads to another one.
// Nothing is killed: the probe finds out by itself, whatever the user may publish.
func TestRedisFormerMasterLivesOnAsReplica(t *testing.T) {
	t.Parallel()
	redistest.Since7(t, "a script that says that it writes")
	for name, rules := range map[string]string{
		"all rights":       "",
		"no PUBLISH":       "-publish",
		"no probe channel": "resetchannels &a",
		"neither":          "-publish resetchannels &a",
		"no NUMSUB":        "resetchannels &a -pubsub",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			protocols(t, func(t *testing.T, edit func(*redis.Options)) {
				old, next := redistest.Start(t), redistest.Start(t)
				for _, s := range []*redistest.Server{old, next} {
					require.NoError(t, s.Client(t).ACLSetUser(t.Context(), "u",
						append([]string{"reset", "on", "nopass", "+@all", "allkeys", "allchannels"}, strings.Fields(rules)...)...).Err())
				}
				var d dialler
				rdb := old.Client(t, edit, func(o *redis.Options) { o.Username, o.Password, o.Dialer = "u", "x", d.dial })
				h := hub(t, rdb, pubsub.Options{}.Probing(200*time.Millisecond))
				w := newWaiter(h, "a")
				live(t, w)
				probes := func() int64 { return old.CommandCalls(t)["eval"] }
				redistest.Eventually(t, "a probe", func() bool { return probes() > 0 })

				host, port, err := net.SplitHostPort(next.Addr())
				require.NoError(t, err)
				require.NoError(t, old.Client(t).ReplicaOf(t.Context(), host, port).Err())
				d.addr.Store(next.Addr())
				redistest.Eventually(t, "the new master has the subscription", func() bool {
					return next.Client(t).PubSubNumSub(t.Context(), "a").Val()["a"] == 1
				})
				live(t, w)
			})
		})
	}
}

// The probe is executed by the new master, which has no subscription of a user without the
// channel of probes.
func TestRedisCountsAChannelWithoutProbes(t *testing.T) {
	t.Parallel()
	redistest.Since7(t, "a script that says that it writes")
	for _, rules := range []string{"-publish", "resetchannels &a"} {
		t.Run(rules, func(t *testing.T) {
			t.Parallel()
			old, next := redistest.Start(t), redistest.Start(t)
			for _, s := range []*redistest.Server{old, next} {
				require.NoError(t, s.Client(t).ACLSetUser(t.Context(), "u",
					append([]string{"reset", "on", "nopass", "+@all", "allkeys", "allchannels"}, strings.Fields(rules)...)...).Err())
			}
			var d dialler
			rdb := old.Client(t, func(o *redis.Options) { o.Username, o.Password, o.Dialer = "u", "x", d.dial })
			h := hub(t, rdb, pubsub.Options{}.Probing(100*time.Millisecond))
			w := newWaiter(h, "a")
			live(t, w)
			redistest.Eventually(t, "two probes", func() bool { return old.CommandCalls(t)["eval"] > 1 })
			d.addr.Store(next.Addr())
			require.NoError(t, old.Client(t).ClientKillByFilter(t.Context(), "TYPE", "normal", "USER", "u").Err())
			redistest.Eventually(t, "the new master has the subscription", func() bool {
				return next.Client(t).PubSubNumSub(t.Context(), "a").Val()["a"] == 1
			})
			live(t, w)
		})
	}
}

// A connection that was there when the request was sent is given up, and no younger one.
func TestAbsent(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	h := hub(t, s.Client(t), pubsub.Options{})
	before := time.Now()
	w := newWaiter(h, "a")
	live(t, w)
	h.Absent("a", before)
	h.Absent("b", time.Now())
	assert.True(t, w.Live())
	id := s.Clients(t, "pubsub")[0]["id"]
	h.Absent("a", time.Now())
	redistest.Eventually(t, "another connection", func() bool {
		c := s.Clients(t, "pubsub")
		return len(c) == 1 && c[0]["id"] != id && w.Live()
	})
}

// A connection that refuses deadlines, as those through SSH do, serves a client that sets none.
func TestRedisConnectionWithoutDeadlines(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var d dialler
	rdb := s.Client(t, func(o *redis.Options) {
		o.ReadTimeout, o.WriteTimeout = -2, -2
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d.dial(ctx, network, addr)
			return timeless{c}, err
		}
	})
	h := hub(t, rdb, pubsub.Options{})
	w := newWaiter(h, "a")
	live(t, w)
	require.EqualValues(t, 1, rdb.Publish(t.Context(), "a", "0").Val())
	wake(t, w)
	assert.True(t, w.Live())
}

type timeless struct{ net.Conn }

var errTimeless = errors.New("no deadlines")

func (timeless) SetDeadline(time.Time) error      { return errTimeless }
func (timeless) SetReadDeadline(time.Time) error  { return errTimeless }
func (timeless) SetWriteDeadline(time.Time) error { return errTimeless }

// A server that does not know the script, as before Redis 7, gets a plain PUBLISH.
func TestRedisProbeWithoutScript(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	var asked atomic.Int64
	rdb.AddHook(redistest.Hook{Pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		if cmds[0].Name() != "eval" {
			return next(ctx, cmds)
		}
		asked.Add(1)
		cmds[0].SetErr(unable("ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'"))
		return cmds[0].Err()
	}})
	h := hub(t, rdb, pubsub.Options{}.Probing(100*time.Millisecond))
	live(t, newWaiter(h, "a"))
	redistest.Eventually(t, "five probes", func() bool { return s.CommandCalls(t)["publish"] >= 5 })
	require.EqualValues(t, 1, asked.Load(), "it is not tried again on this connection")
}

type unable string

func (u unable) Error() string { return string(u) }
func (unable) RedisError()     {}

// A server that is busy with somebody's script refuses everything for a while: SUBSCRIBE,
// and the PING of those whose probes it refuses. What was subscribed stays so, and the rest
// is soon when the script has ended. The probe interval is long, as a server that stands
// still for 8 of them loses its connections.
func TestRedisBusyServer(t *testing.T) {
	redistest.Long(t, "servers that compute for seconds")
	t.Parallel()
	s := redistest.Start(t, "--lua-time-limit", "20")
	protocols(t, func(t *testing.T, edit func(*redis.Options)) {
		rdb := s.Client(t, edit, func(o *redis.Options) { o.MaxRetries = -1 })
		h := hub(t, rdb, pubsub.Options{})
		e := listen(h, "a")
		redistest.Eventually(t, "a is subscribed", e.told)
		id := s.Clients(t, "pubsub")[0]["id"]
		other := hub(t, rdb, pubsub.Options{})

		busy := make(chan struct{})
		go func() {
			defer close(busy)
			_ = rdb.Eval(context.Background(), "while true do end", nil).Err()
		}()
		redistest.Eventually(t, "the server is busy", func() bool {
			return redis.HasErrorPrefix(rdb.Publish(t.Context(), "x", "").Err(), "BUSY")
		})
		b, c := newWaiter(h, "b"), newWaiter(other, "c")
		start := time.Now()
		redistest.Eventually(t, "6 probe intervals", func() bool { return time.Since(start) > 3*time.Second })
		assert.False(t, b.Live())
		assert.False(t, c.Live())
		require.NoError(t, rdb.ScriptKill(t.Context()).Err())
		<-busy

		live(t, b)
		live(t, c)
		assert.Equal(t, id, s.Clients(t, "pubsub")[0]["id"], "no reconnection")
		assert.Equal(t, 1, e.total(), "a was never lost")
		before, _ := calls(t, rdb, "publish")
		redistest.Eventually(t, "the probes are published again", func() bool {
			after, _ := calls(t, rdb, "publish")
			return after > before
		})
	})
}
