package interop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// with gives the sides settings of their own. It is false on a single server,
// where there is nothing to choose.
func (p *pairing) with(goTopology, javaTopology string) bool {
	if p.topology != "cluster" {
		p.passed(text("only in a cluster"))
		return false
	}
	s := *p.site
	s.goTopology, s.javaTopology = goTopology, javaTopology
	p.site = &s
	return true
}

// agreed: settings under which each side hears the other.
func agreed(goTopology, javaTopology string) func(*testing.T, pairing) {
	return func(t *testing.T, p pairing) {
		if p.with(goTopology, javaTopology) {
			handOver(20)(t, p)
		}
	}
}

// disagreed: settings under which neither hears the other. They exclude each
// other all the same, but a waiter in Java is left to the TTL it has seen, and one in Go
// asks of its own accord. That the first is so proves that the defaults, which do hear
// each other, both mean sharded channels.
func disagreed(goTopology, javaTopology string) func(*testing.T, pairing) {
	return func(t *testing.T, p pairing) {
		if !p.with(goTopology, javaTopology) {
			return
		}
		const lease = longLease
		name := lockName()
		holder, waiter := p.holder(t, lease).actor("plain", name), p.other(t, lease).actor("plain", name)
		require.NoError(t, holder.lock(0).err)
		got := p.wait(t, waiter, name)
		time.Sleep(lease / 10)
		stillOut(t, got, "the holder has it")
		released := unlocked(t, holder)
		took := await(t, got).ended.Sub(released)
		unlocked(t, waiter)
		if !p.inGo { // the waiter is
			require.Less(t, took, lease/2, "it was left to the TTL")
			p.passed(text("asked after " + ms(took) + " ms"))
			return
		}
		require.Greater(t, took, lease/5, "it was woken: the settings do agree")
		p.passed(text("left to the TTL: " + ms(took) + " of " + ms(lease) + " ms"))
	}
}
