package rlock

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// What this client has announced is taken for its own message, unless the
// connection was in doubt meanwhile: then that may be lost, and the next message
// is somebody else's, who has got past the grant that the client believes in.
func TestFakeTimeEchoesEndWithADoubt(t *testing.T) {
	for _, doubt := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, l, _ := newFake(t)
			_, hold, err := l.Lock(t.Context())
			require.NoError(t, err)
			s := queueing(c, l)
			s.gate.waiter = counter(7)
			s.gate.turns.listen(s.gate.waiter)
			s.gate.turns.echoes = 1
			if doubt {
				_, try := s.outlook(true, nil) // woken by no message
				require.True(t, try)
			}
			s.gate.waiter = counter(8)
			_, try := s.outlook(true, hold.grant)
			require.Equal(t, doubt, try, "doubt: %t", doubt)
			s.leave()
			require.NoError(t, hold.Unlock(t.Context()))
		})
	}
}
