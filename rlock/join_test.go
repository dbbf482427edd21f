package rlock_test

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"
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
