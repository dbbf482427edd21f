package interop

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// readers: two of each side are inside together, and writers of both sides stay
// out until the last one leaves, which is one of the holder's side.
func readers(t *testing.T, p pairing) {
	name := lockName()
	ours, theirs := p.holder(t, defaultLease), p.other(t, defaultLease)
	leaving := []actor{theirs.actor("read", name), ours.actor("read", name), theirs.actor("read", name), ours.actor("read", name)}
	for _, a := range leaving {
		require.NoError(t, a.lock(0).err)
	}
	tryWriters := func() {
		t.Helper()
		for _, side := range []party{ours, theirs} {
			ok, err := side.actor("write", name).tryLock()
			require.NoError(t, err)
			require.False(t, ok, side)
		}
	}
	tryWriters()
	waiter := theirs.actor("write", name)
	got := p.wait(t, waiter, name)
	var released time.Time
	for left := len(leaving); left > 0; left-- {
		stillOut(t, got, "readers are inside")
		tryWriters()
		for _, side := range []party{ours, theirs} {
			holds, _, err := side.look("read", name)
			require.NoError(t, err)
			require.NotEmpty(t, holds, side)
			require.LessOrEqual(t, len(holds), left, "%v; readers of a client in Go may be one owner", side)
		}
		a := leaving[len(leaving)-left]
		n, err := a.holdCount()
		require.NoError(t, err)
		require.Equal(t, 1, n)
		released = unlocked(t, a)
	}
	took := await(t, got).ended.Sub(released)
	unlocked(t, waiter)
	require.Less(t, took, woken)
	p.passed(sample{took})
}

// crew: when a writer leaves, all readers that wait in one client of the other
// side come in, not only the first that is woken.
func crew(t *testing.T, p pairing) {
	const rounds = 20
	name := lockName()
	writer, other := p.holder(t, defaultLease).actor(p.held, name), p.other(t, defaultLease)
	crew := []actor{other.actor(p.wanted, name), other.actor(p.wanted, name), other.actor(p.wanted, name)}
	var took sample
	for range rounds {
		require.NoError(t, writer.lock(0).err)
		var got []<-chan acquired
		for _, a := range crew {
			got = append(got, p.wait(t, a, name))
		}
		released := unlocked(t, writer)
		var last time.Duration
		for _, c := range got {
			last = max(last, await(t, c).ended.Sub(released))
		}
		took = append(took, last)
		require.Less(t, last, woken, "somebody was left to the TTL")
		for _, a := range crew {
			unlocked(t, a)
		}
	}
	p.passed(took)
}

// downgrade: a writer takes the reader too and gives the writer back, so that
// another reader may enter and writers may not. A downgrade in Java wakes nobody:
// a reader in Go sees it when it asks of its own accord.
func downgrade(t *testing.T, p pairing) {
	const lease = longLease
	name := lockName()
	other := p.other(t, lease)
	writer := p.holder(t, lease).actor("write", name)
	reader, visitor := other.actor("read", name), other.actor("write", name)
	require.NoError(t, writer.lock(0).err)
	require.NoError(t, writer.as("read").lock(0).err)
	got := p.wait(t, reader, name)
	time.Sleep(lease / 10)
	stillOut(t, got, "it is not downgraded yet")
	downgraded := unlocked(t, writer)
	took := await(t, got).ended.Sub(downgraded)
	ok, err := visitor.tryLock()
	require.NoError(t, err)
	require.False(t, ok, "readers are inside")
	unlocked(t, reader)
	ok, err = visitor.tryLock()
	require.NoError(t, err)
	require.False(t, ok, "the reader that was a writer is inside")
	unlocked(t, writer.as("read"))
	ok, err = visitor.tryLock()
	require.NoError(t, err)
	require.True(t, ok)
	unlocked(t, visitor)
	require.Less(t, took, lease/2, "it was left to the TTL")
	if p.inGo {
		p.passed(sample{took})
	} else {
		p.passed(text("asked after " + ms(took) + " ms"))
	}
}

// leases reads in one moment what is left of a read/write lock and of the longest
// lease of its readers' holds, in milliseconds, and how many readers there are.
var leases = redis.NewScript(`
	local longest, readers = 0, 0
	local all = redis.call('hgetall', KEYS[1])
	for i = 1, #all, 2 do
		if all[i] ~= 'mode' then
			readers = readers + 1
			for n = 1, all[i + 1] do
				longest = math.max(longest, redis.call('pttl', '{' .. KEYS[1] .. '}:' .. all[i] .. ':rwlock_timeout:' .. n))
			end
		end
	end
	return {redis.call('pttl', KEYS[1]), longest, readers}`)

// companions: two readers, one of each side, renew their leases, and a writer
// stays out for longer than either. The lock must last as long as the longest
// hold. Redisson's renewal cuts it down to its own lease, if that is shorter;
// before 4.4 it does so to the holds of all readers. So both sides should have
// the same.
func companions(holders, others time.Duration) func(*testing.T, pairing) {
	return func(t *testing.T, p pairing) {
		name, longer := lockName(), max(holders, others)
		holder, other := p.holder(t, holders), p.other(t, others)
		pair := []actor{holder.actor("read", name), other.actor("read", name)}
		for _, a := range pair {
			require.NoError(t, a.lock(0).err)
		}
		waiter := other.actor("write", name)
		got := p.wait(t, waiter, name)
		least, cut := longer, time.Duration(0)
		for end := time.Now().Add(2 * longer); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			stillOut(t, got, "readers renew it")
			n, err := leases.Run(t.Context(), p.rdb, []string{name}).Int64Slice()
			require.NoError(t, err)
			require.EqualValues(t, len(pair), n[2])
			least = min(least, time.Duration(n[0])*time.Millisecond)
			cut = max(cut, time.Duration(n[1]-n[0])*time.Millisecond)
		}
		for _, a := range pair {
			unlocked(t, a)
		}
		await(t, got)
		unlocked(t, waiter)
		result := fmt.Sprintf("%s of %s ms left at least", ms(least), ms(longer))
		if !p.inGo && holders < others {
			require.LessOrEqual(t, least, holders, "Redisson spares the longer lease by now")
			result = "Java cuts: " + result
		} else {
			require.Less(t, cut, longer/6, "what stalls between two commands of a script is seen too")
			require.Greater(t, least, longer/4)
		}
		p.passed(text(result))
	}
}

// survived: a reader's process gets a SIGKILL while another reader, of the other
// side, goes on and renews. When that one leaves, after the dead one's lease, a
// writer gets in. Redisson before 4.4 renews the holds of all readers, also of
// dead ones, so that one more lease has to pass.
func survived(t *testing.T, p pairing) {
	const lease = shortLease
	name := lockName()
	other := p.other(t, lease)
	living, writer := other.actor("read", name), p.other(t, lease).actor("write", name)
	process := p.mortal(t)
	dead := newRemoteParty(t, "killed", process, p.topology, p.srv.Addr(), lease).actor("read", name)
	require.NoError(t, living.lock(0).err)
	require.NoError(t, dead.lock(0).err)
	got := p.wait(t, writer, name)
	process.kill()
	time.Sleep(2 * lease)
	stillOut(t, got, "a reader lives")
	released := unlocked(t, living)
	took := await(t, got).ended.Sub(released)
	unlocked(t, writer)
	redistest.Eventually(t, "nothing is left of the dead reader", func() bool {
		return p.rdb.Exists(t.Context(), name).Val() == 0
	})
	p.passed(text(sample{took}.String() + ", lease " + ms(lease) + " ms"))
}
