package interop

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// announced: Redisson's waiters are woken by -0, which is how ours tell a release of
// this library from one of Redisson's.
func announced(t *testing.T, p pairing) {
	name, says := lockName(), "0"
	if p.inGo {
		says = "-0"
	}
	holder, waiter := p.holder(t, defaultLease).actor(p.held, name), p.other(t, defaultLease).actor(p.wanted, name)
	var took sample
	for range 5 {
		require.NoError(t, holder.lock(0).err)
		got := p.wait(t, waiter, name)
		monitor := p.srv.Monitor(t)
		released := unlocked(t, holder)
		took = append(took, await(t, got).ended.Sub(released))
		var said []string
		for _, c := range monitor.Commands() {
			if strings.HasSuffix(strings.ToLower(c.Args[0]), "publish") && c.Args[1] == lua.UnlockChannel(name) {
				said = append(said, c.Args[2])
			}
		}
		monitor.Stop()
		require.Equal(t, []string{says}, said)
		unlocked(t, waiter)
	}
	p.passed(text(says + ": " + took.String()))
	require.Less(t, took.worst(), woken)
}

// tickets returns who stands in the queue of a lock, the first one first.
func (s *site) tickets(t *testing.T, name string) (owners []string) {
	t.Helper()
	all, err := s.rdb.ZRange(t.Context(), lua.QueueOf(name), 0, -1).Result()
	require.NoError(t, err)
	for _, owner := range all {
		if !strings.HasPrefix(owner, "!") {
			owners = append(owners, owner)
		}
	}
	return owners
}

// queue starts a lock call and returns when it has its ticket.
func (s *site) queue(t *testing.T, a actor, name string) <-chan acquired {
	t.Helper()
	before := len(s.tickets(t, name))
	got := later(func() acquired { return a.lock(0) })
	redistest.Eventually(t, "one more queues for "+name, func() bool { return len(s.tickets(t, name)) > before })
	return got
}

// behind: Redisson's release knows nothing of the queue, and yet the clients in it are
// served in their order, at once.
func behind(t *testing.T, s *site, row string) {
	name := lockName()
	java := s.javaParty(t, defaultLease).actor("plain", name)
	var clients []actor
	for range 3 {
		clients = append(clients, s.goParty(t, defaultLease).actor("plain", name))
	}
	var first, rest sample
	for range 20 {
		require.NoError(t, java.lock(0).err)
		var waits []<-chan acquired
		for _, c := range clients {
			waits = append(waits, s.queue(t, c, name))
		}
		time.Sleep(20 * time.Millisecond) // the newest of them subscribes
		released := unlocked(t, java)
		for i, got := range waits {
			a := await(t, got)
			for _, later := range waits[i+1:] {
				stillOut(t, later, "another was before it")
			}
			took := a.ended.Sub(released)
			if i == 0 {
				first = append(first, took)
			} else {
				rest = append(rest, took)
			}
			released = unlocked(t, clients[i])
		}
	}
	s.report.set(row+": the first", s.column, first.String())
	s.report.set(row+": each of the others", s.column, rest.String())
	s.report.set(row, s.column, "in order")
	require.Less(t, max(first.worst(), rest.worst()), woken)
}

// firstKilled: the first in the queue is to answer a release by Redisson. If it is
// dead, somebody else does.
func firstKilled(t *testing.T, s *site, row string) {
	after(t, s, row, func(name string) func() {
		p := goPeer(t)
		first := newRemoteParty(t, "Go", p, s.goTopology, s.srv.Addr(), defaultLease).actor("plain", name)
		got := s.queue(t, first, name)
		return func() {
			p.kill()
			require.ErrorIs(t, (<-got).err, errGone)
		}
	})
}

// firstLeaves is the same with one who gives up.
func firstLeaves(t *testing.T, s *site, row string) {
	party := s.goParty(t, defaultLease).(*goParty)
	after(t, s, row, func(name string) func() {
		ctx, cancel := context.WithCancel(context.Background())
		before := len(s.tickets(t, name))
		left := later(func() error {
			_, _, err := party.lock("plain", name).Lock(ctx)
			return err
		})
		redistest.Eventually(t, "it queues", func() bool { return len(s.tickets(t, name)) > before })
		return func() {
			cancel()
			require.ErrorIs(t, <-left, context.Canceled)
		}
	})
}

// after measures how long the second in the queue needs for what Redisson has
// released, when something has happened to the first.
func after(t *testing.T, s *site, row string, first func(name string) (happens func())) {
	name := lockName()
	java, second := s.javaParty(t, defaultLease).actor("plain", name), s.goParty(t, defaultLease).actor("plain", name)
	third := s.goParty(t, defaultLease).actor("plain", name)
	var took sample
	for _, pause := range []time.Duration{0, 100 * time.Millisecond, 0, 100 * time.Millisecond} {
		require.NoError(t, java.lock(0).err)
		happens := first(name)
		got := s.queue(t, second, name)
		last := s.queue(t, third, name)
		time.Sleep(20 * time.Millisecond)
		happens()
		time.Sleep(pause)
		released := unlocked(t, java)
		took = append(took, await(t, got).ended.Sub(released))
		released = unlocked(t, second)
		took = append(took, await(t, last).ended.Sub(released))
		unlocked(t, third)
	}
	s.report.set(row, s.column, took.String())
	require.Less(t, took.worst(), woken)
}
