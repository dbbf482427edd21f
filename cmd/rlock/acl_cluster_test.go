package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// clusterUser is a user of few rights on a cluster.
type clusterUser struct {
	t     *testing.T
	admin *redis.ClusterClient
	rdb   *redis.ClusterClient
}

// newClusterUser makes a user as the doctor's line says, apart from one item, on a node and others.
func newClusterUser(t *testing.T, without string, node *redistest.Server, others ...*redistest.Server) *clusterUser {
	t.Helper()
	name := strings.NewReplacer("|", "-", ":", "-", "{", "-", "}", "-", "*", "-").Replace("u" + without)
	var line []any
	for _, word := range words(aclLine(name, aclPrefix, aclPrefix+"*", lockUser|readUser|clustered|sharding|replicating|moving)) {
		if word != without {
			line = append(line, word)
		}
	}
	for _, node := range append(others, node) {
		require.NoError(t, node.Client(t).Do(t.Context(), line...).Err())
	}
	u := &clusterUser{t: t}
	u.admin = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{node.Addr()}})
	u.rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{node.Addr()}, Username: name, Password: "PASSWORD"})
	t.Cleanup(func() { require.NoError(t, errors.Join(u.rdb.Close(), u.admin.Close())) })
	return u
}

// works uses a feature of a cluster under a name, and returns why it could not.
func (u *clusterUser) works(f feature, name string) error {
	ctx, cancel := context.WithTimeout(u.t.Context(), limit)
	defer cancel()
	var both [2]*rlock.Client
	for i, rdb := range []*redis.ClusterClient{u.rdb, u.admin} {
		c, err := rlock.New(rdb, &rlock.Options{Prefix: aclPrefix, LeaseTime: 3 * time.Second, UnlockTimeout: time.Second})
		require.NoError(u.t, err)
		defer closeWithin(c, closeTimeout)
		both[i] = c
	}
	mine, theirs := both[0].NewLock(name, rlock.WithFencing()), both[1].NewLock(name, rlock.WithFencing())
	switch f {
	case clustered:
		return u.look(ctx, mine)
	case sharding:
		return u.wake(ctx, mine, theirs)
	}
	return replicate(ctx, both[0].NewLock(name, rlock.WithReplicas(1, 10*time.Millisecond)))
}

// look locks, inspects a lock that Redisson waits for, and lists it.
func (u *clusterUser) look(ctx context.Context, mine *rlock.Lock) error {
	_, hold, err := mine.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	listener := u.admin.SSubscribe(ctx, relative("redisson_lock__channel", mine.Name()))
	defer func() { _ = listener.Close() }()
	if _, err := listener.Receive(ctx); err != nil {
		return err
	}
	if state, err := mine.Inspect(ctx); err != nil || state.Waiters != 1 {
		return fmt.Errorf("%d wait: %w", state.Waiters, err)
	}
	_, err = (&server{rdb: u.rdb, prefix: aclPrefix}).list(ctx, "*")
	return err
}

// wake does it by sharded channels, with a probe.
func (u *clusterUser) wake(ctx context.Context, mine, theirs *rlock.Lock) error {
	_, hold, err := theirs.Lock(ctx)
	if err != nil {
		return err
	}
	err = whileWaiting(ctx, mine, func() bool {
		return len(u.admin.PubSubShardChannels(ctx, "redisson_lock__channel:rlock-probe:*{"+aclPrefix+mine.Name()+"}").Val()) == 1
	})
	if err = errors.Join(err, hold.Unlock(ctx)); err != nil {
		return err
	}
	return wakes(ctx, mine, theirs, u.admin.SSubscribe, func() []string {
		return u.admin.PubSubShardChannels(ctx, relative("rlock_channel", mine.Name())+":*").Val()
	}, func() bool { return u.admin.ZCount(ctx, relative("rlock_queue", mine.Name()), "1", "+inf").Val() == 1 })
}

// TestRightsInACluster takes each item out in turn that only a cluster needs.
func TestRightsInACluster(t *testing.T) {
	redistest.Long(t, "a cluster without each right in turn")
	redistest.Since7(t, "rights to sharded channels")
	logging.Disable() // go-redis would log that it may not ask for COMMAND
	node := startCluster(t)
	for _, r := range append(rightsFor(aclPrefix, aclPrefix+"*"), right{item: "nothing"}) {
		if r.needs&(clustered|sharding|replicating) != r.needs {
			continue // see TestRights, and for slots that move the test below
		}
		t.Run(r.item, func(t *testing.T) {
			t.Parallel()
			u := newClusterUser(t, r.item, node)
			var broken feature
			for _, f := range []feature{clustered, sharding, replicating} {
				if err := u.works(f, "x"+r.item); err != nil {
					t.Logf("feature %v: %v", f, err)
					broken |= f
				}
			}
			follows := r.needs
			if r.item == "+cluster|slots" {
				follows |= sharding | replicating
			}
			require.Equal(t, r.needs, broken&r.needs, "said to break without it")
			require.Zero(t, broken&^follows, "not said to break without it")
		})
	}
}

// TestRightsWhileASlotMoves: what is held while its keys are on another node already is renewed,
// unlocked and had by others there.
func TestRightsWhileASlotMoves(t *testing.T) {
	redistest.Long(t, "moves slots of a cluster")
	redistest.Since7(t, "rights to sharded channels")
	logging.Disable()
	cluster := redistest.StartCluster(t, 2, 0)
	for _, without := range []string{"nothing", "+asking"} {
		t.Run(without, func(t *testing.T) {
			u := newClusterUser(t, without, cluster.Nodes[0], cluster.Nodes[1])
			c, err := rlock.New(u.rdb, &rlock.Options{Prefix: aclPrefix, LeaseTime: time.Second, UnlockTimeout: 2 * time.Second})
			require.NoError(t, err)
			defer closeWithin(c, closeTimeout)
			mu := c.NewLock(without)
			held, hold, err := mu.Lock(t.Context())
			require.NoError(t, err)
			slot := cluster.Slot(aclPrefix + without)
			move := cluster.BeginMove(slot, cluster.Another(slot))
			defer move.Finish()
			defer move.MoveKeys()
			move.MoveKeys()
			select {
			case <-held.Done():
			case <-time.After(2 * time.Second):
			}
			if err := hold.Unlock(held); without == "+asking" {
				require.ErrorIs(t, err, rlock.ErrLeaseLost)
				require.ErrorContains(t, err, "asking")
				_, _, err = c.NewLock(without, rlock.WithReplicas(1, 10*time.Millisecond)).TryLock(t.Context())
				require.ErrorIs(t, err, rlock.ErrUnavailable)
				require.ErrorContains(t, err, "asking")
				return
			}
			require.NoError(t, err)
			require.NoError(t, mu.TryDo(t.Context(), func(context.Context) error { return nil }))
		})
	}
}

// TestDoctorInACluster has the doctor find that its own line is enough, and name
// what is missing.
func TestDoctorInACluster(t *testing.T) {
	redistest.Long(t, "the doctor is called again and again on a cluster")
	node := startCluster(t)
	admin := node.Client(t)
	_, r := examined(t, node.URL(), "--cluster", "--prefix", aclPrefix)
	line := strings.Replace(r.ACL.Locks, "SETUSER rlock ", "SETUSER u ", 1)
	require.NoError(t, admin.Do(t.Context(), words(line)...).Err())
	url := strings.Replace(node.URL(), "redis://", "redis://u:PASSWORD@", 1)
	_, r = examined(t, url, "--cluster", "--prefix", aclPrefix)
	require.Equal(t, fine, r.levels()["acl"], "%+v", r.Findings)
	require.Equal(t, fine, r.levels()["lock"], "%+v", r.Findings)
	redistest.Since7(t, "rights to sharded channels")
	for _, item := range []string{"pubsub|shardnumsub", "spublish", "ssubscribe", "sunsubscribe", "wait", "asking"} {
		require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "u", "-"+item).Err())
		d := newDoctor(&server{rdb: clusterAs(t, node), prefix: aclPrefix}, "*")
		d.findNodes(t.Context())
		d.checkRights(t.Context())
		require.Equal(t, warning, d.report.levels()["acl"], item)
		require.Contains(t, d.report.about("acl").Text, "+"+item+":")
		require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "u", "+"+item).Err())
	}
}

func clusterAs(t *testing.T, node *redistest.Server) *redis.ClusterClient {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{node.Addr()}, Username: "u", Password: "PASSWORD"})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
