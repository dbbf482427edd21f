package interop

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// renewal: the holder's watchdog keeps a waiter of the other side out for longer
// than either lease, whose lengths differ.
func renewal(holders, others time.Duration) func(*testing.T, pairing) {
	return func(t *testing.T, p pairing) {
		name := lockName()
		holder, waiter := p.holder(t, holders).actor(p.held, name), p.other(t, others).actor(p.wanted, name)
		require.NoError(t, holder.lock(0).err)
		owner, _ := p.owner(t, name)
		got := p.wait(t, waiter, name)
		for end := time.Now().Add(2 * max(holders, others)); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			stillOut(t, got, "the holder renews it")
			now, _ := p.owner(t, name)
			require.Equal(t, owner, now)
			require.LessOrEqual(t, p.ttl(t, name), holders, "the lease is the holder's")
		}
		released := unlocked(t, holder)
		took := await(t, got).ended.Sub(released)
		unlocked(t, waiter)
		p.passed(sample{took})
	}
}

// force: the other side removes the lock. A waiter of the holder's side has it long before
// the lease would have ended: it is woken, or asks, as one in Go does every 5 s. The holder
// notices, and neither its renewal nor its unlock touches the new hold.
func force(t *testing.T, p pairing) {
	name := lockName()
	holder, waiter := p.holder(t, defaultLease).actor(p.held, name), p.holder(t, defaultLease).actor(p.wanted, name)
	remover := p.other(t, defaultLease)
	require.NoError(t, holder.lock(0).err)
	got := p.wait(t, waiter, name)
	stillOut(t, got, "the holder has it")
	began := time.Now()
	removed, err := remover.forceUnlock(p.held, name)
	require.NoError(t, err)
	require.True(t, removed)
	took := await(t, got).ended.Sub(began)
	require.Less(t, took, woken, "it was left to the TTL")

	result := sample{took}.String()
	if a, ok := holder.(*goActor); ok {
		select {
		case <-a.ctx().Done():
		case <-time.After(callLimit):
			t.Fatal("the holder's context lives on")
		}
		result += ", the holder told after " + ms(time.Since(began)) + " ms"
		require.ErrorIs(t, context.Cause(a.ctx()), rlock.ErrLeaseLost)
		var lost *rlock.LostError
		require.ErrorAs(t, context.Cause(a.ctx()), &lost)
		require.Equal(t, name, lost.Name)
	} else {
		held := holder.(*remoteActor).call("held")
		require.NoError(t, held.err)
		require.Equal(t, "false", held.value)
	}
	owner, _ := p.owner(t, name)
	time.Sleep(defaultLease / 3) // the old holder's renewals fall due
	_, err = holder.unlock()
	require.True(t, lostBy(err), "%v", err)
	now, count := p.owner(t, name)
	require.Equal(t, owner, now)
	require.Equal(t, "1", count)
	require.Greater(t, p.ttl(t, name), defaultLease/3, "the new hold has kept its lease")
	unlocked(t, waiter)
	removed, err = remover.forceUnlock(p.held, name)
	require.NoError(t, err)
	require.False(t, removed, "it is free")
	p.passed(text(result))
}

// mortal starts a process of the holder's side.
func (p pairing) mortal(t *testing.T) *process {
	t.Helper()
	if p.inGo {
		return goPeer(t)
	}
	return startProcess(t, p.run())
}

// killed: the process of a holder gets a SIGKILL. The other side takes over when
// the lease ends, not before and not much later.
func killed(t *testing.T, p pairing) {
	const lease = shortLease
	name := lockName()
	other := p.other(t, lease)
	waiter := other.actor(p.wanted, name)
	process := p.mortal(t)
	holder := newRemoteParty(t, "killed", process, p.topology, p.srv.Addr(), lease).actor(p.held, name)
	require.NoError(t, holder.lock(0).err)
	got := p.wait(t, waiter, name)
	redistest.Eventually(t, "the lease is renewed", func() bool { return p.ttl(t, name) < lease*3/4 })
	redistest.Eventually(t, "the lease is renewed", func() bool { return p.ttl(t, name) > lease*3/4 })
	process.kill()
	ends := time.Now().Add(p.ttl(t, name))
	took := await(t, got).ended.Sub(ends)
	unlocked(t, waiter)
	require.Greater(t, took, -100*time.Millisecond, "before the lease ended")
	require.Less(t, took, woken)
	p.passed(sample{took})
}

// late: the holder's fixed lease ends and the other side takes the lock. The
// holder's unlock is refused, in its side's way, and changes nothing.
func late(t *testing.T, p pairing) {
	const lease = shortLease
	name := lockName()
	holder, waiter := p.holder(t, defaultLease).actor(p.held, name), p.other(t, defaultLease).actor(p.wanted, name)
	require.NoError(t, holder.lock(lease).err)
	ends := time.Now().Add(p.ttl(t, name))
	took := await(t, p.wait(t, waiter, name)).ended.Sub(ends)
	owner, _ := p.owner(t, name)

	_, err := holder.unlock()
	require.True(t, lostBy(err), "%v", err)
	now, count := p.owner(t, name)
	require.Equal(t, owner, now)
	require.Equal(t, "1", count)
	require.Greater(t, p.ttl(t, name), defaultLease*2/3)
	unlocked(t, waiter)
	require.Less(t, took, woken)
	require.Greater(t, took, -100*time.Millisecond, "before the lease ended")
	p.passed(sample{took})
}
