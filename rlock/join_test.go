package rlock_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// join joins the hold of a proof, which must be possible.
func join(t tester, ctx context.Context, mu *rlock.Lock, proof string) (context.Context, *rlock.Hold) {
	t.Helper()
	joined, hold, err := mu.Join(ctx, proof)
	require.NoError(t, err)
	return joined, hold
}

// over waits until a held context is over, and returns why.
func over(t *testing.T, held context.Context, soon time.Duration) error {
	t.Helper()
	select {
	case <-held.Done():
	case <-time.After(soon):
		t.Fatal("the context does not end")
	}
	return context.Cause(held)
}

func TestJoin(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	for name, make := range map[string]func(*rlock.Client) *rlock.Lock{
		"plain":    func(c *rlock.Client) *rlock.Lock { return c.NewLock("plain") },
		"fenced":   func(c *rlock.Client) *rlock.Lock { return c.NewLock("fenced", rlock.WithFencing()) },
		"fair":     func(c *rlock.Client) *rlock.Lock { return c.NewFairLock("fair", rlock.WithFencing()) },
		"polling":  func(c *rlock.Client) *rlock.Lock { return c.NewLock("polling", rlock.WithPolling(rlock.Polling{})) },
		"hash tag": func(c *rlock.Client) *rlock.Lock { return c.NewLock("hash tag") },
	} {
		t.Run(name, func(t *testing.T) {
			long := &rlock.Options{LeaseTime: time.Hour} // no renewal while requests are counted
			theirs, ours := make(newClient(t, srv, long)), make(newClient(t, srv, long))
			held, hold := lock(t, t.Context(), theirs)
			proof := hold.Proof()
			require.Regexp(t, regexp.MustCompile(`^[!-+\--~]{30,120}$`), proof, "no space, no comma")
			require.Equal(t, proof, theirs.Proof(held))

			type key struct{}
			ctx := context.WithValue(t.Context(), key{}, "value")
			var joined context.Context
			var mine *rlock.Hold
			joined, mine = join(t, ctx, ours, proof) // the server learns the script
			require.NoError(t, mine.Unlock(joined))
			require.Equal(t, []string{"evalsha"}, sent(t, srv, func() { joined, mine = join(t, ctx, ours, proof) }))
			require.Equal(t, "value", joined.Value(key{}))
			require.Equal(t, hold.Owner(), mine.Owner())
			require.Equal(t, hold.Token(), mine.Token())
			require.Equal(t, hold.Token(), ours.Token(joined))
			require.WithinDuration(t, hold.Until(), mine.Until(), time.Minute)
			require.Equal(t, proof, ours.Proof(joined), "it can be passed on")
			require.Equal(t, 1, ours.HoldCount(joined))

			require.Empty(t, sent(t, srv, func() {
				nested, in := lock(t, joined, ours)
				require.Equal(t, 2, ours.HoldCount(nested))
				require.Equal(t, hold.Token(), in.Token())
				require.NoError(t, in.Unlock(nested))
				require.ErrorIs(t, context.Cause(nested), rlock.ErrUnlocked)
				require.NoError(t, joined.Err())
				require.NoError(t, mine.Unlock(joined))
			}), "whoever has joined counts in memory")
			require.ErrorIs(t, context.Cause(joined), rlock.ErrUnlocked)
			require.ErrorIs(t, mine.Unlock(joined), rlock.ErrNotHeld)
			require.Equal(t, 1, len(hgetall(t, rdb, ours.Name())), "the holder has it")
			require.NoError(t, held.Err())
			require.NoError(t, hold.Unlock(held))
			require.Empty(t, hold.Proof())
			require.Empty(t, theirs.Proof(held))

			_, _, err := ours.Join(t.Context(), proof)
			require.ErrorIs(t, err, rlock.ErrNotHeld)
			require.ErrorContains(t, err, `lock "`+name+`"`)
		})
	}
}

// While a client has joined a hold, its other calls wait for the lock like those of any
// client.
func TestJoinedAndWaiting(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	theirs, ours := newClient(t, srv, nil).NewLock("a"), newClient(t, srv, nil).NewLock("a")
	held, hold := lock(t, t.Context(), theirs)
	joined, mine := join(t, t.Context(), ours, hold.Proof())
	_, _, err := ours.TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	w := begin(t.Context(), ours)
	redistest.Eventually(t, "it queues", func() bool {
		s, err := ours.Inspect(t.Context())
		return err == nil && s.Waiters > 0
	})
	require.NoError(t, mine.Unlock(joined))
	require.NoError(t, hold.Unlock(held))
	next, nextHold := w.acquired(t)
	require.NotEqual(t, hold.Owner(), nextHold.Owner())
	require.NoError(t, nextHold.Unlock(next))
}

func TestJoinRefuses(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	theirs, ours := newClient(t, srv, nil), newClient(t, srv, nil)
	held, hold := lock(t, t.Context(), theirs.NewLock("a"))
	proof := hold.Proof()
	other := newClient(t, srv, &rlock.Options{Prefix: "p:"})
	damaged := strings.Replace(proof, ".0.", ".7.", 1) // another token
	require.NotEqual(t, proof, damaged)
	rw := ours.NewRWLock("rw")
	quorum := rlock.NewQuorumLock("a", []*rlock.Client{ours, newClient(t, newServer(t), nil), newClient(t, newServer(t), nil)})
	require.Empty(t, sent(t, srv, func() {
		for name, tt := range map[string]struct {
			mu    *rlock.Lock
			proof string
			says  string
		}{
			"nothing":           {ours.NewLock("a"), "", "the proof is empty"},
			"spaces":            {ours.NewLock("a"), " , ", "the proof is empty"},
			"an owner":          {ours.NewLock("a"), hold.Owner(), "not the text of a proof"},
			"another form":      {ours.NewLock("a"), "rlock2" + proof[6:], "not the text of a proof"},
			"a part":            {ours.NewLock("a"), proof[:len(proof)-20], "not the text of a proof"},
			"most of it":        {ours.NewLock("a"), proof[:len(proof)-1], "of another lock, or was damaged"},
			"another token":     {ours.NewLock("a"), damaged, "of another lock, or was damaged"},
			"another name":      {ours.NewLock("b"), proof, `lock "b": invalid option: the proof is of another lock`},
			"another prefix":    {other.NewLock("a"), proof, "of another lock, or was damaged: join the lock of the same name"},
			"no token":          {ours.NewLock("a", rlock.WithFencing()), proof, "its proof has no token"},
			"replicas":          {ours.NewLock("a", rlock.WithReplicas(1, 100*time.Millisecond)), proof, "does not tell on how many replicas"},
			"a reader":          {rw.Reader(), proof, "only plain and fair locks can be joined"},
			"a writer":          {rw.Writer(), proof, "only plain and fair locks can be joined"},
			"a quorum lock":     {quorum, proof, "only plain and fair locks can be joined"},
			"a name that is no": {ours.NewLock(""), proof, "rlock"},
		} {
			ctx, none, err := tt.mu.Join(t.Context(), tt.proof)
			assert.ErrorIs(t, err, rlock.ErrInvalidOption, name)
			assert.ErrorContains(t, err, tt.says, name)
			assert.Nil(t, none, name)
			assert.Equal(t, t.Context(), ctx, name)
		}
	}), "no request")

	// Several proofs, as rlock run gives them to a command.
	held2, hold2 := lock(t, t.Context(), theirs.NewLock("b"))
	both := proof + " " + hold2.Proof()
	for _, name := range []string{"a", "b"} {
		joined, mine := join(t, t.Context(), ours.NewLock(name), both)
		require.NoError(t, mine.Unlock(joined))
	}
	require.NoError(t, hold2.Unlock(held2))
	require.NoError(t, hold.Unlock(held))

	held, writer := lock(t, t.Context(), rw.Writer())
	require.Empty(t, writer.Proof(), "of a kind that cannot be joined")
	require.NoError(t, writer.Unlock(held))
	var none *rlock.Hold
	require.Empty(t, none.Proof())
}

// Two locks of one name on two servers, and a text with the proofs of both, as below two runs
// of rlock: each is joined by its own, in whatever order they come.
func TestJoinBesideTheProofOfAnotherServer(t *testing.T) {
	t.Parallel()
	here, there := newServer(t), newServer(t)
	fenced := func(srv *redistest.Server) *rlock.Lock {
		return newClient(t, srv, nil).NewLock("a", rlock.WithFencing())
	}
	held, hold := lock(t, t.Context(), fenced(here))
	others, other := lock(t, t.Context(), fenced(there))
	plain, old := lock(t, t.Context(), newClient(t, newServer(t), nil).NewLock("a")) // has no token
	for _, text := range []string{
		hold.Proof() + " " + other.Proof(), other.Proof() + "," + hold.Proof(),
		hold.Proof() + " " + strings.Repeat(other.Proof()+" ", 10) + old.Proof(),
	} {
		for srv, want := range map[*redistest.Server]*rlock.Hold{here: hold, there: other} {
			joined, mine := join(t, t.Context(), fenced(srv), text)
			require.Equal(t, want.Owner(), mine.Owner())
			require.NoError(t, mine.Unlock(joined))
		}
	}
	both := hold.Proof() + " " + other.Proof()
	require.NoError(t, hold.Unlock(held))
	_, none, err := fenced(here).Join(t.Context(), both)
	require.ErrorIs(t, err, rlock.ErrNotHeld)
	require.ErrorContains(t, err, other.Owner(), "the last one is what counts")
	require.Nil(t, none)
	require.NoError(t, other.Unlock(others))
	require.NoError(t, old.Unlock(plain))
}

// Join refuses a proof that somebody has made up, and one whose hold is over.
func TestJoinChecksTheServer(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	mu, ours := newClient(t, srv, nil).NewLock("a"), newClient(t, srv, nil).NewLock("a")
	held, hold := lock(t, t.Context(), mu)
	old := hold.Proof()
	require.NoError(t, hold.Unlock(held))
	held, hold = lock(t, t.Context(), mu)
	_, _, err := ours.Join(t.Context(), old)
	require.ErrorIs(t, err, rlock.ErrNotHeld, "its client holds the lock again, as another owner")
	proof := hold.Proof()

	require.NoError(t, rdb.Persist(t.Context(), "a").Err())
	_, _, err = ours.Join(t.Context(), proof)
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.ErrorContains(t, err, "no end")
	require.NoError(t, rdb.PExpire(t.Context(), "a", 3*time.Millisecond).Err())
	_, _, err = ours.Join(t.Context(), proof)
	require.Error(t, err, "next to nothing is left of it, or it is over")
	_ = hold.Unlock(held) // it may be over
}

func TestCloseOfAClientThatHasJoined(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
	c := newClient(t, srv, nil)
	joined, mine := join(t, t.Context(), c.NewLock("a"), hold.Proof())
	nested, in := lock(t, joined, c.NewLock("a"))
	closed := make(chan error)
	go func() { closed <- closeSoon(c) }()
	require.ErrorIs(t, over(t, nested, 10*time.Second), rlock.ErrClosed)
	require.ErrorIs(t, over(t, joined, 10*time.Second), rlock.ErrClosed)
	require.NoError(t, in.Unlock(nested))
	require.NoError(t, mine.Unlock(joined))
	require.NoError(t, <-closed)
	_, _, err := c.NewLock("a").Join(t.Context(), hold.Proof())
	require.ErrorIs(t, err, rlock.ErrClosed)
	require.NoError(t, hold.Unlock(held))

	c = newClient(t, srv, nil) // one that does not unlock
	held, hold = lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
	_, _ = join(t, t.Context(), c.NewLock("a"), hold.Proof())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, c.Close(ctx), `still held: "a"`)
	require.NoError(t, held.Err())
	require.NoError(t, hold.Unlock(held))
}

func TestStatsOfJoined(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
	var mu sync.Mutex
	var outcomes []rlock.Outcome
	var losses []rlock.LossCause
	c := newClient(t, srv, &rlock.Options{Trace: rlock.Trace{
		Acquired: func(_ context.Context, a rlock.Acquisition) { outcomes = append(outcomes, a.Outcome) },
		Released: func(context.Context, rlock.Release) { t.Error("released") },
		Renewed:  func(rlock.Renewal) { t.Error("renewed") },
		Lost: func(l rlock.Loss) {
			mu.Lock()
			defer mu.Unlock()
			losses = append(losses, l.Cause)
		},
	}})
	a := c.NewLock("a", rlock.WithLeaseTime(time.Second))
	joined, mine := join(t, t.Context(), a, hold.Proof())
	nested, in := lock(t, joined, a)
	_, _, err := a.Join(t.Context(), "x")
	require.Error(t, err)
	require.NoError(t, in.Unlock(nested))
	require.NoError(t, mine.Unlock(joined))
	require.NoError(t, srv.Client(t).PExpire(t.Context(), "a", 6*time.Second).Err())
	joined, mine = join(t, t.Context(), a, hold.Proof())
	require.NoError(t, hold.Unlock(held))
	require.ErrorIs(t, over(t, joined, 10*time.Second), rlock.ErrLeaseLost)
	require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)
	require.Equal(t, []rlock.Outcome{rlock.OutcomeNested, rlock.OutcomeNested, rlock.OutcomeError, rlock.OutcomeNested}, outcomes)

	redistest.Eventually(t, "the loss is counted, and told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(losses) == 1 && losses[0] == rlock.LossGone
	})
	s := c.Stats()
	require.Len(t, s.Kinds, 1)
	k := s.Kinds[0]
	require.Zero(t, k.Acquired()+k.Held+k.Released+k.Lost+k.Waiting)
	require.Equal(t, int64(3), k.Calls[rlock.OutcomeNested])
	require.Equal(t, int64(1), s.Losses[rlock.LossGone])
	require.Zero(t, s.Renewals)
}

// The Unlock of what was joined has nothing to send, so it needs no time.
func TestUnlockOfAJoinedHoldNeedsNoTime(t *testing.T) {
	srv := newServer(t)
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
	mu := newClient(t, srv, &rlock.Options{UnlockTimeout: time.Nanosecond}).NewLock("a")
	for range 20 {
		joined, mine := join(t, t.Context(), mu, hold.Proof())
		require.NoError(t, mine.Unlock(joined))
	}
	require.NoError(t, hold.Unlock(held))
}

// Such a longer time says nothing of how long the lock stays: who has joined looks at each
// third of the lease that is renewed, from the first time on.
func TestFakeTimeJoinedAfterALongerNestedLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		here, there := f.client(t, nil), f.client(t, nil)
		held, hold := lock(t, t.Context(), here.NewLock("a"))
		inner, innerHold := lock(t, held, here.NewLock("a", rlock.WithLeaseTime(time.Hour)))
		require.NoError(t, innerHold.Unlock(inner))
		joined, joinedHold := join(t, t.Context(), there.NewLock("a"), hold.Proof())
		require.NoError(t, hold.Unlock(held))
		next, nextHold := lock(t, t.Context(), f.client(t, nil).NewLock("a"))
		began := time.Now()
		<-joined.Done()
		require.LessOrEqual(t, time.Since(began), 10*time.Second)
		require.ErrorIs(t, joinedHold.Unlock(joined), rlock.ErrLeaseLost)
		require.NoError(t, nextHold.Unlock(next))
	})
}

// Renewals that were executed and not answered leave more on the server than anybody trusts.
// The holder's Unlock has that released, also beside somebody of its own client who has
// joined it and says before that nothing is left.
func TestFakeTimeJoinedAndCleanedUp(t *testing.T) {
	for executed := false; !executed; { // a renewal, and not only the question of who has joined
		redistest.Bubble(t, func(t *testing.T) { executed = cleanUpBesideJoined(t) })
	}
}

func cleanUpBesideJoined(t *testing.T) (executed bool) {
	f := newFakeRedis(t)
	f.teach(t)
	mu := f.client(t, nil).NewLock("a")
	held, hold := lock(t, t.Context(), mu)
	joined, joinedHold := join(t, t.Context(), mu, hold.Proof())
	time.Sleep(time.Minute)
	f.deafDown.Store(true)
	<-held.Done()
	<-joined.Done()
	time.Sleep(5 * time.Second)
	executed = f.TTL("a") > 2*time.Second
	f.heal()
	require.Error(t, joinedHold.Unlock(joined))
	require.Error(t, hold.Unlock(held))
	time.Sleep(time.Second)
	synctest.Wait()
	require.False(t, executed && f.Exists("a"), "what is left is released")
	return executed
}

// A hold with a longer lease, nested before the join or after it, leaves a longer time on
// the server, which then runs down to the lease that is renewed. Whoever has joined keeps
// the lock meanwhile, as its holder does.
func TestFakeTimeJoinedUnderALongerNestedLease(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, own := range []time.Duration{2 * time.Second, 30 * time.Second} {
			for _, nested := range []time.Duration{own + own/2, 4 * own, 20 * own, time.Hour} {
				if testing.Short() && nested > 100*own {
					continue // ten thousand renewals
				}
				redistest.Bubble(t, func(t *testing.T) {
					f := newFakeRedis(t)
					here, there := f.client(t, &rlock.Options{LeaseTime: own}), f.client(t, nil)
					held, hold := lock(t, t.Context(), here.NewLock("a"))
					nest := func() {
						inner, innerHold := lock(t, held, here.NewLock("a", rlock.WithLeaseTime(nested)))
						time.Sleep(own / 10)
						require.NoError(t, innerHold.Unlock(inner))
					}
					if first {
						nest()
					}
					joined, joinedHold, err := there.NewLock("a").Join(t.Context(), hold.Proof())
					require.NoError(t, err)
					if !first {
						nest()
					}
					time.Sleep(2*nested + 10*own)
					synctest.Wait()
					require.NoError(t, held.Err())
					require.NoError(t, joined.Err(), "lease %v, nested %v, nested first: %v", own, nested, first)
					require.NoError(t, joinedHold.Unlock(joined))
					require.NoError(t, hold.Unlock(held))
				})
			}
		}
	}
}

// A nested hold with a shorter lease is the last, so that the lock is renewed with that, and
// gives a proof while most of the longer lease is left. Whoever joins by it keeps the lock.
func TestFakeTimeJoinedUnderAShorterNestedLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		here, there := f.client(t, nil), f.client(t, nil)
		held, hold := lock(t, t.Context(), here.NewLock("a"))
		inner, innerHold := lock(t, held, here.NewLock("a", rlock.WithLeaseTime(2*time.Second)))
		require.NoError(t, hold.Unlock(held))
		joined, joinedHold := join(t, t.Context(), there.NewLock("a"), innerHold.Proof())
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.NoError(t, inner.Err())
		require.NoError(t, joined.Err())
		require.NoError(t, joinedHold.Unlock(joined))
		require.NoError(t, innerHold.Unlock(inner))
	})
}

// Renewals of the holder hang, and it keeps the lock by a later one: so does whoever has
// joined.
func TestFakeTimeJoinedWhileRenewalsHang(t *testing.T) {
	tries := 10 // when renewals are due is random
	if testing.Short() {
		tries = 2
	}
	for hang := 1; hang <= 3; hang++ {
		for range tries {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				here, there := f.client(t, nil), f.client(t, nil)
				held, hold := lock(t, t.Context(), here.NewLock("a"))
				joined, joinedHold, err := there.NewLock("a").Join(t.Context(), hold.Proof())
				require.NoError(t, err)
				time.Sleep(35 * time.Second)
				for range hang {
					f.hold(isScript("renew"))
				}
				time.Sleep(2 * time.Minute)
				require.NoError(t, held.Err())
				require.NoError(t, joined.Err(), "%d renewals hang", hang)
				f.heal()
				require.NoError(t, joinedHold.Unlock(joined))
				require.NoError(t, hold.Unlock(held))
			})
		}
	}
}

// A hold was joined in the process of its holder, and unlocked again. Work that goes on under its
// context is still under the hold around it.
func TestFakeTimeJoinedAndUnlockedUnderTheHold(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a")
		held, hold := lock(t, t.Context(), mu)
		joined, join, err := mu.Join(held, hold.Proof())
		require.NoError(t, err)
		require.NoError(t, join.Unlock(joined))
		under := context.WithoutCancel(joined)
		require.Equal(t, 1, mu.HoldCount(under))
		inner, nested, err := mu.TryLock(under)
		require.NoError(t, err)
		require.NoError(t, nested.Unlock(inner))
		require.NoError(t, hold.Unlock(held))
	})
}

// hostProcess is another process that holds the lock "a", with a lease, and has given its
// proof away. The lock is fenced.
func hostProcess(t *testing.T, srv *redistest.Server, lease time.Duration) (child *redistest.Child, proof string) {
	t.Helper()
	child = redistest.Spawn(t, "holder", srv.Addr(), "a", lease.String())
	return child, child.Expect("proof ", 10*time.Second)
}

func TestJoinedAcrossProcesses(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithFencing())
	for name, tt := range map[string]struct {
		end  func(t *testing.T, child *redistest.Child)
		says string
	}{
		"the holder unlocks": {func(t *testing.T, child *redistest.Child) {
			_, err := child.Stdin.Write([]byte("unlock\n"))
			require.NoError(t, err)
			require.Equal(t, "false", child.Expect("unlock ", 10*time.Second), "it was not lost")
		}, "the holder has unlocked it, or lost it"},
		"forced": {func(t *testing.T, _ *redistest.Child) {
			_, err := mu.ForceUnlock(t.Context())
			require.NoError(t, err)
		}, "the holder has unlocked it, or lost it"},
		"flushed": {func(t *testing.T, _ *redistest.Child) {
			require.NoError(t, srv.Client(t).FlushAll(t.Context()).Err())
		}, "the holder has unlocked it, or lost it"},
		"the holder stands still": {func(_ *testing.T, child *redistest.Child) { child.Stop() }, "its holder does not renew it"},
	} {
		t.Run(name, func(t *testing.T) {
			child, proof := hostProcess(t, srv, 3*time.Second)
			joined, mine := join(t, t.Context(), mu, proof)
			nested, in := lock(t, joined, mu)
			require.Positive(t, in.Token())
			require.Equal(t, mine.Token(), mu.Token(nested))
			tt.end(t, child)
			cause := over(t, nested, 20*time.Second)
			require.ErrorIs(t, cause, rlock.ErrLeaseLost)
			require.ErrorContains(t, cause, tt.says)
			require.ErrorIs(t, in.Unlock(nested), rlock.ErrLeaseLost)
			require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)
			child.Kill()
			_, _, err := mu.Join(t.Context(), proof)
			if name != "the holder stands still" { // its lease may not be over yet
				require.ErrorIs(t, err, rlock.ErrNotHeld)
			}
			require.NoError(t, srv.Client(t).Del(t.Context(), "a").Err())
		})
	}
}

// The order that matters: whoever has joined is told, and only then somebody else has the
// lock.
func TestJoinedEndsBeforeTheNextHolder(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithFencing())
	rival := newClient(t, srv, nil).NewLock("a", rlock.WithFencing())
	for range 3 {
		child, proof := hostProcess(t, srv, 1500*time.Millisecond)
		joined, mine := join(t, t.Context(), mu, proof)
		w := begin(t.Context(), rival)
		require.NoError(t, joined.Err())
		child.Kill()
		next, nextHold := w.acquired(t)
		require.Error(t, joined.Err(), "at the first look")
		require.ErrorIs(t, context.Cause(joined), rlock.ErrLeaseLost)
		require.Greater(t, nextHold.Token(), mine.Token())
		require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)
		require.NoError(t, next.Err())
		_, _, err := mu.Join(t.Context(), proof)
		require.ErrorIs(t, err, rlock.ErrNotHeld)
		require.NoError(t, nextHold.Unlock(next))
	}
}

// A holder that is a client of its own, and somebody who joins its hold after a while. The
// lease is 30 s. The functions of the holder's client are those of another process: kill
// has it renew no more.
type hosted struct {
	*fakeRedis
	held         context.Context
	hold         *rlock.Hold
	theirs, ours *rlock.Lock
	kill         func()
}

func newHosted(t *testing.T, opts ...rlock.LockOption) *hosted {
	f := newFakeRedis(t)
	c, err := rlock.New(f.rdb, &rlock.Options{Identity: rlock.Anonymous()}) // what the server has is compared
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(bounded(t, 0)) })
	h := &hosted{fakeRedis: f, theirs: c.NewLock("a", opts...), ours: f.client(t, nil).NewLock("a")}
	h.held, h.hold = lock(t, t.Context(), h.theirs)
	h.kill = func() {
		require.Error(t, c.Close(bounded(t, 0)))
		synctest.Wait()
	}
	return h
}

// bounded returns a context that is over after d.
func bounded(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// requireGivenUpInTime compares how long before the end of a lease on the server one who has
// joined it gives it up: the drift and the guard of a lease of 30 s at most, of 20 s at least,
// as more is left than that when it is looked at. A request in a bubble takes no time. The
// server says in whole milliseconds what is left.
func requireGivenUpInTime(t *testing.T, end time.Time) {
	t.Helper()
	left := time.Until(end)
	require.GreaterOrEqual(t, left, 20*time.Second-lapse(20*time.Second))
	require.LessOrEqual(t, left, 30*time.Second-lapse(30*time.Second)+time.Millisecond)
}

func TestFakeTimeJoinedIsConfirmed(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHosted(t)
		time.Sleep(4 * time.Second)
		joined, mine := join(t, t.Context(), h.ours, h.hold.Proof())
		began := len(h.scripts("confirm"))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.NoError(t, joined.Err())
		at := slices.Compact(h.scripts("confirm")[began-1:])
		require.InDelta(t, 360, len(at), 60, "at each third of the lease, as far as that is known")
		for _, pause := range pauses(at)[1:] {
			require.LessOrEqual(t, pause, 10*time.Second)
		}
		require.NoError(t, mine.Unlock(joined))
		synctest.Wait()
		sent := len(h.scripts("confirm"))
		time.Sleep(time.Minute)
		require.Len(t, h.scripts("confirm"), sent)
		require.NoError(t, h.held.Err())
		require.NoError(t, h.hold.Unlock(h.held))
	})
}

// The holder is killed at some time: whoever has joined stops before the lease is over,
// which is when somebody else can hold it.
func TestFakeTimeJoinedEndsBeforeTheLeaseOfADeadHolder(t *testing.T) {
	for at := range 20 {
		redistest.Bubble(t, func(t *testing.T) {
			h := newHosted(t)
			time.Sleep(time.Duration(at) * 530 * time.Millisecond)
			joined, mine := join(t, t.Context(), h.ours, h.hold.Proof())
			time.Sleep(time.Duration(at) * 1710 * time.Millisecond)
			synctest.Wait()
			h.kill()
			end := time.Now().Add(h.TTL("a"))
			<-joined.Done()
			require.True(t, h.Exists("a"))
			requireGivenUpInTime(t, end)
			require.ErrorIs(t, context.Cause(joined), rlock.ErrLeaseLost)
			require.ErrorContains(t, context.Cause(joined), "its holder does not renew it")
			require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)
			synctest.Wait()
			require.True(t, h.Exists("a"), "what is left of the lease is not for the guest to give back")
			require.LessOrEqual(t, len(h.scripts("confirm")), 20)
		})
	}
}

// A fixed lease is never renewed: it is looked at little more often for that.
func TestFakeTimeJoinedFixedLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHosted(t, rlock.WithoutRenewal())
		end := time.Now().Add(h.TTL("a"))
		time.Sleep(5 * time.Second)
		joined, mine := join(t, t.Context(), h.ours, h.hold.Proof())
		<-joined.Done()
		requireGivenUpInTime(t, end)
		require.LessOrEqual(t, len(h.scripts("confirm")), 8)
		require.Error(t, mine.Unlock(joined))
		require.Error(t, h.hold.Unlock(h.held))
	})
}

// Redis goes silent for whoever has joined, in each way that it can.
func TestFakeTimeJoinedWhileRedisIsSilent(t *testing.T) {
	for name, fault := range silences {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				h := newHosted(t)
				time.Sleep(time.Second)
				joined, mine := join(t, t.Context(), h.ours, h.hold.Proof())
				require.Equal(t, time.Now().Add(29*time.Second-29*time.Second/100-2*time.Millisecond), mine.Until())
				time.Sleep(31 * time.Second)
				synctest.Wait()
				fault(h.fakeRedis)
				until := mine.Until()
				<-joined.Done()
				require.LessOrEqual(t, time.Until(until), 3*time.Second)
				require.GreaterOrEqual(t, time.Until(until), 29*time.Second/10)
				h.heal()
				require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)
			})
		})
	}
}

// The server looks at the lock, and its answer takes a second or two: that counts from
// before the request.
func TestFakeTimeLateAnswerToAJoin(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHosted(t)
		time.Sleep(time.Second)
		f := h.fakeRedis
		f.teach(t)
		sent := time.Now()
		f.late.Store(int64(1500 * time.Millisecond))
		joined, mine := join(t, t.Context(), h.ours, h.hold.Proof())
		require.Greater(t, time.Since(sent), time.Second)
		require.LessOrEqual(t, mine.Until(), sent.Add(29*time.Second))
		f.late.Store(0)
		require.NoError(t, mine.Unlock(joined))

		require.NoError(t, f.rdb.PExpire(t.Context(), "a", time.Second).Err())
		f.late.Store(int64(1500 * time.Millisecond))
		_, none, err := h.ours.Join(t.Context(), h.hold.Proof())
		require.ErrorIs(t, err, rlock.ErrNotHeld, "when the answer came the lease was over, and so it is when asked again")
		require.Nil(t, none)
		f.heal()
		require.Error(t, h.hold.Unlock(h.held))
	})
}

func TestFakeTimeJoinGivesUp(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHosted(t)
		proof := h.hold.Proof()
		h.deafUp.Store(true)
		began := time.Now()
		_, _, err := h.ours.Join(bounded(t, 3*time.Second), proof)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		began = time.Now()
		_, _, err = h.ours.Join(t.Context(), proof)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		h.heal()
		require.Error(t, h.hold.Unlock(h.held))
	})
}

// What ends a hold on the server ends what was joined at the next look.
func TestFakeTimeJoinedEndsWithTheHold(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, h *hosted){
		"unlocked": func(t *testing.T, h *hosted) { require.NoError(t, h.hold.Unlock(h.held)) },
		"forced": func(t *testing.T, h *hosted) {
			_, err := h.ours.ForceUnlock(t.Context())
			require.NoError(t, err)
		},
		"flushed":    func(_ *testing.T, h *hosted) { h.FlushAll() },
		"taken over": func(_ *testing.T, h *hosted) { h.FlushAll(); h.holder("a", time.Hour) },
		"another type": func(_ *testing.T, h *hosted) {
			h.FlushAll()
			_ = h.Set("a", "text")
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				h := newHosted(t)
				joined, mine := join(t, t.Context(), h.ours, h.hold.Proof())
				time.Sleep(time.Minute)
				nested, in := lock(t, joined, h.ours)
				synctest.Wait()
				end(t, h)
				before, began := h.Dump(), time.Now()
				<-nested.Done()
				<-joined.Done()
				require.LessOrEqual(t, time.Since(began), 10*time.Second)
				require.ErrorIs(t, context.Cause(nested), rlock.ErrLeaseLost)
				require.ErrorContains(t, context.Cause(joined), "the holder has unlocked it, or lost it")
				_, _, err := h.ours.Lock(nested)
				require.ErrorIs(t, err, rlock.ErrLeaseLost)
				require.ErrorIs(t, in.Unlock(nested), rlock.ErrLeaseLost)
				require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)
				synctest.Wait()
				require.Equal(t, before, h.Dump(), "nobody else's lock is touched")
				_ = h.hold.Unlock(h.held)
			})
		})
	}
}

// The owner on the server stays the same while goroutines pass the lock on in memory, so
// the proof of one of them must not be good for the next.
func TestFakeTimeProofIsNotPassedOn(t *testing.T) {
	for name, make := range map[string]func(*rlock.Client, ...rlock.LockOption) *rlock.Lock{
		"plain": func(c *rlock.Client, o ...rlock.LockOption) *rlock.Lock { return c.NewLock("a", o...) },
		"fair":  func(c *rlock.Client, o ...rlock.LockOption) *rlock.Lock { return c.NewFairLock("a", o...) },
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu, ours := make(f.client(t, nil)), make(f.client(t, nil))
				held, hold := lock(t, t.Context(), ours)
				var waiters []*waiting
				for range 4 {
					waiters = append(waiters, begin(t.Context(), mu))
					synctest.Wait()
				}
				require.NoError(t, hold.Unlock(held))
				held, hold = waiters[0].acquired(t)
				owner := hold.Owner()
				require.NoError(t, hold.Unlock(held))
				held, hold = waiters[1].acquired(t)
				require.Equal(t, owner, hold.Owner(), "passed on in memory: nobody has a proof")

				proof := hold.Proof()
				joined, mine := join(t, t.Context(), ours, proof)
				require.NoError(t, hold.Unlock(held))
				held, hold = waiters[2].acquired(t)
				require.NotEqual(t, owner, hold.Owner())
				_, _, err := ours.Join(t.Context(), proof)
				require.ErrorIs(t, err, rlock.ErrNotHeld)
				<-joined.Done()
				require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)

				owner = hold.Owner()
				require.NoError(t, hold.Unlock(held))
				held, hold = waiters[3].acquired(t)
				require.Equal(t, owner, hold.Owner(), "that one gave no proof out")
				require.NoError(t, hold.Unlock(held))
			})
		})
	}
}

// Many may join one hold; also far from Redis, where a lease is not much longer than
// the way. There the network of the bubble takes that long for each part of an answer.
func TestFakeTimeManyJoined(t *testing.T) {
	for n, late := range map[int]time.Duration{100: 0, 10: 50 * time.Millisecond} {
		redistest.Bubble(t, func(t *testing.T) {
			h := newHosted(t, rlock.WithLeaseTime(3*time.Second))
			h.late.Store(int64(late))
			proof := h.hold.Proof()
			contexts, holds := make([]context.Context, n), make([]*rlock.Hold, n)
			var all sync.WaitGroup
			for i := range holds {
				all.Go(func() {
					var err error
					contexts[i], holds[i], err = h.ours.Join(t.Context(), proof)
					assert.NoError(t, err)
				})
			}
			all.Wait()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			for i := range n / 2 {
				require.NoError(t, contexts[i].Err())
				require.NoError(t, holds[i].Unlock(contexts[i]))
			}
			h.kill()
			end := time.Now().Add(h.TTL("a"))
			for i := n / 2; i < n; i++ {
				<-contexts[i].Done()
				require.ErrorIs(t, holds[i].Unlock(contexts[i]), rlock.ErrLeaseLost)
			}
			require.True(t, time.Now().Before(end))
			h.heal()
		})
	}
}
