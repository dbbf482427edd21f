package kind

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// renewing is a Renewer in the time of a bubble, and what it has told.
type renewing struct {
	Renewer
	reloads atomic.Int64
	gone    chan int
}

func newRenewing() *renewing {
	r := &renewing{gone: make(chan int, 100)}
	r.Renewer = Renewer{
		Background: func(f func()) { go f() },
		Reload:     func(redis.UniversalClient) { r.reloads.Add(1) },
		Gone:       func(lease int) { r.gone <- lease },
		Held:       func(int) bool { return true },
		Places:     new(Places),
	}
	return r
}

// renewal extends a lease on a server.
func (f *fake) renewal(key string) Renewal {
	return NewPlain(f.Server, key, false).Renewals("me:1", time.Minute)[0]
}

// renews has a server answer renewals so. One that is nil hangs, and heeds no context.
func (f *fake) renews(answer any) {
	f.answers(func(context.Context, []any) any {
		if answer == nil {
			time.Sleep(time.Hour)
		}
		return answer
	})
}

// What a majority says goes for a lease, as soon as it has said so. If there is none it is not
// known what has become of it.
func TestFakeTimeRenewalByAMajority(t *testing.T) {
	const patience = 5 * time.Second
	renewed, refused, hangs := any(int64(1)), any(int64(0)), any(nil)
	for name, tt := range map[string]struct {
		servers []any
		want    error
		took    time.Duration
		reloads int64
		gone    int
	}{
		"all renew":                   {servers: []any{renewed, renewed, renewed}},
		"all refuse":                  {servers: []any{refused, refused, refused}, want: ErrRefused, gone: 1},
		"two renew, one hangs":        {servers: []any{renewed, hangs, renewed}},
		"two renew, one fails":        {servers: []any{errLoading, renewed, renewed}},
		"two renew, one refuses":      {servers: []any{renewed, renewed, refused}},
		"two refuse, one hangs":       {servers: []any{refused, hangs, refused}, want: ErrRefused, gone: 1},
		"two hang":                    {servers: []any{renewed, hangs, hangs}, want: request.ErrNoAnswer, took: patience, reloads: 6},
		"two hang, one refuses":       {servers: []any{refused, hangs, hangs}, want: request.ErrNoAnswer, took: patience, reloads: 6},
		"two fail":                    {servers: []any{renewed, errLoading, errLoading}, want: errLoading, reloads: 3},
		"one of each":                 {servers: []any{renewed, refused, errLoading}, want: errLoading, reloads: 3},
		"a half renews":               {servers: []any{renewed, refused, refused, renewed}, want: errNoMajority, reloads: 4},
		"one renews, there is one":    {servers: []any{renewed}},
		"one refuses, there is one":   {servers: []any{refused}, want: ErrRefused},
		"one fails, and there is one": {servers: []any{errLoading}, want: errLoading, reloads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				var lease []Renewal
				for n, answer := range tt.servers {
					f := newFake(t, string(rune('a'+n)))
					f.renews(answer)
					lease = append(lease, f.renewal("lock"))
				}
				r, began := newRenewing(), time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				require.Equal(t, []error{tt.want}, r.Renew(ctx, [][]Renewal{lease}))
				require.Equal(t, tt.took, time.Since(began))
				require.Equal(t, tt.reloads, r.reloads.Load(), "a server that gives no answer may be master no more")
				require.Len(t, r.gone, tt.gone, "while others are asked")
				time.Sleep(2 * time.Hour) // what hangs ends
			})
		})
	}
}

// Of several leases of a client each is lost when its own server has said so, also while another
// server hangs. Those of one server share a pipeline.
func TestFakeTimeRenewalBesideANodeThatHangs(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _ := newFakes(t)
		hangs, gone, well := all[0], all[1], all[2]
		hangs.renews(nil)
		gone.renews(int64(0))
		due := [][]Renewal{{hangs.renewal("h")}, {gone.renewal("g")}, {well.renewal("w")}, {hangs.renewal("i")}, {well.renewal("x")}}
		r, began := newRenewing(), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		errs := make(chan []error, 1)
		go func() { errs <- r.Renew(ctx, due) }()
		require.Equal(t, 1, <-r.gone)
		require.Zero(t, time.Since(began))
		synctest.Wait()
		require.Empty(t, errs)
		require.Equal(t, []error{request.ErrNoAnswer, ErrRefused, nil, request.ErrNoAnswer, nil}, <-errs)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Equal(t, [][]int{{2}, {1}, {2}}, [][]int{hangs.sizes, gone.sizes, well.sizes})
		time.Sleep(2 * time.Hour)
	})
}

// Where a pipeline would have to wait for longer than it may, its leases have not been renewed. That
// of a quorum does not wait.
func TestFakeTimeRenewalWithoutAPlace(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _ := newFakes(t)
		r, began := newRenewing(), time.Now()
		for _, release := range taken(t, r.Places, t.Context(), node{rdb: all[0].RDB}) {
			defer release()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		due := [][]Renewal{{all[0].renewal("a")}, {all[0].renewal("b")}}
		require.Equal(t, []error{request.ErrCrowded, request.ErrCrowded}, r.Renew(ctx, due))
		require.Equal(t, time.Second, time.Since(began))
		require.Empty(t, all[0].commands())
		require.NotZero(t, r.reloads.Load(), "the pipelines that keep the places may wait for a master that is none")

		quorum := []Renewal{all[0].renewal("q"), all[1].renewal("q"), all[2].renewal("q")}
		require.Equal(t, []error{nil}, r.Renew(t.Context(), [][]Renewal{quorum}))
		synctest.Wait()
		require.Len(t, all[0].commands(), 1)
		require.Equal(t, time.Second, time.Since(began))
	})
}

// A lease that was only looked at has not failed: nobody looks for another master.
func TestFakeTimeRenewalThatOnlyLooks(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, r := newFake(t, "a"), newRenewing()
		f.answers(func(context.Context, []any) any { return []any{int64(1), int64(7000)} })
		due := [][]Renewal{NewPlain(f.Server, "lock", false).Joined().Renewals("me:1", time.Minute)}
		require.Equal(t, []error{lua.Left(7 * time.Second)}, r.Renew(t.Context(), due))
		require.Zero(t, r.reloads.Load())
		f.answers(func(context.Context, []any) any { return errors.New("EOF") })
		errs := r.Renew(t.Context(), slices.Concat(due, due))
		require.EqualError(t, errors.Join(errs...), "EOF\nEOF")
		require.EqualValues(t, 1, r.reloads.Load(), "one for each server")
	})
}
