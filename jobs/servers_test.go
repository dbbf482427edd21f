package jobs_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/jobs"
	"github.com/go-rlock/rlock/rlock"
)

// follow makes a server the replica of another.
func follow(t *testing.T, replica, master *redistest.Server) {
	t.Helper()
	rdb := replica.Client(t)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	require.NoError(t, rdb.ReplicaOf(t.Context(), host, port).Err())
	redistest.Eventually(t, "the replica is linked", func() bool {
		return strings.Contains(rdb.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
}

// Five schedulers that call Do each second, one after the other, for a minute. Every fifth fire is claimed
// at a master whose replica does not hear of it, and which dies then; the replica takes over. Without
// WithReplicas the hosts that call later claim that fire again.
func TestFailoversWithReplicas(t *testing.T) {
	redistest.Long(t, "a fire for each of 60 seconds")
	t.Parallel()
	now := func() *redistest.Server { return redistest.Start(t, "--repl-diskless-sync-delay", "0") }
	master, replica := now(), now()
	follow(t, replica, master)
	var current atomic.Pointer[string] // address
	point := func(s *redistest.Server) { addr := s.Addr(); current.Store(&addr) }
	point(master)

	second := jobs.Every(time.Second)
	begin := second.Next(time.Now().Add(2 * time.Second)).Add(-50 * ms)
	end := begin.Add(60 * time.Second)
	var f fires
	var unreplicated atomic.Int64
	var hosts sync.WaitGroup
	for i := range 5 {
		rdb := redis.NewClient(&redis.Options{Addr: "current", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, *current.Load())
		}})
		job := jobs.New(locks(t, rdb, nil), "j", second, jobs.WithReplicas(1, 100*ms), jobs.WithEarly(0))
		hosts.Go(func() {
			for at := second.Next(begin); at.Before(end); at = second.Next(at) {
				time.Sleep(time.Until(at.Add(time.Duration(i) * 180 * ms)))
				_, err := job.Do(t.Context(), f.note)
				switch {
				case errors.Is(err, rlock.ErrNotReplicated):
					unreplicated.Add(1)
				case err != nil && !errors.Is(err, rlock.ErrUnavailable) && !errors.Is(err, jobs.ErrRunning) && !errors.Is(err, rlock.ErrLeaseLost):
					t.Error(err)
				}
			}
		})
	}
	failovers := 0
	for at := second.Next(begin); at.Before(end.Add(-2 * time.Second)); at = at.Add(5 * time.Second) {
		time.Sleep(time.Until(at.Add(-30 * ms)))
		require.NoError(t, replica.Client(t).ReplicaOf(t.Context(), "no", "one").Err())
		time.Sleep(time.Until(at.Add(80 * ms)))
		point(replica)
		master.Kill()
		master, replica = replica, master
		replica.Restart()
		follow(t, replica, master)
		failovers++
	}
	hosts.Wait()
	ran := f.between(begin, end)
	t.Logf("%d failovers, %d fires, %d twice; %d calls without a replica", failovers, ran, f.twice(), unreplicated.Load())
	require.Zero(t, f.twice())
	require.Greater(t, ran, 50, "on a slow machine, all five hosts may be late for a fire")
}

// A claim has one key, so a slot that moves does not keep it from being made. The lock and the note of
// AtLeastOnce wait.
func TestClusterAndSlotMove(t *testing.T) {
	redistest.Long(t, "a cluster of three")
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	period := jobs.Every(500 * ms)
	const names = 4
	ran := make([]fires, names)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	var hosts sync.WaitGroup
	for range 3 {
		locks := locks(t, cluster.Client(t), nil)
		for n, name := range []string{"plain", "with{tag}x", "{all}", "least"} {
			var opts []jobs.Option
			if name == "least" {
				opts = append(opts, jobs.AtLeastOnce())
			}
			hosts.Go(func() {
				if err := jobs.New(locks, name, period, opts...).Run(ctx, ran[n].note); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(name, err)
				}
			})
		}
	}
	time.Sleep(time.Second)
	rdb := cluster.Client(t)
	for _, name := range []string{"plain", "tag", "all", "least"} {
		slot := cluster.Slot(name)
		m := cluster.BeginMove(slot, cluster.Another(slot))
		time.Sleep(600 * ms)
		m.MoveKeys()
		time.Sleep(100 * ms)
		m.Finish()
	}
	hosts.Wait()
	for _, name := range []string{"plain", "with{tag}x", "{all}", "least"} {
		require.EqualValues(t, 1, rdb.Exists(t.Context(), companion.Key(name)).Val(), name)
	}
	for n := range ran {
		t.Logf("%d fires, %d twice", len(ran[n].ran), ran[n].twice())
		require.Zero(t, ran[n].twice())
		require.GreaterOrEqual(t, len(ran[n].ran), 12)
	}
}
