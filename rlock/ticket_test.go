package rlock_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// Whoever is granted the lock by a message sends nothing, and relies on it for no longer
// than the server does.
func TestFakeTimeGrantByMessage(t *testing.T) {
	for _, kind := range []string{"plain", "fair"} {
		for _, fencing := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, " fenced ", fencing), func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					f := newFakeRedis(t)
					f.teach(t)
					var opts []rlock.LockOption
					if fencing {
						opts = append(opts, rlock.WithFencing())
					}
					held, hold := lock(t, t.Context(), lockOf(f.client(t, nil), kind, opts...))
					w := f.row(t, lockOf(f.client(t, nil), kind, opts...))[0]
					time.Sleep(42 * time.Second)
					synctest.Wait()
					asked, token := len(f.asked()), hold.Token()
					require.NoError(t, hold.Unlock(held))
					next, nextHold := w.acquired(t)
					require.Len(t, f.asked(), asked)
					require.Equal(t, fencing, nextHold.Token() > token)

					ttl := f.TTL("a")
					require.Equal(t, longestClaim, ttl)
					until, guard := time.Until(nextHold.Until()), ttl/100+2*time.Millisecond
					require.LessOrEqual(t, until, ttl-guard)
					require.Greater(t, until, ttl-guard-keepAlive/50)
					time.Sleep(4 * time.Second)
					require.Greater(t, f.TTL("a"), 2*longestClaim, "the first renewal makes it the full lease")
					require.Greater(t, time.Until(nextHold.Until()), 2*longestClaim)
					time.Sleep(time.Minute)
					require.NoError(t, next.Err())
					require.NoError(t, nextHold.Unlock(next))
				})
			})
		}
	}
}

// What a message cannot give is asked for: the whole of a fixed lease; a token, if the
// lock was released by somebody without a counter.
func TestFakeTimeGrantIsConfirmed(t *testing.T) {
	for name, opts := range map[string][]rlock.LockOption{
		"fixed": {rlock.WithoutRenewal(), rlock.WithLeaseTime(20 * time.Second)}, "fenced": {rlock.WithFencing()},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				f.holder("a", time.Hour)
				w := f.row(t, f.client(t, nil).NewLock("a", opts...))[0]
				asked := len(f.asked())
				f.release(t, somebody)
				held, hold := w.acquired(t)
				require.Len(t, f.asked(), asked+1)
				require.Greater(t, time.Until(hold.Until()), 15*time.Second)
				require.Equal(t, name == "fenced", hold.Token() > 0)
				require.NoError(t, hold.Unlock(held))
				require.Zero(t, f.now())
			})
		})
	}
}

// After a lapse the server grants the lock for a moment only, to find out whether anybody is there.
// The waiter says so before it takes the lock.
func TestFakeTimeCallIsAnswered(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		w := f.row(t, f.client(t, nil).NewLock("a"))[0]
		owner := queueOf(t, f.rdb, "a")[0]
		asked := len(f.asked())
		time.Sleep(20 * time.Millisecond)
		message := strings.Replace(f.grantTo(owner, 0, 0), fmt.Sprint(" ", longestClaim.Milliseconds(), " "), " 400 ", 1)
		require.Equal(t, 1, f.Publish("rlock_channel:{a}:"+clientOf(owner), message))
		synctest.Wait()
		require.Len(t, f.asked(), asked+1)
		require.Equal(t, []string{owner}, queueOf(t, f.rdb, "a"), "it was not true")
		f.release(t, somebody)
		finish(t, w)
	})
}

// A message is not trusted that grants what the newest answer does not confirm: it
// is older than the place in the queue, or that answer is too old, or it makes no sense.
func TestFakeTimeStaleMessage(t *testing.T) {
	for _, kind := range []string{"plain", "fair"} {
		t.Run(kind, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				f.holder("a", time.Hour)
				w := f.row(t, lockOf(f.client(t, nil), kind))[0]
				owner := queueOf(t, f.rdb, "a")[0]
				for _, message := range []string{
					owner, owner + " 1 6000 0 0", f.grantTo(owner, time.Second, 0),
					f.grantTo(owner, -time.Hour, 0),
				} {
					time.Sleep(20 * time.Millisecond)
					before := len(f.asked())
					require.Equal(t, 1, f.Publish("rlock_channel:{a}:"+clientOf(owner), message))
					synctest.Wait()
					require.Len(t, f.asked(), before+1, "it asks: %s", message)
					require.Equal(t, []string{owner}, queueOf(t, f.rdb, "a"))
				}
				began := f.now()
				f.release(t, somebody)
				finish(t, w)
				require.Equal(t, began, f.now())
			})
		})
	}
}

// Whatever else comes does no harm.
func TestFakeTimeJunkMessages(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.holder("a", time.Hour)
		w := f.row(t, f.client(t, nil).NewLock("a"))[0]
		owner := queueOf(t, f.rdb, "a")[0]
		for _, message := range []string{
			"", " ", "0", "junk", "\x00\xff", owner + " x 6000 0 0", owner + " 1 6000", owner + " 99999999999999999999 6000 0 0",
			owner + " 1 -6000 0 0", "nobody:1 1 6000 0 0", "* 1 2 3 4",
		} {
			f.Publish("rlock_channel:{a}:"+clientOf(owner), message)
			synctest.Wait()
			require.Equal(t, []string{owner}, queueOf(t, f.rdb, "a"), "%q", message)
		}
		f.release(t, somebody)
		finish(t, w)
		synctest.Wait()
		require.Empty(t, f.Keys())
	})
}
