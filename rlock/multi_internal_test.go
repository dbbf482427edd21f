package rlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// clientAt returns a client of a server at that address, which nobody can reach.
func clientAt(t *testing.T, address string, opts *Options) *Client {
	rdb := redis.NewClient(&redis.Options{
		Addr:   address,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network") },
	})
	c, err := New(rdb, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, c.Close(ctx))
		assert.NoError(t, rdb.Close())
	})
	return c
}

// processes calls f for several processes, each with clients of n servers. They were
// created in different order, and so are their ids.
func processes(t *testing.T, n int, f func(c []*Client)) {
	for first := range 2 * n {
		c := make([]*Client, n)
		for i := range c {
			i = (first + i) % n
			if first >= n {
				i = n - 1 - i
			}
			c[i] = clientAt(t, fmt.Sprintf("127.0.0.1:%d", i+1), nil)
		}
		f(c)
	}
}

// requireOrder requires that a multi lock waits for the members in this order, whatever
// the order given.
func requireOrder(t *testing.T, members ...*Lock) {
	t.Helper()
	for given := range members {
		mu := NewMultiLock(append(members[given:len(members):len(members)], members[:given]...)...)
		require.NoError(t, mu.err)
		for i, member := range mu.members {
			require.Same(t, members[i].wire, member.wire, "number %d", i)
		}
	}
}

// All processes wait for locks of one name in the same order, whichever of its clients is
// the host of a quorum lock.
func TestMultiOrderOfQuorumLocks(t *testing.T) {
	processes(t, 8, func(c []*Client) {
		requireOrder(t,
			NewQuorumLock("q", []*Client{c[4], c[3], c[0]}),
			NewQuorumLock("q", []*Client{c[2], c[5], c[1]}),
			c[6].NewLock("q"),
			c[7].NewLock("q"),
		)
	})
}

// The key of a quorum lock has the prefix of the first client, whichever is the host.
func TestMultiOrderOfPrefixes(t *testing.T) {
	for host := range 3 {
		c := make([]*Client, 3)
		for i := range c {
			i = (host + i) % len(c)
			c[i] = clientAt(t, fmt.Sprintf("127.0.0.1:%d", i+1), &Options{Prefix: []string{"m:", "a:", "z:"}[i]})
		}
		requireOrder(t, c[0].NewLock("a"), NewQuorumLock("q", c), c[0].NewLock("z"))
	}
}

// Of read/write locks of one name on two servers, one process writes the one and reads
// the other, and a second process does the opposite.
func TestMultiOrderOfReadersAndWriters(t *testing.T) {
	processes(t, 2, func(c []*Client) {
		first, second := c[0].NewRWLock("a"), c[1].NewRWLock("a")
		requireOrder(t, first.Writer(), second.Reader())
		requireOrder(t, first.Reader(), second.Writer())
		requireOrder(t, first.Writer(), first.Reader(), second.Writer(), second.Reader())
	})
}

// One script takes members up to the first that it must not take: it looks at no queue, and
// knows nothing of what this client holds or waits for.
func TestFakeTimeTogether(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, held, f := newFake(t)
		a, b, busy := c.NewLock("x"), c.NewLock("y"), c.NewLock("busy")
		busy.use(elsewhere{f, "busy", f.renewals})
		_, w := f.enter(t, busy, lua.Reply{TTL: time.Hour})
		defer w.leave()
		f.onAcquire = nil
		ctx, hold, err := held.Lock(t.Context())
		require.NoError(t, err)
		mine := c.NewLock(held.name)
		run := func(ctx context.Context, next []*Lock) []*Lock {
			return slices.Concat(together(ctx, next, len(next))...)
		}
		for name, tt := range map[string]struct {
			next []*Lock
			want int
		}{
			"all":                    {[]*Lock{a, b, c.NewLock("z", WithFencing())}, 3},
			"one":                    {[]*Lock{a}, 1},
			"the same twice":         {[]*Lock{a, a, b}, 1},
			"another client's":       {[]*Lock{a, clientAt(t, "127.0.0.1:2", nil).NewLock("y")}, 2},
			"a fair one":             {[]*Lock{a, c.NewFairLock("f"), b}, 1},
			"a fair one first":       {[]*Lock{c.NewFairLock("f"), b}, 0},
			"a reader":               {[]*Lock{a, c.NewRWLock("r").Reader()}, 1},
			"one that polls":         {[]*Lock{a, c.NewLock("p", WithPolling(Polling{}))}, 1},
			"one for replicas":       {[]*Lock{a, c.NewLock("r", WithReplicas(1, time.Second))}, 1},
			"one that is waited for": {[]*Lock{a, busy, b}, 1},
			"one that is held":       {[]*Lock{a, mine, b}, 1},
		} {
			require.Len(t, run(t.Context(), tt.next), tt.want, name)
		}
		require.Len(t, run(ctx, []*Lock{a, mine}), 1)
		require.NoError(t, hold.Unlock(ctx))
		require.Len(t, run(t.Context(), []*Lock{a, mine}), 2, "it is free again")

		f.renewals = hooked(t, renewing(int64(0)))
		ctx, hold, err = held.Lock(t.Context())
		require.NoError(t, err)
		<-ctx.Done()
		require.Len(t, run(t.Context(), []*Lock{a, mine}), 2)
		require.Len(t, run(context.WithoutCancel(ctx), []*Lock{a, mine}), 1, "under that context nobody can have it")
		require.ErrorIs(t, hold.Unlock(ctx), ErrLeaseLost)
	})
}

// A piece is of one server, or one slot of a cluster, and small enough for one script.
func TestTogetherInPieces(t *testing.T) {
	one, two, slots := clientAt(t, "127.0.0.1:1", nil), clientAt(t, "127.0.0.1:2", nil), clientAt(t, "127.0.0.1:3", nil)
	slots.slotted.Store(true)
	var many []*Lock
	for i := range 2*lua.MaxParts + 1 {
		many = append(many, one.NewLock(strconv.Itoa(i)))
	}
	for name, tt := range map[string]struct {
		next []*Lock
		want []int
	}{
		"small":           {many[:3], []int{3}},
		"many":            {many, []int{lua.MaxParts, lua.MaxParts, 1}},
		"another client":  {[]*Lock{one.NewLock("a"), one.NewLock("b"), two.NewLock("c"), one.NewLock("d")}, []int{2, 1, 1}},
		"slots":           {[]*Lock{slots.NewLock("a"), slots.NewLock("{b}1"), slots.NewLock("{b}2")}, []int{1, 2}},
		"nothing to take": {[]*Lock{one.NewFairLock("a"), one.NewLock("b")}, nil},
	} {
		for most := range 4 {
			var got []int
			for _, piece := range together(t.Context(), tt.next, most) {
				got = append(got, len(piece))
			}
			require.True(t, slices.Equal(tt.want[:min(most, len(tt.want))], got), "%s, %d at most: %v", name, most, got)
		}
	}
}

// On a single server all keys are together; in a cluster those with the same hash tag are.
func TestSameSlot(t *testing.T) {
	single := clientAt(t, "127.0.0.1:1", nil)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { _ = rdb.Close() }()
	cluster, err := New(rdb, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, cluster.Close(context.Background())) }()
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"{x}a", "{x}b", true},
		{"{x}a", "b{x}", true},
		{"{x}", "x", true},
		{"{x}a", "{y}a", false},
		{"{x}{y}", "{x}{z}", true},
	} {
		require.Equal(t, tt.same, sameSlot(cluster, tt.a, tt.b), "%s and %s", tt.a, tt.b)
		require.True(t, sameSlot(single, tt.a, tt.b))
	}
}
