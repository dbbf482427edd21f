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

// keysOf are the keys of a script as it was sent.
func keysOf(words []any) (keys []any) {
	return words[3 : 3+words[2].(int)]
}

// The data is that of Redisson, and the queue is this library's own.
func TestPlainNames(t *testing.T) {
	s := &Server{ID: "me", Channels: NewChannels(nil, "me", nil, ShardingOff)}
	queue, counter := "rlock_queue:{lock}", "redisson_lock_token:{lock}"
	rivals := [2]string{"redisson_lock_queue:{lock}", "redisson_lock_timeout:{lock}"}
	for name, tt := range map[string]struct {
		lock           *Plain
		want           lua.Grant
		gathers, joint bool
	}{
		"without a queue":         {NewPlain(s, "lock", false), lua.Grant{Key: "lock", Owner: "me:1"}, false, false},
		"without a queue, fenced": {NewPlain(s, "lock", true), lua.Grant{Key: "lock", Counter: counter, Owner: "me:1"}, false, false},
		"queued":                  {NewQueued(s, "lock", false), lua.Grant{Key: "lock", Queue: queue, Owner: "me:1"}, true, true},
		"queued, fenced":          {NewQueued(s, "lock", true), lua.Grant{Key: "lock", Queue: queue, Counter: counter, Owner: "me:1"}, true, true},
		"fair":                    {NewFair(s, "lock", false), lua.Grant{Key: "lock", Queue: queue, Rivals: rivals, Owner: "me:1"}, true, false},
		"fair, fenced":            {NewFair(s, "lock", true), lua.Grant{Key: "lock", Queue: queue, Counter: counter, Rivals: rivals, Owner: "me:1"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, tt.lock.Of("me:1"))
			require.Equal(t, tt.gathers, tt.lock.Gathers(true), "a proxy may spread keys")
			require.Equal(t, tt.joint, tt.lock.Joint(), "that script looks at no queue")
		})
	}
}

// An owner without a ticket takes a lock that is free, also if others wait; one with a ticket, and
// every owner of a fair lock, goes by the queue.
func TestFakeTimePlainAsksItsQueue(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		ticket := Options{Ticket: lua.Ticket{Claim: time.Second}}
		for name, tt := range map[string]struct {
			lock *Plain
			o    Options
			keys []any
		}{
			"no ticket":       {NewQueued(f.Server, "lock", false), Options{Wait: true}, []any{"lock"}},
			"a ticket":        {NewQueued(f.Server, "lock", false), ticket, []any{"lock", "rlock_queue:{lock}"}},
			"fair, no ticket": {NewFair(f.Server, "lock", false), Options{}, []any{"lock", "rlock_queue:{lock}", "redisson_lock_queue:{lock}", "redisson_lock_timeout:{lock}"}},
		} {
			a, err := tt.lock.Acquire(t.Context(), f.Scripts, "me:1", time.Minute, tt.o)
			require.NoError(t, err, name)
			require.True(t, a.Acquired, name)
			require.Equal(t, tt.keys, keysOf(f.commands()[0]), name)
		}
	})
}

// What a server says is what the caller gets. A ticket has to be taken back; a refusal without one
// leaves nothing.
func TestFakeTimePlainAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		reply []any
		want  lua.Reply
	}{
		"granted":    {[]any{int64(1), int64(7), int64(3)}, lua.Reply{Acquired: true, Token: 7, Spare: 3}},
		"refused":    {[]any{int64(0), int64(5000), "you:1", int64(9), int64(0), int64(-1)}, lua.Reply{TTL: 5 * time.Second, Holder: "you:1"}},
		"a ticket":   {[]any{int64(0), int64(-1), "you:1", int64(9), int64(0), int64(1)}, lua.Reply{TTL: -time.Millisecond, Holder: "you:1", Place: lua.Place{Time: 9, First: true, New: true}, Leftover: true}},
		"it had one": {[]any{int64(0), int64(0), "", int64(9), int64(3), int64(0), int64(5)}, lua.Reply{Place: lua.Place{Time: 9, Queue: 5, Before: 3}, Leftover: true}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFake(t, "me")
				f.answers(func(context.Context, []any) any { return tt.reply })
				a, err := NewQueued(f.Server, "lock", true).Acquire(t.Context(), f.Scripts, "me:1", time.Minute, Options{Spare: 3, Ticket: lua.Ticket{Claim: time.Second}})
				require.NoError(t, err)
				require.Equal(t, tt.want, a)
				words := f.commands()[0]
				require.EqualValues(t, 3, words[len(words)-1], "so many tokens are reserved")
			})
		})
	}
}

// Redisson's clients announce releases with other messages than this library, which has told its own
// waiters otherwise.
func TestFakeTimePlainHears(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		var grants []string
		unlocks, changes := 0, 0
		changed := func() { changes++ }
		mine := NewQueued(f.Server, "lock", false).Subscribe(Events{Message: func(payload string) { grants = append(grants, payload) }, Changed: changed})
		theirs := f.SubscribeToUnlocks(lua.UnlockChannel("lock"), func() { unlocks++ }, changed)
		synctest.Wait()
		require.Equal(t, 2, changes)
		require.True(t, mine.Live())
		require.True(t, theirs.Live())
		for _, payload := range []string{"0", "-0", "1"} {
			f.wire.tell(pubsub.Event{Kind: pubsub.Message, Channel: "redisson_lock__channel:{lock}", Payload: payload})
		}
		f.wire.tell(pubsub.Event{Kind: pubsub.Message, Channel: "rlock_channel:{lock}:me", Payload: "me:1"})
		f.wire.tell(pubsub.Event{Kind: pubsub.Message, Channel: "rlock_channel:{lock}:you", Payload: "you:1"})
		synctest.Wait()
		require.Equal(t, 2, unlocks)
		require.Equal(t, []string{"me:1"}, grants)
		mine.Close()
		theirs.Close()
		time.Sleep(time.Minute)
		require.False(t, f.Hub.Active())
	})
}
