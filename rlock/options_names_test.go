package rlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// The names a and {a} are two locks. By Redisson's rule their relatives would be the same,
// and the release of one would grant the other.
func TestNamesInBraces(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	type locks struct {
		held, wanted func(c *rlock.Client, name string) *rlock.Lock
	}
	plain := func(c *rlock.Client, name string) *rlock.Lock { return c.NewLock(name) }
	fenced := func(c *rlock.Client, name string) *rlock.Lock { return c.NewLock(name, rlock.WithFencing()) }
	fair := func(c *rlock.Client, name string) *rlock.Lock { return c.NewFairLock(name) }
	reader := func(c *rlock.Client, name string) *rlock.Lock { return c.NewRWLock(name).Reader() }
	writer := func(c *rlock.Client, name string) *rlock.Lock { return c.NewRWLock(name).Writer() }
	kinds := map[string]locks{
		"plain": {plain, plain}, "fenced": {fenced, fenced}, "fair": {fair, fair},
		"read/write": {reader, writer},
	}
	for kind, l := range kinds {
		for _, names := range [][2]string{{"a", "{a}"}, {"{a}", "a"}, {"{a}", "{a}:"}, {"{a}:", "{a}"}} {
			t.Run(kind+", "+names[0]+" beside "+names[1], func(t *testing.T) {
				holder, other, third := newClient(t, srv, nil), newClient(t, srv, nil), newClient(t, srv, nil)
				held, hold := lock(t, t.Context(), l.held(holder, names[0]))
				besideHeld, beside := lock(t, t.Context(), l.held(holder, names[1]))
				waiter := begin(t.Context(), l.wanted(other, names[0]))
				redistest.Eventually(t, "it waits", func() bool {
					return rdb.Exists(t.Context(), lua.QueueOf(names[0]), lua.QueueOfRW(names[0])).Val() > 0
				})
				require.NoError(t, beside.Unlock(besideHeld))

				free, again, err := l.held(third, names[1]).TryLock(t.Context())
				require.NoError(t, err, "who waits for the one is not in the way of the other")
				require.NoError(t, again.Unlock(free))
				require.NoError(t, held.Err())
				select {
				case <-waiter.done:
					t.Fatal("two holders")
				default:
				}
				require.NoError(t, hold.Unlock(held))
				_, got := waiter.acquired(t)
				require.NoError(t, got.Unlock(t.Context()))
			})
		}
	}
}
