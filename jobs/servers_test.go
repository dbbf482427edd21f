package jobs_test

import (
	"context"
	"errors"
	"net"
	"slices"
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

// Five schedulers that call each second, one after the other, for a minute. Every fifth fire is claimed at a
// master whose replica does not hear of it, and which dies then; the replica takes over. Without WithReplicas the
// hosts that call later claim that fire again.
//
// Each fire is claimed once. The exception is a fire that no host could have: the servers had no replica, or the
// machine had no time for any host, from the fire to the next one, whose claim then takes the place of the unfinished
// one, or for a second attempt. On a machine that does nothing else there is none. Nine of 60 may be missed.
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
	var mu sync.Mutex              // guards called
	called := make(map[int64]bool) // the fires for which a host called in time
	var hosts sync.WaitGroup
	for i := range 5 {
		rdb := redis.NewClient(&redis.Options{Addr: "current", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, *current.Load())
		}})
		job := jobs.New(locks(t, rdb, nil), "j", second, jobs.WithReplicas(1, 100*ms), jobs.WithEarly(100*ms))
		hosts.Go(func() {
			for at := second.Next(begin); at.Before(end); at = second.Next(at) {
				time.Sleep(time.Until(at.Add(time.Duration(i) * 180 * ms)))
				mu.Lock()
				called[at.UnixMilli()] = called[at.UnixMilli()] || time.Since(at) < 900*ms
				mu.Unlock()
				fire, err := job.Claim(t.Context())
				switch {
				case err == nil:
					f.add(fire)
				case errors.Is(err, rlock.ErrNotReplicated):
					unreplicated.Add(1)
				case !errors.Is(err, jobs.ErrClaimed) && !errors.Is(err, rlock.ErrUnavailable):
					t.Error(err)
				}
			}
		})
	}
	type outage struct{ begin, end time.Time }
	var outages []outage
	for at := second.Next(begin); at.Before(end.Add(-2 * time.Second)); at = at.Add(5 * time.Second) {
		time.Sleep(time.Until(at.Add(-30 * ms)))
		o := outage{begin: time.Now()}
		require.NoError(t, replica.Client(t).ReplicaOf(t.Context(), "no", "one").Err())
		time.Sleep(time.Until(at.Add(80 * ms)))
		point(replica)
		master.Kill()
		master, replica = replica, master
		replica.Restart()
		follow(t, replica, master)
		o.end = time.Now()
		outages = append(outages, o)
	}
	hosts.Wait()
	fires, missed := 0, 0
	for at := second.Next(begin); at.Before(end); at = second.Next(at) {
		fires++
		switch {
		case f.ran[at.UnixMilli()] > 0:
		case !called[at.UnixMilli()], slices.ContainsFunc(outages, func(o outage) bool {
			return o.begin.Before(at) && o.end.After(at.Add(900*ms)) // a claim is sent again every 150 ms
		}):
			missed++
		default: // on a busy machine, the next attempt comes too late
			t.Logf("the fire of %v was not claimed, %v after the begin", at, at.Sub(begin))
		}
	}
	t.Logf("%d failovers, %d fires, %d claimed, %d twice; %d that no host could have; %d calls without a replica",
		len(outages), fires, f.between(begin, end), f.twice(), missed, unreplicated.Load())
	require.Zero(t, f.twice())
	require.Equal(t, 60, fires)
	require.Greater(t, f.between(begin, end), 50, "a busy machine misses a few")
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
