package request

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

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
