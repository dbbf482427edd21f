package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/rlock"
)

// A lock that its client has kept since the last renewal, and that nobody holds, is told as
// kept; and no longer when it is held again.
func TestRecordOfAKeptLock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb, ctx := srv.Client(t), t.Context()
	c := newClient(t, srv, &rlock.Options{LeaseTime: 15 * time.Second})
	mu := c.NewLock("a", rlock.WithRetention(time.Hour), rlock.WithPurpose("partition 7"))
	kept(t, srv, mu)
	id := awaitRecord(t, rdb, "", record.Keeps, "a")
	r, ttl := readRecord(t, rdb, "", id)
	e := entry(r, record.Keeps, "a")
	require.Equal(t, "partition 7", e.Purpose)
	require.GreaterOrEqual(t, r.Age(*e, ttl), 5*time.Second, "a third of the lease")
	require.Nil(t, entry(r, record.Holds, "a"))

	require.NoError(t, mu.Do(ctx, func(context.Context) error {
		require.Equal(t, id, awaitRecord(t, rdb, "", record.Holds, "a"))
		r, _ := readRecord(t, rdb, "", id)
		require.Nil(t, entry(r, record.Keeps, "a"))
		return nil
	}))
}
