package request

import (
	"context"
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

// Keys of three slots, which the nodes of [fake] share: 3300, 7365, 11298.
var keys = []string{"b", "c", "d"}

// fake is a cluster without servers. Each node is a [line].
type fake struct {
	*Masters
	rdb *redis.ClusterClient

	mu     sync.Mutex // guards what follows
	lines  map[string]*line
	owners []string      // by key
	loads  int           // of the map
	takes  time.Duration // to load it
	alone  []string      // commands that were sent by the client of the cluster
}

func newFake(t *testing.T, edit ...func(*redis.ClusterOptions)) *fake {
	f := &fake{lines: make(map[string]*line), owners: []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}}
	o := &redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		time.Sleep(f.takes)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.loads++
		var slots []redis.ClusterSlot
		for i, owner := range f.owners {
			slots = append(slots, redis.ClusterSlot{Start: i * 5462, End: min((i+1)*5462, 16384) - 1, Nodes: []redis.ClusterNode{{Addr: owner}, {Addr: "10.0.0.6:1"}}})
		}
		return slots, nil
	}, DisableRoutingPolicies: true}
	for _, e := range edit {
		e(o)
	}
	f.rdb = redis.NewClusterClient(o)
	t.Cleanup(func() { _ = f.rdb.Close() })
	f.rdb.AddHook(redistest.Answers(func(_ context.Context, cmds ...redis.Cmder) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, cmd := range cmds {
			f.alone = append(f.alone, cmd.Name())
			cmd.SetErr(nil)
		}
		return nil
	}))
	f.rdb.OnNewNode(func(node *redis.Client) { node.AddHook(redistest.Answers(f.line(node.Options().Addr).serve)) })
	f.Masters = NewCarrier(Config{
		Client: f.rdb, Senders: senders, Begin: func() {}, End: func() {}, Send: pipeline,
		Reload: func() {
			_ = f.rdb.ForEachMaster(context.Background(), func(context.Context, *redis.Client) error { return nil })
		},
	}).(*Masters)
	return f
}

func (f *fake) line(addr string) *line {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lines[addr]
	if l == nil {
		l = &line{takes: near / 2, started: make(map[string]bool)}
		f.lines[addr] = l
	}
	return l
}

// sizes are those of the pipelines that a node has got, since it was asked for the first
// time.
func (f *fake) sizes(addr string) []int {
	l := f.line(addr)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sizes
}

func (f *fake) ask(ctx context.Context, key, name string) error {
	return f.askOn(ctx, Options{Key: key, Bound: time.Minute}, name)
}

func (f *fake) askOn(ctx context.Context, opts Options, name string) error {
	c, key := f.Call(opts), opts.Key
	defer c.Put()
	cmd := redis.NewCmd(ctx, name, key)
	cmd.SetFirstKeyPos(1)
	return c.Process(ctx, cmd)
}

// idle fails the test unless nothing is under way.
func (f *fake) idle(t *testing.T) {
	t.Helper()
	for _, g := range f.groups {
		idle(t, g)
	}
}

// Those who come at the same time share a pipeline for each master.
func TestFakeTimeAPipelineForEachMaster(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t)
		require.NoError(t, f.ask(t.Context(), "b", "first"))
		start := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			for _, key := range keys {
				wg.Go(func() { assert.NoError(t, f.ask(t.Context(), key, "good")) })
			}
		}
		wg.Go(func() { assert.ErrorIs(t, f.ask(t.Context(), "d", "bad"), errBad) })
		wg.Wait()
		require.LessOrEqual(t, time.Since(start), 2*time.Millisecond)
		for addr, want := range map[string]int{"10.0.0.1:1": 1 + 100, "10.0.0.2:1": 100, "10.0.0.3:1": 101, "10.0.0.6:1": 0} {
			sizes, n := f.sizes(addr), 0
			for _, size := range sizes {
				n += size
			}
			require.Equal(t, want, n)
			require.LessOrEqual(t, len(sizes), 1+senders+1)
		}
		f.idle(t)
	})
}

// A node that gives no answer keeps nobody waiting who asks another.
func TestFakeTimeSilentMaster(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t)
		for _, key := range keys {
			require.NoError(t, f.ask(t.Context(), key, "first"))
		}
		f.line("10.0.0.2:1").take(time.Hour, 0)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { assert.ErrorIs(t, f.ask(t.Context(), "c", "lost"), ErrNoAnswer) })
		}
		start := time.Now()
		for range 100 {
			for _, key := range []string{"b", "d"} {
				wg.Go(func() {
					assert.NoError(t, f.ask(t.Context(), key, "good"))
					assert.Less(t, time.Since(start), 100*time.Millisecond)
				})
			}
			time.Sleep(500 * time.Microsecond)
		}
		wg.Wait()
		time.Sleep(2 * time.Hour)
		f.idle(t)
	})
}

// Calls that may leave something behind are held back from the master that has too much of
// it, and from no other; also from one that was asked for the first time since then.
func TestFakeTimeHoldOfOneMaster(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t)
		f.Server("c").Hold(true) // there is no map yet: that holds nothing
		f.Server("c").Hold(false)
		require.NoError(t, f.ask(t.Context(), "b", "first"))
		crowded := f.Server("c")
		crowded.Hold(true)
		require.Same(t, crowded, f.Server("c"))
		leaves := func(key string) error {
			return f.askOn(t.Context(), Options{Key: key, Bound: time.Second, Leaves: true}, "leaves")
		}
		for _, key := range []string{"b", "d"} {
			require.NoError(t, leaves(key))
		}
		require.NoError(t, f.ask(t.Context(), "c", "release"))
		require.Equal(t, ErrCrowded, leaves("c"))
		require.False(t, f.line("10.0.0.2:1").asked("leaves"))

		f.mu.Lock()
		f.owners[1] = "10.0.0.4:1"
		f.mu.Unlock()
		f.Reload()
		require.NoError(t, leaves("c"), "another has taken over")
		require.True(t, f.line("10.0.0.4:1").asked("leaves"))
		require.Len(t, f.groups, 4, "one that holds back is not forgotten")
		f.mu.Lock()
		f.owners[1] = "10.0.0.2:1"
		f.mu.Unlock()
		f.Reload()
		require.Equal(t, ErrCrowded, leaves("c"))
		time.AfterFunc(time.Second/2, func() { crowded.Hold(false) })
		require.NoError(t, leaves("c"))
		f.idle(t)
	})
}

// What is on its way to a node that is replaced ends without an answer, soon after the
// map says so; what has not been sent goes to its successor.
func TestFakeTimeReplacedMaster(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t)
		for _, key := range append(keys, keys...) {
			require.NoError(t, f.ask(t.Context(), key, "first"))
		}
		f.line("10.0.0.2:1").take(time.Hour, 0)
		var wg sync.WaitGroup
		for range nearSenders {
			wg.Go(func() { assert.ErrorIs(t, f.ask(t.Context(), "c", "sent"), ErrNoAnswer) })
			synctest.Wait()
		}
		for range 3 {
			wg.Go(func() { assert.NoError(t, f.ask(t.Context(), "c", "unsent")) })
		}
		synctest.Wait()
		f.mu.Lock()
		f.owners[1] = "10.0.0.4:1"
		f.mu.Unlock()
		start := time.Now()
		wg.Wait()
		require.Equal(t, lookPause+near/2, time.Since(start))
		require.True(t, f.line("10.0.0.4:1").asked("unsent"))
		require.False(t, f.line("10.0.0.2:1").asked("unsent"))

		// What is on its way is not forgotten; then those that have left are.
		require.Len(t, f.groups, 4)
		time.Sleep(2 * time.Hour)
		f.mu.Lock()
		f.owners[1] = "10.0.0.5:1"
		f.mu.Unlock()
		f.Reload()
		require.NoError(t, f.ask(t.Context(), "c", "first"))
		require.Len(t, f.groups, 3)
	})
}

// The first call has the map loaded, and asks the client of the cluster for nothing else. Whoever
// leaves meanwhile has sent nothing, and so has who waits for too long.
func TestFakeTimeTheFirstLoadsTheMap(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t)
		f.takes = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		require.Equal(t, ErrNotSent, f.ask(ctx, "b", "left"))
		require.Equal(t, ErrCrowded, f.askOn(t.Context(), Options{Key: "b", Bound: 10 * time.Millisecond}, "late"))
		require.NoError(t, f.ask(t.Context(), "b", "first"))
		for _, name := range []string{"left", "late"} {
			require.False(t, f.line("10.0.0.1:1").asked(name))
		}
		require.True(t, f.line("10.0.0.1:1").asked("first"))
		require.Empty(t, f.alone)
		time.Sleep(time.Minute) // maps are still being loaded
	})
}

// A client that reads from replicas does not follow a node to another one. Its requests are made
// again when there is a new map, also those that are made once.
func TestFakeTimeMovedForOneThatReadsFromReplicas(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFake(t, func(o *redis.ClusterOptions) { o.ReadOnly = readOnly })
			require.NoError(t, f.ask(t.Context(), "b", "first"))
			f.line("10.0.0.1:1").moved = true
			f.owners[0] = "10.0.0.4:1"
			attempts := 0
			p := Policy{Attempt: time.Second, Total: time.Second, Once: true, Classify: Classify}
			a := Do(t.Context(), p, func(ctx context.Context, o Options, _ func(int, error)) (int, bool, error) {
				attempts++
				o.Key = "b"
				return 0, false, f.askOn(ctx, o, "good")
			}, nil)
			require.NoError(t, a.Err)
			require.Equal(t, Done, a.End)
			if readOnly {
				require.Empty(t, f.alone)
				require.Equal(t, 2, attempts)
				require.True(t, f.line("10.0.0.4:1").asked("good"))
			} else {
				require.Equal(t, []string{"good"}, f.alone)
				require.Equal(t, 1, attempts)
			}
		})
	}
}

// A call that was left is heard of.
func TestFakeTimeLeavingTheFirst(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t)
		f.line("10.0.0.1:1").take(time.Second, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var told atomic.Value
		c := f.Call(Options{Key: "b", Bound: time.Minute, Late: func(err error) { told.Store(err) }})
		cmd := redis.NewCmd(ctx, "first", "b")
		cmd.SetFirstKeyPos(1)
		require.Equal(t, ErrAbandoned, c.Process(ctx, cmd))
		c.Put()
		time.Sleep(2 * time.Second)
		require.Equal(t, ErrUnread, told.Load())
	})
}

// incr is a command that go-redis does not repeat, as those of package lua are.
type incr struct{ *redis.Cmd }

func (incr) NoRetry() bool { return true }

func onCluster(rdb *redis.ClusterClient) *Masters {
	return NewCarrier(Config{
		Client: rdb, Senders: senders, Begin: func() {}, End: func() {}, Send: pipeline,
		Reload: func() { rdb.ReloadState(context.Background()) },
	}).(*Masters)
}

// increment adds one to a counter, in one attempt.
func increment(ctx context.Context, m Carrier, key string, bound time.Duration, late func(error)) error {
	c := m.Call(Options{Key: key, Bound: bound, Late: late})
	defer c.Put()
	cmd := redis.NewCmd(ctx, "incr", key)
	cmd.SetFirstKeyPos(1)
	return c.Process(ctx, incr{cmd})
}

// While a slot moves to and fro, and its keys in the midst of it, each request that is
// answered was executed once, by whichever node has its key.
func TestMovedUnderLoad(t *testing.T) {
	cluster := redistest.StartCluster(t, 2, 0)
	m := onCluster(cluster.Client(t))
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	counts, unknown := make([]atomic.Int64, 32), make([]atomic.Int64, 32)
	key := func(i int) string { return "{moves}" + strconv.Itoa(i) }
	for i := range counts {
		wg.Go(func() {
			for ctx.Err() == nil {
				switch err := increment(t.Context(), m, key(i), time.Minute, nil); {
				case err == nil:
					counts[i].Add(1)
				case err == ErrNoAnswer: // on a busy machine
					unknown[i].Add(1)
				default:
					assert.NoError(t, err)
				}
			}
		})
	}
	all := func() (n int64) {
		for i := range counts {
			n += counts[i].Load()
		}
		return n
	}
	goOn := func() { // several answers for each
		t.Helper()
		before := all()
		redistest.Eventually(t, "there are answers", func() bool { return all() > before+100 })
	}
	slot := cluster.Slot(key(0))
	for range 4 {
		to := cluster.Another(slot)
		goOn()
		move := cluster.BeginMove(slot, to)
		goOn()
		move.MoveKeys(key(1), key(2))
		goOn()
		move.MoveKeys()
		goOn()
		move.Finish()
	}
	goOn()
	stop()
	wg.Wait()
	rdb := cluster.Client(t)
	for i := range counts {
		n, err := rdb.Get(t.Context(), key(i)).Int64()
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, counts[i].Load())
		require.LessOrEqual(t, n, counts[i].Load()+unknown[i].Load())
	}
}

// What becomes of the requests to a node that stops, and then dies; those to the other
// one do not notice.
func TestStoppedMaster(t *testing.T) {
	cluster := redistest.StartCluster(t, 2, 0, "--cluster-require-full-coverage", "no")
	rdb := cluster.Client(t)
	m := onCluster(rdb)
	ctx := t.Context()
	victim, key, other := cluster.Owner(cluster.Slot("a")), "a", ""
	for i := 0; other == ""; i++ {
		if name := strconv.Itoa(i); cluster.Owner(cluster.Slot(name)) != victim {
			other = name
		}
	}
	for _, k := range []string{key, other} {
		for range 2 { // the first goes by itself
			require.NoError(t, increment(ctx, m, k, time.Minute, nil))
		}
	}
	victim.Stop()
	var late sync.Map
	told := func(name string) func(error) { return func(err error) { late.Store(name, err) } }
	answers := make(chan error, 3)
	g := m.group(key)
	awaitSent := func() {
		t.Helper()
		redistest.Eventually(t, "it was sent", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.open) > 0 && g.open[0].note.sent()
		})
	}
	go func() { answers <- increment(ctx, m, key, time.Minute, nil) }()
	awaitSent()
	brief, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
	defer cancel()
	err := increment(brief, m, key, time.Minute, told("left"))
	assert.True(t, err == ErrAbandoned || err == ErrNotSent, err)
	over, end := context.WithCancel(ctx)
	end()
	assert.Equal(t, ErrNotSent, increment(over, m, key, time.Minute, told("over")))

	for range 100 { // while one of the others waits
		require.NoError(t, increment(ctx, m, other, time.Minute, nil))
	}
	assert.Equal(t, ErrNoAnswer, <-answers)
	o, final := Classify(ErrNoAnswer)
	assert.Equal(t, Unknown, o)
	assert.False(t, final)

	victim.Cont()
	redistest.Eventually(t, "it answers", func() bool { return increment(ctx, m, key, time.Minute, nil) == nil })
	redistest.Eventually(t, "nothing is under way", g.unused)
	victim.Stop()
	go func() { answers <- increment(ctx, m, key, time.Minute, nil) }()
	awaitSent()
	victim.Kill()
	err = <-answers
	o, _ = Classify(err)
	assert.Equal(t, Unknown, o, err)
	redistest.Eventually(t, "nobody is there", func() bool {
		o, final := Classify(increment(ctx, m, key, time.Second, nil))
		return o == NotExecuted && !final
	})
	require.NoError(t, increment(ctx, m, other, time.Minute, nil))
	_, heard := late.Load("over")
	assert.False(t, heard, "it was not sent")
}

// A pool of one connection, and many who are in a hurry: what is answered was executed.
func TestOneConnectionOfACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	rdb := cluster.Client(t, func(o *redis.ClusterOptions) { o.PoolSize, o.PipelinePoolSize = 1, 1 })
	m := onCluster(rdb)
	var wg sync.WaitGroup
	for i := range 1024 {
		wg.Go(func() {
			key, n := strconv.Itoa(i), int64(0)
			for n < 5 {
				switch err := increment(t.Context(), m, key, time.Minute, nil); err {
				case nil:
					n++
				case ErrCrowded, ErrNoAnswer: // on a busy machine
				default:
					assert.NoError(t, err)
					return
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
			defer cancel()
			_ = increment(ctx, m, key, time.Minute, nil)
			got, err := rdb.Get(t.Context(), key).Int64()
			assert.NoError(t, err)
			assert.GreaterOrEqual(t, got, n)
		})
	}
	wg.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Len(t, m.groups, 3)
	for _, g := range m.groups {
		redistest.Eventually(t, "nothing is under way", g.unused)
	}
}
