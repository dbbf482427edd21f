package verify

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is printed of a history that is not right, without the events of other locks.
func TestListing(t *testing.T) {
	events := join(
		both(0, "A", opLock, "", ok).of("x:1").token(7),
		both(0, "r", opRead, "A", ok).value(3),
		both(0, "u", opUnlock, "A", lost),
	)
	events[1].Shared = true
	events = append(events, event{Lock: "b", ID: "B"}, event{Lock: "a", Kind: opQueued}, event{Lock: "a", Kind: opStall})
	require.Equal(t, `    0.000 client 0 A lock called
   10.000 client 0 A lock ok, as a reader, owner x:1, token 7
   20.000 client 0 r read called, under A
   30.000 client 0 r read ok, under A, value 3
   40.000 client 0 u unlock called, under A
   50.000 client 0 u unlock lost, under A
`, listing(events, "a"))
}
