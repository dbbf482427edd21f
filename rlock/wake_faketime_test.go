package rlock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// How long a waiter that hears nothing pauses before it asks again.
func TestFakeTimePauses(t *testing.T) {
	ms := time.Millisecond
	often := slices.Repeat([]time.Duration{100 * ms}, 20) // by the first in line
	for _, tt := range []struct {
		name   string
		holder string
		ttl    time.Duration // 0: none
		fault  func(*fakeRedis)
		want   []time.Duration // between the requests, but for a random part
	}{
		{"no TTL", somebody, 0, nil, append([]time.Duration{0}, slices.Repeat([]time.Duration{minKeepAlive}, 10)...)},
		{"no answer to SUBSCRIBE", somebody, time.Hour, func(f *fakeRedis) { f.deafSubscribe.Store(true) }, append([]time.Duration{50 * ms, 100 * ms}, often...)},
		{"SUBSCRIBE refused", somebody, time.Hour, func(f *fakeRedis) { f.denySubscribe.Store(true) }, append([]time.Duration{0, 100 * ms}, often...)},
		{"SUBSCRIBE refused, foreign", redisson, time.Hour, func(f *fakeRedis) { f.denySubscribe.Store(true) }, append([]time.Duration{0, 100 * ms}, often...)},
		{"no TTL and no answer to SUBSCRIBE", somebody, 0, func(f *fakeRedis) { f.deafSubscribe.Store(true) }, append([]time.Duration{50 * ms, 100 * ms}, often...)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, nil).NewLock("a")
				f.heldBy("a", tt.holder, tt.ttl)
				f.teach(t)
				if tt.fault != nil {
					tt.fault(f)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go mu.Lock(ctx)
				seen := func() []time.Duration { // behind a foreign holder there are two channels to be confirmed
					return slices.CompactFunc(pauses(f.asked()), func(a, b time.Duration) bool { return a == 0 && b == 0 })
				}
				for len(seen()) < len(tt.want) {
					time.Sleep(time.Second)
				}
				cancel()
				synctest.Wait()
				got := seen()
				for i, want := range tt.want {
					require.GreaterOrEqual(t, got[i], want, "%v", got[:i+1])
					require.LessOrEqual(t, got[i], want+want/10+10*ms, "%v", got[:i+1])
				}
			})
		})
	}
}

// A waiter that can hear, and hears nothing, asks after a second, whenever it has waited twice as
// long as at the request before, and every five seconds at least.
func TestFakeTimeAsksOfItsOwnAccord(t *testing.T) {
	for _, holder := range []string{somebody, redisson} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, nil).NewLock("a")
			f.heldBy("a", holder, time.Hour)
			f.teach(t)
			began := f.now()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			_, _, err := mu.Lock(ctx)
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			synctest.Wait()
			asked := slices.DeleteFunc(f.asked(), func(at time.Duration) bool { return at < began })
			require.Greater(t, len(asked), 10)
			for i, pause := range pauses(asked) {
				want := min(max(asked[i]-began, minKeepAlive), keepAlive)
				if i < 3 && pause == 0 { // its ticket, and its subscriptions are confirmed: each can bring a request of its own
					continue
				}
				require.GreaterOrEqual(t, pause, want)
				require.LessOrEqual(t, pause, want+want/10+10*time.Millisecond)
			}
		})
	}
}

// If many wait, those that come behind them ask rarely from the beginning.
func TestFakeTimeManyAskRarely(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		const clients, wait = 100, 4 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		var waiters []*waiting
		for range clients {
			waiters = append(waiters, begin(ctx, f.client(t, nil).NewLock("a")))
		}
		synctest.Wait()
		before := len(f.asked())
		time.Sleep(wait)
		synctest.Wait()
		asked := len(f.asked()) - before
		require.LessOrEqual(t, asked, int(wait/time.Second)*asksPerSecond+clients) // those that came first have seen fewer
		require.Positive(t, asked)
		cancel()
		for _, w := range waiters {
			<-w.done
			require.ErrorIs(t, w.err, context.Canceled)
		}
	})
}

func TestFakeTimeWaiterSleepsUntilTheTTLEnds(t *testing.T) {
	for range 20 {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, nil).NewLock("a")
			f.foreign(7 * time.Second)
			_, hold := lock(t, t.Context(), mu)
			require.GreaterOrEqual(t, f.now(), 7*time.Second)
			require.Less(t, f.now(), 7*time.Second+5*time.Millisecond)
			require.NoError(t, hold.Unlock(t.Context()))
		})
	}
}

func TestFakeTimeDeafWaiterHearsAgain(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a")
		f.foreign(time.Hour)
		f.denySubscribe.Store(true)
		go func() {
			held, hold, err := mu.Lock(t.Context())
			if assert.NoError(t, err) {
				assert.NoError(t, hold.Unlock(held))
			}
		}()
		time.Sleep(20 * time.Second)
		f.denySubscribe.Store(false) // an operator corrects the ACL
		time.Sleep(12 * time.Second) // a refused channel is asked for again after 30 s
		synctest.Wait()
		before := len(f.asked())
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.LessOrEqual(t, len(f.asked())-before, int(20*time.Second/keepAlive), "the subscription is confirmed: no more polling")
		f.Del("a")
		f.Publish("redisson_lock__channel:{a}", "0")
		synctest.Wait()
		require.Len(t, f.scripts("release"), 2, "EVALSHA and EVAL, at once")
	})
}

// Nobody may sleep beside a free lock: not until the TTL that was seen last, and not
// for longer than a second after one fault.

// The subscription of a waiter is lost, and with it the message of a release of its own
// client; another client takes the lock, and releases it before the subscription is
// confirmed again. The two releases are told apart by nobody, and need not be.
func TestFakeTimeReleasesWhileTheSubscriptionIsLost(t *testing.T) {
	for _, fault := range []struct {
		name  string
		begin func(f *fakeRedis)
	}{
		{"cut", func(f *fakeRedis) { f.deafSubscribe.Store(true); f.cut() }},
		{"deaf", func(f *fakeRedis) { f.deafListeners.Store(true) }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				one, other := f.client(t, nil), f.client(t, nil)
				mu := one.NewLock("a", rlock.WithoutHandoff(), longLease)
				there := other.NewLock("a", longLease)
				held, hold := lock(t, t.Context(), there)
				first := begin(t.Context(), mu)
				synctest.Wait()
				w := begin(t.Context(), mu)
				synctest.Wait()
				require.NoError(t, hold.Unlock(held))
				held, hold = first.acquired(t)

				rival := begin(t.Context(), there) // it hears
				synctest.Wait()
				fault.begin(f)
				began := f.now()
				require.NoError(t, hold.Unlock(held))
				time.AfterFunc(500*time.Millisecond, f.heal)
				finishAll(t, rival, w)
				require.LessOrEqual(t, f.now()-began, 2*time.Second, "one fault, and as long as it lasts")
			})
		})
	}
}

// The subscription of a client is lost and confirmed again while the answer to a request of
// its waiter is under way, and between the two the lock is released: the release has passed
// over a client that did not listen, and taken out the ticket of which the answer tells.
func TestFakeTimeResubscribedWhileAsking(t *testing.T) {
	for _, kind := range []string{"plain", "fair"} {
		t.Run(kind, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				here, there := lockOf(f.client(t, nil), kind), lockOf(f.client(t, nil), kind)
				held, hold := lock(t, t.Context(), there)
				before := begin(t.Context(), here) // from now on its client listens, for a while
				synctest.Wait()
				require.NoError(t, hold.Unlock(held))
				finishAll(t, before)
				held, hold = lock(t, t.Context(), there)
				f.late.Store(int64(100 * time.Millisecond))
				w := begin(t.Context(), here)
				synctest.Wait()
				f.late.Store(0)
				f.cut()
				require.NoError(t, hold.Unlock(held))
				time.Sleep(50 * time.Millisecond)
				require.NotEmpty(t, f.PubSubChannels("rlock_channel:*"), "it listens again")
				began := f.now()
				held, hold = w.acquired(t)
				require.LessOrEqual(t, f.now()-began, 60*time.Millisecond, "when it has its answer")
				require.NoError(t, hold.Unlock(held))
			})
		})
	}
}

// The subscription of a client is lost and confirmed again while the answer to its own release
// is under way, and between the two another releases the lock: it has passed over the waiter
// of that client, who still takes its own client for the holder, and taken out its ticket.
func TestFakeTimeResubscribedWhileReleasing(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewLock("a", rlock.WithoutHandoff())
		held, hold := lock(t, t.Context(), mu)
		w := begin(t.Context(), mu)
		synctest.Wait()
		_, err := f.ZAdd("rlock_queue:{a}", 1*8192*4+6000*4+2, somebody)
		require.NoError(t, err)
		time.Sleep(keepAlive + time.Second)
		require.Len(t, tickets(t, f.rdb, "a"), 2, "the waiter has asked although its own client is the holder")
		f.late.Store(int64(100 * time.Millisecond))
		released := make(chan error)
		go func() { released <- hold.Unlock(held) }()
		synctest.Wait()
		f.late.Store(0)
		f.cut()
		synctest.Wait()
		f.release(t, somebody)
		require.Empty(t, tickets(t, f.rdb, "a"))
		time.Sleep(50 * time.Millisecond)
		require.NotEmpty(t, f.PubSubChannels("rlock_channel:*"), "it listens again")
		began := f.now()
		require.NoError(t, <-released)
		held, hold = w.acquired(t)
		require.LessOrEqual(t, f.now()-began, 60*time.Millisecond, "when its client knows of the release")
		require.NoError(t, hold.Unlock(held))
	})
}

// Redisson releases the lock while the answer to a waiter's first request, which says that
// Redisson has it, is under way. The client has been listening for another waiter.
func TestFakeTimeForeignReleaseWhileAsking(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewLock("a", rlock.WithoutHandoff())
		f.foreign(time.Hour)
		first := begin(t.Context(), mu)
		synctest.Wait()
		second := begin(t.Context(), mu)
		synctest.Wait()
		foreignRelease := func() {
			f.Del("a")
			f.Publish(channelOfA, "0")
		}
		foreignRelease()
		held, hold := first.acquired(t)
		open := f.hold(isScript("ask"))
		require.NoError(t, hold.Unlock(held))
		synctest.Wait() // the second asks
		f.foreign(time.Hour)
		f.late.Store(int64(100 * time.Millisecond))
		open()
		synctest.Wait()
		f.late.Store(0)
		foreignRelease()
		began := f.now()
		held, hold = second.acquired(t)
		require.Equal(t, 100*time.Millisecond, f.now()-began, "when it has its answer")
		require.NoError(t, hold.Unlock(held))
	})
}

// Redisson has the lock, and the first in the queue leaves. Those behind it, of the same
// client, ask as soon as that one would have answered Redisson's release.
func TestFakeTimeForeignReleaseAfterTheFirstHasLeft(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.foreign(time.Hour)
		mu := f.client(t, nil).NewFairLock("a")
		ctx, leave := context.WithCancel(t.Context())
		first := begin(ctx, mu)
		synctest.Wait()
		others := f.row(t, mu, mu, mu)
		time.Sleep(time.Second)
		leave()
		<-first.done
		for range 2 { // the first of them finds that Redisson has taken it again
			synctest.Wait()
			began := f.now()
			f.Publish(channelOfA, "0")
			asked := len(f.asked())
			for len(f.asked()) == asked {
				time.Sleep(time.Millisecond)
			}
			require.LessOrEqual(t, f.now()-began, 110*time.Millisecond)
		}
		f.Del("a")
		f.Publish(channelOfA, "0")
		began := f.now()
		finish(t, others...)
		require.LessOrEqual(t, f.now()-began, 110*time.Millisecond)
	})
}

// A waiter that polls does so also if its client listens, because another one did.
func TestFakeTimePollingBesideListeners(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.holder("a", time.Hour)
		c := f.client(t, nil)
		ctx, leave := context.WithCancel(t.Context())
		listens := begin(ctx, c.NewFairLock("a"))
		synctest.Wait()
		polls := begin(t.Context(), c.NewLock("a", rlock.WithPolling(rlock.Polling{})))
		synctest.Wait()
		leave()
		<-listens.done
		time.Sleep(4500 * time.Millisecond)
		f.Del("a") // and nobody is told
		began := f.now()
		finish(t, polls)
		require.LessOrEqual(t, f.now()-began, time.Second)
		require.Empty(t, f.scripts("ask"), "what polls takes no ticket: its requests have one key")
	})
}

// A waiter that hears no messages keeps asking, also when another goroutine of its client
// has just held and released the lock.
func TestFakeTimeDeafAfterAnOwnRelease(t *testing.T) {
	for name, option := range map[string]rlock.LockOption{"deaf": rlock.WithoutHandoff(), "polling": rlock.WithPolling(rlock.Polling{})} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				hearing := f.client(t, nil).NewLock("a", longLease)
				held, hold := lock(t, t.Context(), hearing)
				rival := begin(t.Context(), hearing) // joins before the others are refused
				time.Sleep(time.Second)
				f.denySubscribe.Store(true)
				mu := f.client(t, nil).NewLock("a", longLease, option, rlock.WithoutHandoff())
				w := begin(t.Context(), mu)
				synctest.Wait()
				behind := begin(t.Context(), mu)
				time.Sleep(time.Second)
				require.NoError(t, hold.Unlock(held))
				for _, w := range []*waiting{rival, w, behind} {
					began := f.now()
					held, hold := w.acquired(t)
					require.LessOrEqual(t, f.now()-began, time.Second+10*time.Millisecond)
					time.Sleep(10 * time.Second)
					require.NoError(t, hold.Unlock(held))
				}
			})
		})
	}
}

// Without the right to SUBSCRIBE, the first in line is served within 0.1 s, others
// within a second.
func TestFakeTimeDeafClients(t *testing.T) {
	for _, kind := range []string{"plain", "fair"} {
		t.Run(kind, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.denySubscribe.Store(true)
				f.holder("a", time.Hour)
				var waiters []*waiting
				for range 3 {
					waiters = append(waiters, begin(t.Context(), lockOf(f.client(t, nil), kind)))
					time.Sleep(3 * time.Second)
				}
				time.Sleep(time.Minute)
				require.Len(t, tickets(t, f.rdb, "a"), 3, "they have tickets all the same")
				f.release(t, somebody)
				limit := 100*time.Millisecond + 10*time.Millisecond
				for _, w := range waiters {
					began := f.now()
					held, hold := w.acquired(t)
					require.LessOrEqual(t, f.now()-began, limit)
					require.NoError(t, hold.Unlock(held))
					limit = time.Second + 10*time.Millisecond
				}
				synctest.Wait()
				require.Empty(t, f.Keys())
			})
		})
	}
}

// Goroutines that loop on TryLock do not keep out who waits elsewhere.
func TestFakeTimeTryLockLoop(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu, elsewhere := f.client(t, nil).NewLock("a"), f.client(t, nil).NewLock("a")
		const section = 10 * time.Millisecond
		done := make(chan struct{})
		for i := range 8 {
			go func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				for {
					select {
					case <-done:
						return
					case <-time.After(5 * time.Millisecond):
					}
					if held, hold, err := mu.TryLock(t.Context()); err == nil {
						time.Sleep(section)
						assert.NoError(t, hold.Unlock(held))
					}
				}
			}()
		}
		time.Sleep(100 * time.Millisecond)
		for range 20 {
			began := f.now()
			held, hold := lock(t, t.Context(), elsewhere)
			require.LessOrEqual(t, f.now()-began, section+time.Millisecond, "at the next release")
			time.Sleep(section)
			require.NoError(t, hold.Unlock(held))
			time.Sleep(section)
		}
		close(done)
	})
}
