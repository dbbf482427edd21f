package request

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// A request is given up when nobody was answered for as long as Total, not earlier.
func TestFakeTimeTotalCountsFromTheNewestAnswer(t *testing.T) {
	const total = 5 * time.Second
	for name, others := range map[string]time.Duration{"nobody": 0, "somebody": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				start := time.Now()
				p := Policy{Attempt: time.Second, Total: total, Classify: Classify, Report: func(error) time.Time {
					if time.Since(start) < others {
						return time.Now()
					}
					return start.Add(others)
				}}
				a := Do(t.Context(), p, func(context.Context, Options, func(int, error)) (int, bool, error) {
					return 0, false, ErrNoAnswer
				}, nil)
				require.Equal(t, Exhausted, a.End)
				require.True(t, a.Doubt)
				require.True(t, a.Lost)
				require.InDelta(t, others+total, time.Since(start), float64(time.Second))
			})
		})
	}
}

// Questions who the masters are may hang on the node that is gone, for as long as go-redis
// tries to reach it. Others are asked all the same, so that its successor is found.
func TestFakeTimeQuestionsThatHang(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var master atomic.Int32 // the last number of its address
		master.Store(1)
		node := miniredis.NewMiniRedis()
		back := make(chan struct{}) // closed when the node that is gone comes back
		rdb := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{"10.0.0.2:1"}, DialTimeout: time.Minute, PoolSize: 1000, DisableRoutingPolicies: true,
			Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
				if addr == "10.0.0.1:1" {
					select {
					case <-back:
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				return node.Dial()
			},
		})
		require.NoError(t, startWith(node, func(c *server.Peer, cmd string, _ ...string) bool {
			if cmd != "CLUSTER" {
				return false
			}
			first := int(master.Load())
			c.WriteLen(1)
			c.WriteLen(8)
			c.WriteInt(0)
			c.WriteInt(16383)
			for i := range 6 {
				c.WriteLen(3)
				c.WriteBulk("10.0.0." + strconv.Itoa((first-1+i)%6+1))
				c.WriteInt(1)
				c.WriteBulk("id" + strconv.Itoa(i))
			}
			return true
		}))
		var questions sync.WaitGroup
		r := Reloads{Background: questions.Go}
		ask := func(d time.Duration) {
			for range int(d / reloadPause) {
				r.Reload(rdb)
				time.Sleep(reloadPause)
			}
		}
		ask(time.Minute)
		master.Store(2)
		ask(10 * time.Second)
		successor, err := rdb.MasterForKey(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, "10.0.0.2:1", successor.Options().Addr)
		r.mu.Lock()
		require.Less(t, r.open, 100)
		r.mu.Unlock()
		close(back)
		questions.Wait()
		require.NoError(t, rdb.Close())
		node.Close()
	})
}

// startWith starts a server, with a hook before each command.
func startWith(node *miniredis.Miniredis, hook server.Hook) error {
	c, err := node.Dial()
	if err != nil {
		return err
	}
	node.Server().SetPreHook(hook)
	return c.Close()
}

type witnessKey struct{}

// What a hook of the client has seen stays as it was, for as long as the hook keeps it: a
// batch is not used again for another call.
func TestFakeTimeHookKeepsWhatItSaw(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l := &line{started: make(map[string]bool)}
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
		defer func() { _ = rdb.Close() }()
		var contexts []context.Context
		var commands []redis.Cmder
		rdb.AddHook(redistest.Sees(func(ctx context.Context, cmd redis.Cmder) {
			contexts, commands = append(contexts, ctx), append(commands, cmd)
		}))
		rdb.AddHook(redistest.Answers(l.serve))
		g := groupOn(rdb)
		for i, takes := range []time.Duration{time.Millisecond, fastAnswer, time.Millisecond, time.Millisecond} {
			l.take(takes, 0)
			require.NoError(t, ask(context.WithValue(t.Context(), witnessKey{}, i), g, "good"))
			idle(t, g)
			require.Equal(t, takes, g.pace.took, "measured from when it was sent itself")
			time.Sleep(time.Minute)
		}
		for i, ctx := range contexts {
			require.Equal(t, i, ctx.Value(witnessKey{}), "that of its own caller")
			_, deadline := ctx.Deadline()
			require.Equal(t, i == 1 || i == 3, deadline, "in the goroutine of its caller, after a fast answer")
			require.Equal(t, "good", commands[i].Name())
		}
	})
}

// A client that reads from replicas has connections on which a replica would execute a
// script. They are not, while a pipeline lasts.
func TestFakeTimeGuard(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, func(o *redis.ClusterOptions) { o.ReadOnly = true })
		require.NoError(t, f.ask(t.Context(), "b", "first"))
		require.NoError(t, f.ask(t.Context(), "b", "second"))
		l := f.line("10.0.0.1:1")
		require.True(t, l.asked("readwrite"))
		require.True(t, l.asked("readonly"))
		sizes := f.sizes("10.0.0.1:1")
		require.Equal(t, 3, sizes[len(sizes)-1], "one command, in between")
	})
}

// The time of a pipeline is that of its first command: how long the wait for a connection was says
// nothing about the server. Only one command notes it.
func TestFakeTimePipelineNotesWhenItIsSent(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, 0)
		n := note{since: time.Now()}
		m := &marking{UniversalClient: g.Client, note: &n}
		pipe := m.Pipeline()
		first, second := redis.NewCmd(t.Context(), "one"), redis.NewCmd(t.Context(), "bad")
		require.NoError(t, errors.Join(pipe.Process(t.Context(), first), pipe.Process(t.Context(), second)))
		require.False(t, n.sent())
		require.Zero(t, n.took())
		l.take(3*time.Second, time.Second) // first for a connection
		_, _ = pipe.Exec(t.Context())
		require.True(t, n.sent())
		require.Equal(t, 3*time.Second, n.took())
		require.Same(t, first, n.Cmder)
		require.NoError(t, first.Err())
		require.ErrorIs(t, second.Err(), errBad, "each command has its own error")
	})
}
