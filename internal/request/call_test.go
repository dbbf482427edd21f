package request

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// all are the calls of a queue in their order.
func (q *calls) all() (all []*Call) {
	for c := q.first; c != nil; c = c.next {
		all = append(all, c)
	}
	return all
}

// A call can leave its queue from anywhere, and the others keep their order.
func TestCallsKeepTheirOrder(t *testing.T) {
	var q calls
	var want []*Call
	for range 5 {
		want = append(want, new(Call))
		q.push(want[len(want)-1])
	}
	for _, n := range []int{2, 0, 2, 1, 0} { // from the middle, from both ends, the last two
		gone := want[n]
		q.remove(gone)
		want = slices.Delete(want, n, n+1)
		require.Equal(t, len(want), q.n)
		require.Nil(t, gone.in)
		got := q.all()
		require.Len(t, got, len(want))
		for i := range want {
			require.Same(t, want[i], got[i])
			require.Same(t, &q, got[i].in)
		}
	}
	require.Zero(t, q)
	c := new(Call)
	q.push(c)
	require.Same(t, c, q.first)
	require.Same(t, c, q.last)
}

// One call makes several requests, one after the other, each with the outcome of its own.
func TestFakeTimeCallIsMadeAgain(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond)
		c := g.Call(Options{Bound: time.Second})
		defer c.Put()
		require.ErrorIs(t, c.Process(t.Context(), redis.NewCmd(t.Context(), "bad")), errBad)
		require.NoError(t, c.Process(t.Context(), redis.NewCmd(t.Context(), "good")))
		l.take(time.Minute, 0)
		require.Equal(t, ErrNoAnswer, c.Process(t.Context(), redis.NewCmd(t.Context(), "slow")))
		time.Sleep(time.Hour)
		idle(t, g)
	})
}

// A call that was taken back knows nothing of its request: neither the context of its caller nor the
// command is kept. One whose caller has left is not taken back, as its batch still has it.
func TestFakeTimeCallIsTakenBack(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond)
		c := g.Call(Options{Key: "a", Bound: time.Second, Late: func(error) {}})
		require.NoError(t, c.Process(t.Context(), redis.NewCmd(t.Context(), "good")))
		c.Put()
		require.Nil(t, c.ctx)
		require.Nil(t, c.cmd)
		require.Nil(t, c.batch)
		require.Zero(t, c.opts.Key)
		require.Nil(t, c.opts.Late)

		l.take(least/2, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		heard := make(chan error, 2)
		left := g.Call(Options{Bound: time.Minute, Late: func(err error) { heard <- err }})
		require.Equal(t, ErrAbandoned, left.Process(ctx, redis.NewCmd(ctx, "good")))
		left.Put()
		for range 10 {
			require.NotSame(t, left, g.Call(Options{}))
		}
		require.Equal(t, ErrUnread, <-heard)
		idle(t, g)
	})
}

// A caller that has left before its call is queued sends nothing.
func TestFakeTimeCallOfACallerThatHasLeft(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			c := g.Call(Options{Bound: time.Second})
			require.Equal(t, ErrNotSent, c.Process(ctx, redis.NewCmd(ctx, "late")))
			c.Put()
		}
		idle(t, g)
		require.False(t, l.asked("late"))
	})
}

// A cluster has a group for each master, any other client is one server.
func TestCarrierFitsTheClient(t *testing.T) {
	options := &redis.Options{Addr: "127.0.0.1:1"}
	single, cluster := redis.NewClient(options), redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{options.Addr}})
	defer func() { require.NoError(t, errors.Join(single.Close(), cluster.Close())) }()
	for _, tt := range []struct {
		client redis.UniversalClient
		want   Carrier
	}{{single, &Group{}}, {cluster, &Masters{}}, {struct{ redis.UniversalClient }{single}, &Group{}}} {
		require.IsType(t, tt.want, NewCarrier(Config{Client: tt.client}))
	}
}

// Whoever leaves while a command that goes by itself waits for a connection knows that nothing was
// sent. Once it is sent, or if it failed for another reason, nobody can know.
func TestFakeTimeCommandByItself(t *testing.T) {
	for name, tt := range map[string]struct {
		takes, full time.Duration
		name        string
		want        error
	}{
		"it is answered":              {time.Millisecond, 0, "good", nil},
		"it is refused":               {time.Millisecond, 0, "bad", errBad},
		"its caller leaves it":        {2 * time.Second, 0, "bad", errBad},
		"no connection is free":       {time.Millisecond, time.Minute, "good", ErrNotSent},
		"a connection is free, later": {time.Millisecond, time.Second / 2, "good", nil},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				l, g := newLine(t, tt.takes)
				l.take(tt.takes, tt.full)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				cmd := redis.NewCmd(ctx, tt.name)
				require.Equal(t, tt.want, g.Process(ctx, cmd))
				require.Equal(t, tt.want, cmd.Err())
				require.Equal(t, tt.want != ErrNotSent, l.asked(tt.name))
			})
		})
	}
}

// told is what the late function of a request has got, and when.
type told struct {
	value int
	err   error
	at    time.Duration
}

// Whoever leaves is told why, and the request goes on until it ends by itself. What it returns is
// told late, once; that there is no answer in time is told as well, when the bound has passed.
func TestFakeTimeDetached(t *testing.T) {
	const never = time.Hour
	for name, tt := range map[string]struct {
		takes, leaves, stops time.Duration // 0: at once; never
		fails                error
		want                 error
		took                 time.Duration
		late                 []told
	}{
		"it is answered":             {takes: time.Second, leaves: never, stops: never, took: time.Second},
		"it fails":                   {takes: time.Second, leaves: never, stops: never, fails: errBad, want: errBad, took: time.Second},
		"it was not sent":            {takes: time.Second, leaves: never, stops: never, fails: ErrNotSent, want: ErrCrowded, took: time.Second},
		"its caller leaves":          {takes: 3 * time.Second, leaves: time.Second, stops: never, want: ErrAbandoned, took: time.Second, late: []told{{7, nil, 3 * time.Second}}},
		"it is stopped":              {takes: 3 * time.Second, leaves: never, stops: time.Second, want: ErrAbandoned, took: time.Second, late: []told{{7, nil, 3 * time.Second}}},
		"its caller leaves for long": {takes: 8 * time.Second, leaves: time.Second, stops: never, want: ErrAbandoned, took: time.Second, late: []told{{0, ErrNoAnswer, 5 * time.Second}, {7, nil, 8 * time.Second}}},
		"it takes too long":          {takes: 8 * time.Second, leaves: never, stops: never, want: ErrNoAnswer, took: 5 * time.Second, late: []told{{7, nil, 8 * time.Second}}},
		"it fails late":              {takes: 3 * time.Second, leaves: time.Second, stops: never, fails: ErrNotSent, want: ErrAbandoned, took: time.Second, late: []told{{7, ErrNotSent, 3 * time.Second}}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), witnessKey{}, "seen"), tt.leaves)
				defer cancel()
				stop := make(chan struct{})
				time.AfterFunc(tt.stops, func() { close(stop) })
				var ended time.Duration // when the context of the request was over
				late := make(chan told, 3)
				value, err := Detached(ctx, Alone{Background: func(f func()) { go f() }, Bound: 5 * time.Second, Stop: stop}, func(own context.Context) (int, error) {
					if own.Value(witnessKey{}) != "seen" {
						return 0, errBad
					}
					context.AfterFunc(own, func() { ended = time.Since(began) })
					time.Sleep(tt.takes) // go-redis heeds no context
					return 7, tt.fails
				}, func(value int, err error) { late <- told{value, err, time.Since(began)} })
				require.Equal(t, tt.want, err)
				require.Equal(t, tt.took, time.Since(began))
				require.Equal(t, tt.late == nil, value == 7)
				time.Sleep(2 * never)
				synctest.Wait()
				require.Len(t, late, len(tt.late))
				for _, want := range tt.late {
					require.Equal(t, want, <-late)
				}
				require.Equal(t, tt.took, ended, "nobody needs it any more")
			})
		})
	}
}

// A caller that has left before sends nothing.
func TestFakeTimeDetachedTooLate(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		stopped := make(chan struct{})
		close(stopped)
		for ctx, stop := range map[context.Context]chan struct{}{over: nil, t.Context(): stopped} {
			none := func(func()) { t.Error("nothing is begun") }
			_, err := Detached(ctx, Alone{Background: none, Bound: time.Second, Stop: stop}, func(context.Context) (int, error) { return 0, nil }, nil)
			require.Equal(t, ErrNotSent, err)
		}
	})
}

// Whoever watches a request may end its wait; its timer ends with the request.
func TestFakeTimeDetachedIsWatched(t *testing.T) {
	for name, tt := range map[string]struct {
		takes time.Duration
		ended bool
		want  error
	}{
		"it is ended": {time.Minute, true, ErrNoAnswer},
		"it is over":  {time.Second, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				began, rang := time.Now(), false
				watch := func(own context.Context, end func()) *time.Timer {
					require.NoError(t, own.Err())
					return time.AfterFunc(2*time.Second, func() { rang = true; end() })
				}
				_, err := Detached(t.Context(), Alone{Background: func(f func()) { go f() }, Bound: time.Hour, Watch: watch}, func(context.Context) (int, error) {
					time.Sleep(tt.takes)
					return 0, nil
				}, nil)
				require.Equal(t, tt.want, err)
				require.Equal(t, min(tt.takes, 2*time.Second), time.Since(began))
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, tt.ended, rang)
			})
		})
	}
}

// A request whose own bound has ended the wait for a connection is made again: nobody has
// left.
func TestFakeTimeNotSentIsNotLeft(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		n := 0
		a := Do(t.Context(), Policy{Attempt: time.Second, Total: time.Minute, Classify: Classify},
			func(ctx context.Context, opts Options, late func(int, error)) (int, bool, error) {
				value, err := Detached(ctx, Alone{Background: func(f func()) { go f() }, Bound: opts.Bound}, func(context.Context) (int, error) {
					if n++; n < 3 {
						return 0, ErrNotSent
					}
					return n, nil
				}, late)
				return value, false, err
			}, nil)
		require.Equal(t, Done, a.End)
		require.Equal(t, 3, a.Value)
		require.False(t, a.Doubt)
	})
}
