package kind

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// Who has joined a hold sends nothing but questions: the lock is the holder's to acquire, to count,
// to renew and to release.
func TestFakeTimeJoinedSendsNothing(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		holder := NewQueued(f.Server, "lock", false)
		k := holder.Joined()
		require.Equal(t, holder.Key(), k.Key(), "it nests in the lock")
		a, err := k.Acquire(t.Context(), f.Scripts, "you:1", time.Minute, Options{})
		require.Equal(t, errHolders, err)
		require.Zero(t, a)
		_, err = k.SetCount(t.Context(), f.Scripts, "you:1", time.Minute, Count{Exclusive: 2})
		require.Equal(t, errHolders, err)
		released, err := k.Release(t.Context(), f.Scripts, "you:1", lua.Ending{})
		require.NoError(t, err, "there is nothing to give back")
		require.Zero(t, released)
		require.Empty(t, f.commands())
	})
}

// A renewal of who has joined only looks, and says what the holder has left.
func TestFakeTimeJoinedOnlyLooks(t *testing.T) {
	for name, tt := range map[string]struct {
		reply    any
		left     time.Duration
		renewed  error // of the renewal
		confirms error
	}{
		"held":           {[]any{int64(1), int64(9000)}, 9 * time.Second, lua.Left(9 * time.Second), nil},
		"it has no end":  {[]any{int64(1), int64(-1)}, -time.Millisecond, lua.Left(-time.Millisecond), nil},
		"held no more":   {int64(0), 0, lua.ErrNotOwner, lua.ErrNotOwner},
		"it is not told": {errLoading, 0, errLoading, errLoading},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFake(t, "me")
				f.answers(func(context.Context, []any) any { return tt.reply })
				p := NewQueued(f.Server, "lock", false)
				left, err := p.Confirm(t.Context(), f.Scripts, "you:1")
				require.Equal(t, tt.confirms, err)
				require.Equal(t, tt.left, left)
				renewals := p.Joined().Renewals("you:1", time.Minute)
				require.Len(t, renewals, 1)
				require.Equal(t, []error{tt.renewed}, lua.Renew(t.Context(), renewals[0].RDB, []lua.Renewal{renewals[0].Renewal}))
				asked := f.commands()
				require.Len(t, asked, 2)
				require.Equal(t, asked[0][1], asked[1][1], "the same question")
				for _, words := range asked {
					require.Equal(t, []any{"lock"}, keysOf(words))
					require.Equal(t, "you:1", words[5])
				}
			})
		})
	}
}
