package rlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/watchdog"
)

// elsewhere is a fake whose renewals go to a server of its own.
type elsewhere struct {
	*fake
	key string
	rdb *redis.Client
}

func (e elsewhere) Key() string { return e.key }

func (e elsewhere) Renewals(owner string, lease time.Duration) []kind.Renewal {
	return []kind.Renewal{{RDB: e.rdb, Renewal: lua.Renewal{Grant: lua.Grant{Key: e.key, Owner: owner}, Lease: lease}}}
}

// renewing is a server that answers renewals with 1 or 0, or not at all if answer is nil.
func renewing(answer any) redis.Hook {
	return redistest.Answers(func(ctx context.Context, cmds ...redis.Cmder) error {
		if answer == nil {
			return hang(ctx)
		}
		for _, cmd := range cmds {
			cmd.(interface{ SetVal(any) }).SetVal(answer)
		}
		return nil
	})
}

// hooked returns a client whose answers come from a hook.
func hooked(t *testing.T, h redis.Hook) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	rdb.AddHook(h)
	return rdb
}

// A lock that was removed on one node is lost as soon as that has said so, also while
// another hangs that is asked in the same batch.
func TestFakeTimeLossBesideANodeThatHangs(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		var held []context.Context
		var due []watchdog.Renewal[*grant]
		for key, answer := range map[string]any{"gone": int64(0), "there": int64(1), "hangs": nil} {
			l := c.NewLock(key)
			l.use(elsewhere{f, key, hooked(t, renewing(answer))})
			ctx, hold, err := l.Lock(t.Context())
			require.NoError(t, err)
			defer func() { _ = hold.Unlock(ctx) }()
			held = append(held, ctx)
			due = append(due, watchdog.Renewal[*grant]{Key: hold.grant, Duration: l.lease})
		}
		start, done := time.Now(), make(chan []error, 1)
		go func() { done <- c.renew(within(t, 5*time.Second), due) }()
		synctest.Wait()
		for i, d := range due {
			require.Equal(t, d.Key.lock.key == "gone", held[i].Err() != nil, d.Key.lock.key)
		}
		errs := <-done
		require.Equal(t, 5*time.Second, time.Since(start))
		for i, d := range due {
			require.Equal(t, d.Key.lock.key != "there", errs[i] != nil)
			require.Equal(t, d.Key.lock.key == "gone", errs[i] == watchdog.ErrRefused)
		}
	})
}
