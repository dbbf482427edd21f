package request

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

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
