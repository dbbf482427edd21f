package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// In a cluster all keys and channels of a name are in one slot.
func TestCluster(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "a cluster")
	c := redistest.StartCluster(t, 3, 0)
	locks := func() *rlock.Client {
		return locksOn(t, c.Client(t), &rlock.Options{LeaseTime: lease, Prefix: "p:"})
	}
	for _, name := range []string{"plain", "with{tag}x", "{all}"} {
		e := election.New(locks(), name, "a")
		leaders, _ := observe(t, election.New(locks(), name, ""))
		require.Zero(t, next(t, leaders))
		for range 3 {
			held, term := campaign(t, t.Context(), e)
			require.Equal(t, term.Number(), next(t, leaders).Term)
			require.NoError(t, term.Resign(held))
			require.Zero(t, next(t, leaders))
		}
	}
}

// While a slot moves, a script with two keys of which one is already at the other node is refused. The leader
// stays the leader.
func TestSlotMoves(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "a cluster")
	c := redistest.StartCluster(t, 3, 0)
	e := election.New(locksOn(t, c.Client(t), &rlock.Options{LeaseTime: lease}), "e", "a")
	held, term := campaign(t, t.Context(), e)
	slot := c.Slot("e")
	move := c.BeginMove(slot, c.Another(slot))
	require.NoError(t, term.Proclaim(held, "before"))
	move.MoveKeys("e")
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := e.Leader(short)
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	time.Sleep(lease + lease/2) // renewed meanwhile
	require.NoError(t, e.IsLeader(t.Context()))
	move.MoveKeys()
	l, err := e.Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, "before", l.Value)
	move.Finish()
	require.NoError(t, held.Err())
	require.NoError(t, term.Proclaim(held, "after"))
	require.NoError(t, term.Resign(held))
}

// A failover that keeps the grants keeps the leader: replicas have acknowledged the lock before the term began.
func TestFailoverWithReplicas(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "a cluster with replicas")
	c := redistest.StartCluster(t, 3, 1)
	long := 20 * time.Second
	e := election.New(locksOn(t, c.Client(t), nil), "e", "a", election.WithLease(long), election.WithReplicas(1, 500*time.Millisecond))
	held, term := campaign(t, t.Context(), e)
	c.Failover(c.Replica(c.Owner(c.Slot("e"))))
	l, err := e.Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, term.Number(), l.Term)
	require.NoError(t, term.Proclaim(held, "after"))
	require.NoError(t, e.IsLeader(t.Context()))
	require.NoError(t, term.Resign(held))

	none := election.New(locksOn(t, c.Client(t), nil), "none", "a", election.WithReplicas(2, 10*time.Millisecond))
	_, _, err = none.Campaign(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotReplicated)
}
