package rlock

import (
	"testing"

	"github.com/rs/xid"
	"github.com/stretchr/testify/require"
)

// Clients that are made at one time on machines that look alike have the time in common, and
// nothing else.
func TestClientIDsAreRandom(t *testing.T) {
	read := func() xid.ID {
		id, err := xid.FromString(newID())
		require.NoError(t, err)
		return id
	}
	a, b := read(), read()
	require.WithinDuration(t, a.Time(), b.Time(), 1e9)
	require.NotEqual(t, a[4:9], b[4:9], "machine and process")
	require.NotEqual(t, a[9:], b[9:])
}
