package rlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// The slot of a lock moves to a node that has no slot yet, and that the client of go-redis does
// not know. A master that has nothing to do with the lock is stopped: it delays nobody. A busy
// machine may be too slow for that, but not each time.
func TestReplicasOfANewNode(t *testing.T) {
	redistest.Long(t, "a cluster of four")
	t.Parallel()
	for name, readOnly := range map[string]bool{"a client that reads from masters": false, "one that reads from replicas": true} {
		t.Run(name, func(t *testing.T) {
			err := moveToNewNode(t, readOnly)
			for range 2 {
				if err != nil {
					t.Log("once more: ", err)
					err = moveToNewNode(t, readOnly)
				}
			}
			require.NoError(t, err)
		})
	}
}

// moveToNewNode tries to lock while the slot moves, and when it has moved.
func moveToNewNode(t *testing.T, readOnly bool) error {
	t.Helper()
	cluster := redistest.StartCluster(t, 2, 0, "--cluster-node-timeout", "60000", "--cluster-require-full-coverage", "no")
	node := cluster.AddNode()
	cluster.AddReplica(node) // the others have none: a WAIT there takes as long as it may
	awaitReplicas(t, node, 1)
	rdb := cluster.Client(t, func(o *redis.ClusterOptions) { o.ReadOnly = readOnly })
	require.NoError(t, rdb.Ping(t.Context()).Err())
	c := clientOn(t, rdb, nil)
	slot := cluster.Slot("a")
	plain, nothing := c.NewLock("{a}plain"), func(context.Context) error { return nil }
	require.NoError(t, plain.Do(t.Context(), nothing))
	stopped := cluster.Another(slot)

	try := func() error {
		stopped.Stop()
		defer stopped.Cont()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // less than an attempt may take
		defer cancel()
		err := c.NewLock("a", rlock.WithReplicas(1, 200*time.Millisecond)).TryDo(ctx, nothing)
		if errors.Is(err, rlock.ErrNotReplicated) { // the node has answered
			err = nil
		}
		return errors.Join(err, plain.Do(ctx, nothing))
	}
	move := cluster.BeginMove(slot, node)
	asked := try()
	move.MoveKeys()
	move.Finish()
	return errors.Join(asked, try()) // MOVED
}
