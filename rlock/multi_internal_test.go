package rlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
