package interop

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
)

// early: a writer leaves when a thread in Java has been refused, and does not wait at its semaphore yet. The
// message of a writer in Go is kept for the thread. That of a writer in Java is lost: Redisson releases as many
// permits as there are threads in line. The thread then sleeps until the TTL that it saw ends. A proxy holds the
// answer to the thread back, and not the message.
func early(t *testing.T, s *site, row string) {
	if s.topology != "standalone" {
		s.report.set(row, s.column, "not tried: Redisson finds the node behind the proxy")
		return
	}
	const answer, lease = time.Second, 8 * time.Second
	var tooks []string
	for _, side := range []string{"Go", "Java"} {
		name, proxy := lockName(), netfault.New(t, s.srv.Addr())
		waiter := newRemoteParty(t, "Java", s.java, s.javaTopology, proxy.Addr(), defaultLease).actor("write", name)
		writer := s.goParty(t, defaultLease).actor("write", name)
		if side == "Java" {
			writer = s.javaParty(t, defaultLease).actor("write", name)
		}
		require.NoError(t, writer.lock(lease).err)
		listens := false
		ask := proxy.Hold(func(args []string) bool { // the second one: the thread asks, listens, and asks again
			listens = listens || strings.EqualFold(args[0], "subscribe")
			return listens && strings.HasPrefix(strings.ToLower(args[0]), "eval")
		})
		got := later(func() acquired { return waiter.lock(0) })
		require.NoError(t, ask.Wait(t.Context()))
		proxy.Delay(0, answer)
		answered := time.Now().Add(answer) // at the earliest
		require.NoError(t, ask.Deliver(t.Context()))
		proxy.Delay(0, 0)
		left := s.ttl(t, name)
		released := unlocked(t, writer)
		in := await(t, got).ended
		took := in.Sub(released)
		unlocked(t, waiter)
		tooks = append(tooks, ms(took))
		require.Greater(t, left, 3*answer, "the machine stood still")
		require.True(t, released.Before(answered), "likewise")
		require.False(t, in.Before(answered), "the answer was not held back")
		if side == "Go" {
			require.Less(t, took, left, "the thread slept")
		} else {
			require.GreaterOrEqual(t, took, left, "Redisson keeps the message by now: see readWriteLoad and docs/redisson.md")
		}
	}
	s.report.set(row, s.column, fmt.Sprintf("in after %s ms if the writer is in Go, %s ms if it is in Java", tooks[0], tooks[1]))
}
