package rlock

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// line is a server that answers every command after a while, and the line to it.
// It refuses those that are called "bad".
type line struct {
	takes time.Duration

	mu      sync.Mutex // guards what follows
	sizes   []int      // of pipelines; 1 for a command by itself
	started map[string]bool
}

func (l *line) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *line) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		l.serve(cmd)
		return cmd.Err()
	}
}

func (l *line) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		l.serve(cmds...)
		return nil
	}
}

func (l *line) serve(cmds ...redis.Cmder) {
	l.mu.Lock()
	l.sizes = append(l.sizes, len(cmds))
	for _, cmd := range cmds {
		l.started[cmd.Name()] = true
	}
	takes := l.takes
	l.mu.Unlock()
	time.Sleep(takes)
	for _, cmd := range cmds {
		if cmd.Name() == "bad" {
			cmd.SetErr(errBad)
		}
	}
}

var errBad = errors.New("bad")

// asked returns what the server got so far.
func (l *line) asked(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started[name]
}

func newLine(t *testing.T, takes time.Duration) (*line, *commits) {
	l := &line{takes: takes, started: make(map[string]bool)}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	rdb.AddHook(l)
	t.Cleanup(func() { _ = rdb.Close() })
	return l, newCommits(rdb, func(f func()) { go f() })
}

// promptly makes a prompt request.
func promptly(ctx context.Context, c *commits, name string) error {
	return promptlyOrLate(ctx, c, name, nil)
}

func promptlyOrLate(ctx context.Context, c *commits, name string, late func()) error {
	r := c.request(ctx)
	r.late = late
	defer c.put(r)
	return c.Process(r, redis.NewCmd(ctx, name))
}

func TestFakeTimeConcurrentRequestsShareAPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := newLine(t, time.Millisecond)
		start := time.Now()
		var wg sync.WaitGroup
		for range maxSenders + maxBatch + 10 {
			wg.Go(func() { assert.NoError(t, promptly(t.Context(), c, "good")) })
		}
		synctest.Wait()
		wg.Go(func() {
			assert.ErrorIs(t, promptly(t.Context(), c, "bad"), errBad, "its own outcome, and nobody else's")
		})
		wg.Wait()
		require.ElementsMatch(t, append(slices.Repeat([]int{1}, maxSenders), maxBatch, 11), l.sizes)
		require.Equal(t, 2*time.Millisecond, time.Since(start))
		synctest.Wait()
		require.Zero(t, c.senders)
	})
}

// Whoever leaves is not sent if there is time, and otherwise does not wait for the
// answer. The others do not notice.
func TestFakeTimeLeavingAPipeline(t *testing.T) {
	for after, want := range map[time.Duration]error{5 * time.Millisecond: errNotSent, 15 * time.Millisecond: errAbandoned} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, c := newLine(t, 10*time.Millisecond)
				start := time.Now()
				var ended time.Duration
				late := func() { ended = time.Since(start) }
				var wg sync.WaitGroup
				for range maxSenders {
					wg.Go(func() { assert.NoError(t, promptly(t.Context(), c, "first")) })
				}
				synctest.Wait()
				wg.Go(func() {
					assert.NoError(t, promptly(t.Context(), c, "stayer"))
					assert.Equal(t, 20*time.Millisecond, time.Since(start))
				})
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), after)
					defer cancel()
					assert.Equal(t, want, promptlyOrLate(ctx, c, "leaver", late))
					assert.Equal(t, after, time.Since(start))
				})
				wg.Wait()
				synctest.Wait()
				require.Equal(t, want == errAbandoned, l.asked("leaver"))
				require.Equal(t, want == errAbandoned, ended == 20*time.Millisecond, "when its answer came")
			})
		})
	}
}

// A request is made by its caller's goroutine only if the server has just shown
// that it will not take long.
func TestFakeTimePromptAfterASwiftAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := newLine(t, swift-1)
		cmd := func() redis.Cmder { return redis.NewCmd(t.Context(), "good") }
		require.False(t, c.prompt(time.Second), "nothing is known yet")
		require.NoError(t, c.Process(t.Context(), cmd()))
		require.True(t, c.prompt(time.Second))
		require.False(t, c.prompt(patient-1), "a request that must not take that long")
		l.takes = swift
		require.NoError(t, promptly(t.Context(), c, "good"))
		require.False(t, c.prompt(time.Second))
		l.takes = 0
		require.NoError(t, c.Process(t.Context(), cmd()))
		require.True(t, c.prompt(time.Second))
	})
}

func TestNoPromptRequestInACluster(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{})
	defer func() { _ = cluster.Close() }()
	c := newCommits(cluster, nil)
	c.brisk.Store(true)
	require.False(t, c.prompt(time.Second))
}

// What hangs is given up, and those behind it go out past it.
func TestFakeTimeGivingAPipelineUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := newLine(t, time.Minute)
		c.brisk.Store(true)
		start := time.Now()
		var wg sync.WaitGroup
		var ended atomic.Int32
		for range maxSenders {
			wg.Go(func() {
				late := func() {
					assert.Equal(t, time.Minute, time.Since(start))
					ended.Add(1)
				}
				assert.Equal(t, errNoAnswer, promptlyOrLate(t.Context(), c, "first", late))
				assert.Equal(t, patient, time.Since(start))
			})
		}
		synctest.Wait()
		for range 2 {
			wg.Go(func() {
				assert.NoError(t, promptly(t.Context(), c, "second"))
				assert.Equal(t, patient, time.Since(start))
			})
		}
		time.Sleep(patient - 1)
		l.mu.Lock()
		l.takes = 0
		l.mu.Unlock()
		require.True(t, c.prompt(time.Second))
		wg.Wait()
		require.Equal(t, append(slices.Repeat([]int{1}, maxSenders), 2), l.sizes)
		synctest.Wait()
		require.Zero(t, c.senders)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.EqualValues(t, maxSenders, ended.Load())
		require.Zero(t, c.senders)
	})
}

// A server that falls silent keeps nobody for longer than patient, whatever the
// time-outs of the client.
func TestPromptRequestToASilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	rdb := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), ReadTimeout: -1, MaxRetries: 3, DialTimeout: time.Minute})
	defer func() { _ = rdb.Close() }()
	c := newCommits(rdb, func(f func()) { go f() })
	start := time.Now()
	require.Error(t, promptly(t.Context(), c, "first"))
	require.GreaterOrEqual(t, time.Since(start), patient)
	require.Less(t, time.Since(start), 10*time.Second)
	require.False(t, c.prompt(time.Second))
}

// A server that refuses the joint script, because of one of the keys, is not asked
// again at once; everybody gets an answer of their own all the while.
func TestRefusedCompany(t *testing.T) {
	srv := redistest.Start(t)
	require.NoError(t, srv.Client(t).Do(t.Context(), "acl", "setuser", "app", "on", "nopass", "~mine:*", "&*", "+@all").Err())
	rdb := srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "none" })
	c, err := New(rdb, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	joint := new(atomic.Int32) // scripts with several keys
	rdb.AddHook(onlooker{func(cmd redis.Cmder) {
		if args := cmd.Args(); len(args) > 2 && args[2] != 1 {
			joint.Add(1)
		}
	}})
	round := func() {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				held, hold, err := c.NewLock("mine:" + strconv.Itoa(i)).Lock(t.Context())
				if assert.NoError(t, err) {
					assert.NoError(t, hold.Unlock(held))
				}
			})
			wg.Go(func() {
				_, _, err := c.NewLock("yours:" + strconv.Itoa(i)).Lock(t.Context())
				assert.ErrorIs(t, err, ErrUnavailable)
				assert.ErrorContains(t, err, "NOPERM")
			})
		}
		wg.Wait()
	}
	for range 10 {
		round()
	}
	require.NotZero(t, c.scripts.alone.Load(), "refused")
	before := joint.Load()
	round()
	require.Equal(t, before, joint.Load())
	c.scripts.alone.Store(0)
	for range 10 {
		round()
	}
	require.Greater(t, joint.Load(), before)
}

// onlooker is a hook that is shown every command.
type onlooker struct{ see func(redis.Cmder) }

func (c onlooker) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c onlooker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.see(cmd)
		return next(ctx, cmd)
	}
}

func (c onlooker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c.see(cmd)
		}
		return next(ctx, cmds)
	}
}
