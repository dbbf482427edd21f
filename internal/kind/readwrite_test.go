package kind

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
)

// A writer that waits keeps new readers out for a while, and asks again while that lasts: it has
// left something then. One that does not wait leaves nothing.
func TestFakeTimeIntentOfAWriter(t *testing.T) {
	refused := func(kept int64) any { return []any{int64(0), int64(5000), "you:1", kept} }
	for name, tt := range map[string]struct {
		wait   bool
		reply  any
		intent int64
		want   lua.Reply
	}{
		"refused by readers":    {true, refused(1), 10_000, lua.Reply{TTL: 5 * time.Second, Holder: "you:1", Leftover: true, AskIn: 5 * time.Second}},
		"refused by a writer":   {true, refused(0), 10_000, lua.Reply{TTL: 5 * time.Second, Holder: "you:1"}},
		"it does not wait":      {false, refused(0), 0, lua.Reply{TTL: 5 * time.Second, Holder: "you:1"}},
		"granted, with a token": {true, []any{int64(1), int64(7)}, 10_000, lua.Reply{Acquired: true, Token: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFake(t, "me")
				f.answers(func(context.Context, []any) any { return tt.reply })
				a, err := NewReadWrite(f.Server, "lock", false, false).Acquire(t.Context(), f.Scripts, "me:1", time.Minute, Options{Wait: tt.wait})
				require.NoError(t, err)
				require.Equal(t, tt.want, a)
				words := f.commands()[0]
				require.Equal(t, []any{"lock", "rlock_rwlock_intent:{lock}"}, keysOf(words))
				require.Equal(t, []any{int64(60_000), "me:1", "{lock}:", tt.intent}, words[5:])
			})
		})
	}
}

// A reader has no intent, and leaves nothing where it is refused.
func TestFakeTimeReader(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		f.answers(func(context.Context, []any) any { return []any{int64(0), int64(5000), "", int64(1)} })
		p := NewReadWrite(f.Server, "lock", true, true)
		a, err := p.Acquire(t.Context(), f.Scripts, "me:1", time.Minute, Options{Wait: true})
		require.NoError(t, err)
		require.Equal(t, lua.Reply{TTL: 5 * time.Second, Writer: true}, a)
		words := f.commands()[0]
		require.Equal(t, []any{"lock", "rlock_rwlock_intent:{lock}", "{lock}:me:1:rwlock_timeout:1", "redisson_lock_token:{lock}"}, keysOf(words))
		require.Equal(t, []any{int64(60_000), "me:1", "{lock}:"}, words[7:])
	})
}

// A writer's context may have holds of both sides, so both are counted, renewed and released by the
// same requests, whichever side made the grant.
func TestFakeTimeSidesOfOneGrant(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		var asked [2][][]any
		for i, shared := range []bool{false, true} {
			p := NewReadWrite(f.Server, "a{lock}", false, shared)
			require.True(t, p.Gathers(true))
			_, err := p.SetCount(t.Context(), f.Scripts, "me:1", time.Minute, Count{Exclusive: 3, Shared: 2})
			require.NoError(t, err)
			_, err = p.Release(t.Context(), f.Scripts, "me:1", lua.Ending{})
			require.NoError(t, err)
			r := p.Renewals("me:1", time.Minute)
			require.Len(t, r, 1)
			require.Equal(t, []error{nil}, lua.Renew(t.Context(), r[0].RDB, []lua.Renewal{r[0].Renewal}))
			asked[i] = f.commands()
		}
		require.Equal(t, asked[0], asked[1])
		const key, intent, hold = "a{lock}", "rlock_rwlock_intent:a{lock}", "a{lock}:me:1:rwlock_timeout:" // by Redisson's rule for names with a hash tag
		require.Equal(t, []any{key, intent, hold + "1", hold + "2"}, keysOf(asked[0][0]))
		require.Equal(t, []any{key, intent, hold + "1"}, keysOf(asked[0][1]))
		require.Equal(t, []any{key, hold + "1"}, keysOf(asked[0][2]))
	})
}

// Every message wakes: what lets one reader in lets in all.
func TestFakeTimeReadWriteHears(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		releases, changes := make(chan int, 9), make(chan int, 9)
		s := NewReadWrite(f.Server, "lock", false, true).Subscribe(Events{Released: func() { releases <- 0 }, Changed: func() { changes <- 0 }})
		<-changes // the subscription is confirmed
		for range 3 {
			f.wire.tell(pubsub.Event{Kind: pubsub.Message, Channel: "redisson_rwlock:{lock}", Payload: "0"})
			<-releases
		}
		s.Close()
	})
}
