package rlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// longestClaim is how long the lock is kept at most for whoever was granted it and does
// not say so. The first waiter of a client asks after keepAlive of its own accord, after
// minKeepAlive if few wait, and not for long yet, and each time up to a tenth of that later.
const (
	longestClaim = 2500 * time.Millisecond
	keepAlive    = 5 * time.Second
	minKeepAlive = 900 * time.Millisecond

	asksPerSecond = 20 // of all that wait, until each asks after keepAlive
)

// askedIn is how often a waiter asks of its own accord in a wait, at most, if few others wait.
func askedIn(wait time.Duration) (n int) {
	for at := minKeepAlive; at <= wait; n++ {
		at += min(max(at, minKeepAlive), keepAlive)
	}
	return n
}

// ticket is what an owner has left in the queue on the server.
type ticket struct {
	owner string
	place int64
	claim time.Duration
	hears bool
}

// tickets returns those of a plain lock or a read/write lock, in their order.
func tickets(tb tester, rdb redis.UniversalClient, name string) (all []ticket) {
	tb.Helper()
	for _, queue := range []string{lua.QueueOf(name), lua.QueueOfRW(name)} {
		members, err := rdb.ZRangeWithScores(context.Background(), queue, 0, -1).Result()
		require.NoError(tb, err)
		for _, m := range members {
			if score, owner := int64(m.Score), m.Member.(string); owner[0] != '!' { // otherwise it is the record of the newest grant
				all = append(all, ticket{owner, score / 4 / 8192, time.Duration(score/4%8192) * time.Millisecond, score%4 != 0})
			}
		}
	}
	return all
}

// queueOf returns the owners who wait, in their order.
func queueOf(tb tester, rdb redis.UniversalClient, name string) (owners []string) {
	tb.Helper()
	for _, t := range tickets(tb, rdb, name) {
		owners = append(owners, t.owner)
	}
	return owners
}

// awaitQueue returns when so many wait, all of them listening or not.
func awaitQueue(tb testing.TB, rdb redis.UniversalClient, name string, n int) {
	tb.Helper()
	redistest.Eventually(tb, fmt.Sprint(n, " in the queue of ", name), func() bool { return len(tickets(tb, rdb, name)) == n })
}

// awaitHearing returns when so many wait and hear, as the server knows: they send
// nothing more.
func awaitHearing(tb testing.TB, rdb redis.UniversalClient, name string, n int) {
	tb.Helper()
	redistest.Eventually(tb, fmt.Sprint(n, " hear what becomes of ", name), func() bool { return hearing(tb, rdb, name) == n })
}

func hearing(tb testing.TB, rdb redis.UniversalClient, name string) (n int) {
	tb.Helper()
	for _, t := range tickets(tb, rdb, name) {
		if t.hears {
			n++
		}
	}
	return n
}

// awaitListener returns when a waiter will be told of a release: it has a ticket and
// hears; or, if the lock has no queue, it is subscribed.
func awaitListener(tb testing.TB, rdb redis.UniversalClient, name string) {
	tb.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	redistest.Eventually(tb, "a waiter is told of a release of "+name, func() bool {
		n, err := rdb.PubSubNumSub(context.Background(), channel).Result()
		require.NoError(tb, err)
		return n[channel] > 0 || hearing(tb, rdb, name) > 0 || rdb.ZCard(context.Background(), lua.QuorumOf(name)).Val() > 0
	})
}

// requireNothing requires that lock and queue are gone soon.
func requireNothing(tb testing.TB, rdb redis.UniversalClient, name string) {
	tb.Helper()
	redistest.Eventually(tb, "nothing is left of "+name, func() bool {
		return rdb.Exists(context.Background(), name).Val()+rdb.Exists(context.Background(), lua.QueueOf(name)).Val()+rdb.Exists(context.Background(), lua.QueueOfRW(name)).Val() == 0
	})
}

// clientOf returns the client of an owner.
func clientOf(owner string) string {
	client, _, _ := strings.Cut(owner, ":")
	return client
}
