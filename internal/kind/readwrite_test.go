package kind

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
)

// Each side asks with its ticket, as the owner of a plain lock does, and tells what a refusal has
// left.
func TestFakeTimeSidesAsk(t *testing.T) {
	ticket := lua.Ticket{Claim: 2 * time.Second, Hears: lua.Counted}
	refused := []any{int64(0), int64(5000), "you:1", int64(7), int64(0), int64(1), int64(3), int64(0), int64(1)}
	place := lua.Place{Time: 7, First: true, New: true, Queue: 3}
	for name, tt := range map[string]struct {
		shared bool
		ticket lua.Ticket
		reply  any
		words  []any // side, claim, and hearing
		want   lua.Reply
	}{
		"a writer waits":         {false, ticket, refused, []any{0, int64(2000), 1}, lua.Reply{TTL: 5 * time.Second, Holder: "you:1", Writer: true, Place: place, Leftover: true}},
		"a reader waits":         {true, ticket, refused, []any{1, int64(2000), 1}, lua.Reply{TTL: 5 * time.Second, Holder: "you:1", Writer: true, Place: place, Leftover: true}},
		"a reader does not wait": {true, lua.Ticket{}, refused, []any{1, int64(0), 0}, lua.Reply{TTL: 5 * time.Second, Holder: "you:1", Writer: true}},
		"granted":                {false, ticket, []any{int64(1), int64(7)}, []any{0, int64(2000), 1}, lua.Reply{Acquired: true, Token: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFake(t, "me")
				f.answers(func(context.Context, []any) any { return tt.reply })
				a, err := NewReadWrite(f.Server, "lock", true, tt.shared).Acquire(t.Context(), f.Scripts, "me:1", time.Minute, Options{Ticket: tt.ticket})
				require.NoError(t, err)
				require.Equal(t, tt.want, a)
				words := f.commands()[0]
				require.Equal(t, []any{"lock", "rlock_rwqueue:{lock}", "{lock}:me:1:rwlock_timeout:1", "redisson_lock_token:{lock}"}, keysOf(words))
				require.Equal(t, append([]any{int64(60_000), "me:1", "{lock}:", "PUBLISH"}, tt.words...), words[7:])
			})
		})
	}
}

// A release or a downgrade that has served a portion of a long queue has the rest served by releases of
// owners without a hold.
func TestFakeTimeLongQueueIsServedInPortions(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, f *fake, rw *ReadWrite) (lua.Released, error){
		"release": func(t *testing.T, f *fake, rw *ReadWrite) (lua.Released, error) {
			return rw.Release(t.Context(), f.Scripts, "me:9", lua.Ending{})
		},
		"downgrade": func(t *testing.T, f *fake, rw *ReadWrite) (lua.Released, error) {
			return rw.SetCount(t.Context(), f.Scripts, "me:9", time.Minute, Count{Shared: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFake(t, "me")
				n := 0
				f.answers(func(context.Context, []any) any {
					switch n++; n {
					case 1:
						return []any{int64(1), "", "me:2 1 2000 0 0", int64(1)}
					case 2:
						return []any{int64(0), "", "", int64(1)}
					}
					return []any{int64(0)}
				})
				released, err := call(t, f, NewReadWrite(f.Server, "lock", false, true))
				require.NoError(t, err)
				require.Equal(t, "me:2 1 2000 0 0", released.Message)
				synctest.Wait()
				sent := f.commands()
				require.Len(t, sent, 3)
				for _, words := range sent[1:] {
					require.NotContains(t, words, "me:9", "it would end the hold")
				}
			})
		})
	}
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
		const key, queue, hold = "a{lock}", "rlock_rwqueue:a{lock}", "a{lock}:me:1:rwlock_timeout:" // by Redisson's rule for names with a hash tag
		require.Equal(t, []any{key, queue, hold + "1", hold + "2"}, keysOf(asked[0][0]))
		require.Equal(t, []any{key, queue, hold + "1"}, keysOf(asked[0][1]))
		require.Equal(t, []any{key, hold + "1"}, keysOf(asked[0][2]))
	})
}

// The messages for tickets come by a channel of the client.
func TestFakeTimeReadWriteHears(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		messages, changes := make(chan string, 9), make(chan int, 9)
		rw := NewReadWrite(f.Server, "lock", false, true)
		s := rw.Subscribe(Events{Message: func(payload string) { messages <- payload }, Changed: func() { changes <- 0 }})
		<-changes // the subscription is confirmed
		require.Equal(t, "rlock_rwchannel:{lock}:me", rw.GrantChannel())
		require.Equal(t, "redisson_rwlock:{lock}", rw.UnlockChannel())
		f.wire.tell(pubsub.Event{Kind: pubsub.Message, Channel: rw.GrantChannel(), Payload: "me:1"})
		require.Equal(t, "me:1", <-messages)
		s.Close()
	})
}

// Of the announcements of a read/write lock, those of this library are for Redisson only.
func TestFakeTimeReadWriteUnlocks(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		unlocks := 0
		channel := NewReadWrite(f.Server, "lock", false, true).UnlockChannel()
		s := f.SubscribeToUnlocks(channel, func() { unlocks++ }, func() {})
		synctest.Wait()
		for _, payload := range []string{"-0", "+1", "0", "1"} {
			f.wire.tell(pubsub.Event{Kind: pubsub.Message, Channel: channel, Payload: payload})
		}
		synctest.Wait()
		require.Equal(t, 2, unlocks)
		s.Close()
	})
}

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
