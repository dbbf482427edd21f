package interop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// kept: a lock that its client keeps is Java's when its time is over, as Java cannot
// recall it. A client in Go that came before can; and beside somebody in Java who waits
// nothing is kept.
func kept(t *testing.T, s *site, row string) {
	const d = 300 * time.Millisecond
	name := lockName()
	mu := s.goParty(t, defaultLease).(*goParty).lock("plain", name, rlock.WithRetention(d))
	java := s.javaParty(t, defaultLease).actor("plain", name)
	other := s.goParty(t, defaultLease).actor("plain", name)
	keep := func() {
		redistest.Eventually(t, "the lock is kept", func() bool {
			held, hold, err := mu.Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, hold.Unlock(held))
			_, count := s.owner(t, name)
			return count == "0"
		})
	}
	var inJava, inGo, beside sample
	for range 5 {
		keep()
		asked := time.Now()
		got := java.lock(0)
		require.NoError(t, got.err)
		inJava = append(inJava, got.ended.Sub(asked))
		unlocked(t, java)

		keep()
		asked = time.Now()
		got = other.lock(0)
		require.NoError(t, got.err)
		inGo = append(inGo, got.ended.Sub(asked))
		unlocked(t, other)

		held, hold, err := mu.Lock(t.Context())
		require.NoError(t, err)
		waits := s.wait(t, java, name)
		released := time.Now()
		require.NoError(t, hold.Unlock(held))
		beside = append(beside, await(t, waits).ended.Sub(released))
		unlocked(t, java)
	}
	s.report.set(row+": 300 ms, Java", s.column, inJava.String())
	s.report.set(row+": recalled by Go", s.column, inGo.String())
	s.report.set(row+": Java waits already", s.column, beside.String())
	s.report.set(row, s.column, "passed on")
	require.Less(t, inJava.worst(), woken)
	require.Less(t, inGo.median(), d, "nobody has recalled it")
	require.Less(t, beside.median(), d, "it was kept beside who waits")
}
