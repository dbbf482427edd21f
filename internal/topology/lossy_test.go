package topology

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

const lease = 3 * time.Second

// pair is a master with a replica, whose roles the test itself exchanges.
type pair struct {
	t               *testing.T
	master, replica *redistest.Server
	addr            atomic.Pointer[string] // where the clients connect to
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t}
	for _, s := range []**redistest.Server{&p.master, &p.replica} {
		*s = redistest.Start(t, "--repl-diskless-sync-delay", "0")
	}
	p.follow()
	return p
}

// follow makes one a replica of the other, and the clients connect to that.
func (p *pair) follow() {
	p.t.Helper()
	addr := p.master.Addr()
	p.addr.Store(&addr)
	host, port, _ := net.SplitHostPort(addr)
	require.NoError(p.t, p.replica.Client(p.t).ReplicaOf(context.Background(), host, port).Err())
	rdb := p.master.Client(p.t)
	redistest.Eventually(p.t, "the replica has caught up", func() bool {
		return strings.Contains(rdb.Info(context.Background(), "replication").Val(), "state=online")
	})
}

// part has the replica hear nothing of its master any more. It keeps what it has.
func (p *pair) part() {
	p.t.Helper()
	require.NoError(p.t, p.replica.Client(p.t).ReplicaOf(context.Background(), "127.0.0.1", "1").Err())
}

// failOver kills the master and promotes the replica; the dead one comes back
// with reunite.
func (p *pair) failOver() {
	p.t.Helper()
	p.master.Kill()
	p.master, p.replica = p.replica, p.master
	require.NoError(p.t, p.master.Client(p.t).ReplicaOf(context.Background(), "no", "one").Err())
	addr := p.master.Addr()
	p.addr.Store(&addr)
}

func (p *pair) reunite() {
	p.t.Helper()
	p.replica.Restart()
	p.follow()
}

// client connects to whoever is the master, as a failover client does.
func (p *pair) client() *rlock.Client {
	return clientOn(p.t, p.master.Client(p.t, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, *p.addr.Load())
		}
	}), &rlock.Options{LeaseTime: lease})
}

// store accepts writes under a fencing token, and refuses those under an older one.
type store struct{ newest int64 }

var errStale = errors.New("a newer token was here")

func (s *store) write(token int64) error {
	if token < s.newest {
		return errStale
	}
	s.newest = token
	return nil
}

// Without WithReplicas, a failover to a replica that has not heard of the grant
// hands the lock to a second owner. The first one is told before its window ends,
// and the store refuses what it writes after the second.
func TestLossyFailover(t *testing.T) {
	redistest.Long(t, "failovers")
	t.Parallel()
	p := newPair(t)
	var s store
	first, second := p.client().NewLock("a", rlock.WithFencing()), p.client().NewLock("a", rlock.WithFencing())
	for range rounds() {
		p.part()
		held, hold := lock(t, t.Context(), first)
		require.NoError(t, s.write(hold.Token()))
		until := hold.Until()
		p.failOver()

		held2, hold2, err := second.TryLockFor(t.Context(), lease)
		require.NoError(t, err)
		require.NoError(t, held.Err(), "two owners: that is what the replica's ignorance costs")
		require.Greater(t, hold2.Token(), hold.Token())
		require.NoError(t, s.write(hold2.Token()))
		require.ErrorIs(t, s.write(hold.Token()), errStale)

		select {
		case <-held.Done():
		case <-time.After(10 * time.Second):
		}
		require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
		require.True(t, time.Now().Before(until), "it is told inside its window")
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
		require.NoError(t, held2.Err())
		require.NoError(t, hold2.Unlock(held2))
		p.reunite()
	}
}

// With WithReplicas a grant is one that the replica has, or none.
func TestReplicatedFailover(t *testing.T) {
	redistest.Long(t, "failovers")
	t.Parallel()
	p := newPair(t)
	options := []rlock.LockOption{rlock.WithReplicas(1, 100*time.Millisecond), rlock.WithFencing(), rlock.WithLeaseTime(5 * lease)}
	first := p.client().NewLock("a", options...)
	other := p.client()
	plain := other.NewLock("a", rlock.WithFencing()) // the new master has no replica yet
	for n := range 2 * rounds() {
		parted := n%2 == 1
		if parted {
			p.part()
		}
		held, hold, err := first.TryLock(t.Context())
		for tries := 1; !parted && err != nil && tries < 100; tries++ {
			// The replica was slow; what was granted in vain is released in the background.
			require.True(t, errors.Is(err, rlock.ErrNotReplicated) || errors.Is(err, rlock.ErrNotAcquired), "%v", err)
			time.Sleep(10 * time.Millisecond)
			held, hold, err = first.TryLock(t.Context())
		}
		if parted {
			require.ErrorIs(t, err, rlock.ErrNotReplicated)
		} else {
			require.NoError(t, err)
		}
		p.part() // so that nothing more arrives
		p.failOver()

		held2, hold2, err2 := plain.TryLock(t.Context())
		for errors.Is(err2, rlock.ErrUnavailable) { // its connections were to the dead master
			held2, hold2, err2 = plain.TryLock(t.Context())
		}
		if err == nil {
			require.ErrorIs(t, err2, rlock.ErrNotAcquired, "the grant has survived")
			until := hold.Until()
			redistest.Eventually(t, "it is renewed", func() bool { return hold.Until().After(until) })
			require.NoError(t, held.Err())
			require.NoError(t, hold.Unlock(held))
		} else {
			require.NoError(t, err2)
			require.NoError(t, hold2.Unlock(held2))
		}
		p.reunite()
	}
}

// rounds is how many failovers are provoked.
func rounds() int {
	if os.Getenv("RLOCK_TOPOLOGY") == "" {
		return 2
	}
	return 20
}
