package rlock_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
)

// fairScript matches the calls of a script of a fair lock.
func fairScript(name string) netfault.Match {
	var source strings.Builder
	files := map[string][]string{
		"fair_acquire": {"kind", "token", "announce", "fair", "outcome"},
		"fair_release": {"token", "announce", "fair"},
		"fair_keep":    {"token", "announce", "fair"},
		"fair_force":   {"kind", "token", "announce", "fair"},
	}
	for _, file := range append(files[name], name) {
		text, err := os.ReadFile("../lua/" + file + ".lua")
		if err != nil {
			panic(err)
		}
		source.Write(text)
	}
	sum := sha1.Sum([]byte(source.String()))
	hash := hex.EncodeToString(sum[:])
	return func(args []string) bool { return len(args) > 1 && (args[1] == hash || args[1] == source.String()) }
}

// fairly returns when the server got each call of a script of a fair lock.
func (f *fakeRedis) fairly(name string) (at []time.Duration) {
	match := fairScript(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.log {
		if match(r.args) {
			at = append(at, r.at)
		}
	}
	return at
}

// Who waits long says so in time, together with the others, and nothing else.
func TestFakeTimeFairTicketsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewFairLock("a")
		held, hold := lock(t, t.Context(), mu)
		ctx, cancel := context.WithCancel(t.Context())
		waiters := []*waiting{begin(ctx, mu), begin(ctx, mu), begin(ctx, mu)}
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		asked := slices.DeleteFunc(f.fairly("fair_acquire"), func(at time.Duration) bool { return at == 0 })
		require.LessOrEqual(t, len(asked), 3*3, "each asks every half a minute, or when the lease that it saw was over: %v", asked)
		kept := f.fairly("fair_keep")
		require.InDelta(t, 3*30, len(kept), 9)
		heard := slices.Sorted(slices.Values(append(kept, asked...)))
		for _, pause := range pauses(heard) {
			require.LessOrEqual(t, pause, ticketRenew+ticketLife/60)
		}
		cancel()
		for _, w := range waiters {
			<-w.done
			require.ErrorIs(t, w.err, context.Canceled)
		}
		require.NoError(t, hold.Unlock(held))
		time.Sleep(2 * ticketLife)
		require.Empty(t, f.Keys())
	})
}

// The holder dies.
func TestFakeTimeFairDeadHolder(t *testing.T) {
	for _, queue := range []int{1, 3} {
		t.Run(strconv.Itoa(queue), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, nil).NewFairLock("a")
				_, err := f.rdb.HSet(t.Context(), "a", "dead:1", 1).Result()
				require.NoError(t, err)
				require.NoError(t, f.rdb.PExpire(t.Context(), "a", 25*time.Second).Err())
				var waiters []*waiting
				for range queue {
					waiters = append(waiters, begin(t.Context(), mu))
					synctest.Wait()
				}
				for i, w := range waiters {
					<-w.done
					require.NoError(t, w.err)
					require.InDelta(t, 25*time.Second, f.now(), float64(10*time.Millisecond), "waiter %d", i)
					require.NoError(t, w.hold.Unlock(w.held))
				}
			})
		})
	}
}

// The one who was first when the holder died is not there any more: somebody's
// ticket is renewed within 2 s.
func TestFakeTimeFairDeadHolderAndWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewFairLock("a")
		require.NoError(t, f.rdb.HSet(t.Context(), "a", "dead:1", 1).Err())
		require.NoError(t, f.rdb.PExpire(t.Context(), "a", 25*time.Second).Err())
		ctx, cancel := context.WithCancel(t.Context())
		first := begin(ctx, mu)
		synctest.Wait()
		next := begin(t.Context(), mu)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		cancel()
		<-first.done
		<-next.done
		require.NoError(t, next.err)
		require.Greater(t, f.now(), 25*time.Second)
		require.LessOrEqual(t, f.now(), 25*time.Second+ticketRenew)
		require.NoError(t, next.hold.Unlock(next.held))
	})
}

// Without subscriptions it works as well, only slower.
func TestFakeTimeFairDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewFairLock("a")
		f.denySubscribe.Store(true)
		held, hold := lock(t, t.Context(), mu)
		w := begin(t.Context(), mu)
		time.Sleep(time.Minute)
		began := time.Now()
		require.NoError(t, hold.Unlock(held))
		<-w.done
		require.NoError(t, w.err)
		require.LessOrEqual(t, time.Since(began), time.Second+10*time.Millisecond)
		require.NoError(t, w.hold.Unlock(w.held))
	})
}

// The server is away for longer than a ticket lives. Nobody was there to take the
// place, so it is kept.
func TestFakeTimeFairServerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		require.NoError(t, f.rdb.HSet(t.Context(), "a", "other:1", 1).Err())
		require.NoError(t, f.rdb.PExpire(t.Context(), "a", time.Minute).Err())
		w := begin(t.Context(), c.NewFairLock("a"))
		synctest.Wait()
		queue := queueOf(t, f.rdb, "a")
		second := begin(t.Context(), c.NewFairLock("a"))
		time.Sleep(10 * time.Second)
		f.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(10 * time.Second)
		f.heal()
		time.Sleep(10 * time.Second)
		now := queueOf(t, f.rdb, "a")
		require.Len(t, now, 2)
		require.Equal(t, queue[0], now[0])
		<-w.done
		require.NoError(t, w.err)
		require.NoError(t, w.hold.Unlock(w.held))
		<-second.done
		require.NoError(t, second.err)
		require.NoError(t, second.hold.Unlock(second.held))
	})
}

// A message is not trusted that grants what the newest answer does not confirm: it
// is older than the place in the queue, or that answer is too old.
func TestFakeTimeFairStaleMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		require.NoError(t, f.rdb.HSet(t.Context(), "a", "other:1", 1).Err())
		require.NoError(t, f.rdb.PExpire(t.Context(), "a", time.Hour).Err())
		w := begin(t.Context(), f.client(t, nil).NewFairLock("a"))
		synctest.Wait()
		owner := queueOf(t, f.rdb, "a")[0]
		client, _, _ := strings.Cut(owner, ":")
		now, err := f.rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		for _, message := range []string{
			owner, owner + " 1 6000 0", owner + " x 6000 0",
			fmt.Sprint(owner, " ", now.Add(-time.Microsecond).UnixMicro(), " 6000 0"),
			fmt.Sprint(owner, " ", now.Add(time.Second).UnixMicro(), " 10 0"),
		} {
			time.Sleep(20 * time.Millisecond)
			before := len(f.fairly("fair_acquire"))
			n, err := f.rdb.Publish(t.Context(), "rlock_fair_channel:{a}:"+client, message).Result()
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			synctest.Wait()
			require.Len(t, f.fairly("fair_acquire"), before+1, "it asks: %s", message)
			require.Equal(t, []string{owner}, queueOf(t, f.rdb, "a"))
		}
		require.NoError(t, f.rdb.Del(t.Context(), "a").Err())
		<-w.done
		require.NoError(t, w.err)
		require.NoError(t, w.hold.Unlock(w.held))
	})
}
