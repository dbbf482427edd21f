package rlock

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
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

// A release that nobody was told of leaves no message to expect: the next one would
// be taken for it, and its waiters would sleep on.
func TestFakeTimeNoEchoOfWhatWasNotAnnounced(t *testing.T) {
	for name, tt := range map[string]struct {
		released lua.Released
		err      error
		want     int64
	}{
		"announced":       {lua.Released{Receivers: 1}, nil, 1},
		"nobody listened": {lua.Released{}, nil, 0},
		"not the owner":   {lua.Released{}, lua.ErrNotOwner, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l, f := newFake(t)
				l.handoff = handoff{}
				f.onRelease = func(context.Context, int) (lua.Released, error) { return tt.released, tt.err }
				_, hold, err := l.Lock(t.Context())
				require.NoError(t, err)
				s := queueing(c, l)
				s.gate.waiter = counter(7)
				s.gate.turns.listen(s.gate.waiter)
				require.Equal(t, tt.err != nil, hold.Unlock(t.Context()) != nil)
				require.Equal(t, tt.want, s.gate.turns.echoes)
				s.leave()
			})
		})
	}
}
