package pubsub_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/pubsub"
)

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
