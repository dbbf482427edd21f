package rlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// The table of asker.next, each row with the rows above it excluded.
func TestNext(t *testing.T) {
	now := time.Now()
	in := func(d time.Duration) time.Time { return now.Add(d) }
	const asks, waits = "asks", "waits"
	type state struct {
		noOwner, again bool
		held, askAt    time.Duration // from now
	}
	for name, row := range map[string]struct {
		state
		then  string
		pause time.Duration
	}{
		"its client has the lock":                     {state{held: 10 * time.Second, askAt: 5 * time.Second}, waits, 5 * time.Second},
		"its client has the lock, no request yet":     {state{held: 10 * time.Second, askAt: 5 * time.Second, noOwner: true}, waits, 5 * time.Second},
		"its client has the lock, after an event":     {state{held: 10 * time.Second, askAt: 5 * time.Second, again: true}, waits, 5 * time.Second},
		"its client has the lock, but not for long":   {state{held: time.Second, askAt: 5 * time.Second}, waits, time.Second},
		"its client has the lock for a moment":        {state{held: time.Microsecond, askAt: 5 * time.Second}, waits, minPause},
		"its client has the lock, and askAt is over":  {state{held: 10 * time.Second}, asks, 0},
		"its client's window is over, after an event": {state{held: -1, askAt: 5 * time.Second, again: true}, asks, 0},
		"its client's window is over":                 {state{held: -1, askAt: 5 * time.Second}, waits, 5 * time.Second},
		"no request yet":                              {state{noOwner: true, askAt: 5 * time.Second}, asks, 0},
		"an event":                                    {state{again: true, askAt: 5 * time.Second}, asks, 0},
		"askAt is over":                               {state{askAt: -1}, asks, 0},
		"otherwise":                                   {state{askAt: 5 * time.Second}, waits, 5 * time.Second},
		"askAt is never":                              {state{askAt: math.MaxInt64}, waits, maxPause},
	} {
		t.Run(name, func(t *testing.T) {
			q := &queue{}
			a := &asker{lock: &Lock{}, queue: q, first: &waiter{}, owner: &candidate{}, again: row.again, askAt: in(row.askAt)}
			if row.noOwner {
				a.owner = nil
			}
			held := time.Time{}
			if row.held != 0 {
				held = in(row.held)
			}
			ask, pause := a.next(now, held)
			require.Equal(t, row.then == asks, ask)
			require.Equal(t, row.pause, pause)
		})
	}
}

// Each event in each state of an asker whose owner has the first ticket: what comes of it. "once more": the answer to
// the request under way may be older than the event, so the asker asks again after a refusal.
func TestEvents(t *testing.T) {
	const stays, asks, again, has, later = "stays", "asks", "once more", "has the lock", "asks soon"
	granting := func(claim time.Duration) lua.Message {
		return lua.Message{Owner: "mine", Granted: true, Time: 2, Claim: claim}
	}
	for name, row := range map[string]struct {
		happens                 func(q *queue, a *asker)
		waiting, asking, behind string // the result while it waits, has a request under way, waits for its own client's grant
	}{
		"a grant by a message":                     {func(q *queue, a *asker) { q.heard(a.lock, granting(longestClaim)) }, has, has, has},
		"a grant by a message that is not trusted": {func(q *queue, a *asker) { q.heard(a.lock, granting(time.Millisecond)) }, asks, again, stays},
		"a message without a grant":                {func(q *queue, a *asker) { q.heard(a.lock, lua.Message{Owner: "mine"}) }, asks, again, stays},
		"a message to another":                     {func(q *queue, a *asker) { q.heard(a.lock, lua.Message{Owner: "other"}) }, stays, stays, stays},
		"the loss of all places":                   {func(q *queue, a *asker) { q.heard(a.lock, lua.Message{Owner: lua.Everybody}) }, asks, again, stays},
		"the subscription was lost, or confirmed":  {func(q *queue, _ *asker) { q.changed() }, asks, again, stays},
		"a message to another may be lost":         {func(q *queue, _ *asker) { q.askAll() }, asks, stays, stays},
		"the server may not tell":                  {func(q *queue, _ *asker) { q.cannotTell() }, asks, stays, stays},
		"a foreign release":                        {func(q *queue, _ *asker) { q.unlocked() }, asks, again, stays},
		"a foreign release, another ticket first":  {func(q *queue, a *asker) { a.place.First = false; q.unlocked() }, later, again, later},
		"its pause is over":                        {func(_ *queue, a *asker) { a.askAt = time.Now(); a.turn() }, asks, stays, asks},
		"the only waiter leaves":                   {func(_ *queue, a *asker) { a.first.serve(nil, errCut) }, "ends", "ends", "ends"},
		"the only waiter leaves, after an event":   {func(_ *queue, a *asker) { a.again = true; a.first.serve(nil, errCut) }, "ends", "ends", "ends"},
	} {
		for state, want := range map[string]string{"waiting": row.waiting, "asking": row.asking, "behind": row.behind} {
			t.Run(name+", "+state, func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					_, l, f := newFake(t)
					l.terms.tickets = true
					f.signal = live{}
					refusal := lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 1, First: true}}
					a, w := f.enter(t, l, refusal)
					synctest.Wait() // it has taken a ticket
					answer := make(chan struct{})
					f.onAcquire = func(context.Context, int) (lua.Reply, error) { <-answer; return refusal, nil }
					var own *grant
					l.withQueue(func(q *queue) {
						a.owner.name, q.tickets = "mine", map[string]*asker{"mine": a}
						a.askAt = time.Now().Add(keepAlive)
						switch state {
						case "asking":
							a.again = true
							a.turn()
						case "behind":
							var err error
							own, err = new(candidate).init(l).grant(time.Now(), l.terms.lease, 0, run{})
							require.NoError(t, err)
						}
					})
					synctest.Wait()
					before := len(f.calls("acquire"))
					l.withQueue(func(q *queue) {
						if row.happens(q, a); q.signal == nil { // it has ended
							q.signal = live{}
						}
					})
					synctest.Wait()
					got := "ends"
					switch {
					case w.grant != nil:
						got = has
					case len(f.calls("acquire")) > before:
						got = asks
					case a.lock != nil && state != "asking":
						if got = stays; time.Until(a.askAt) < time.Second {
							got = later
						}
					}
					close(answer)
					synctest.Wait()
					if state == "asking" && w.waits() {
						if got = stays; len(f.calls("acquire")) > before {
							got = again
						}
					}
					if w.grant != nil {
						got = has
						w.grant.forgo()
					}
					require.Equal(t, want, got)
					f.onAcquire = nil
					w.leave()
					if own != nil {
						own.forgo()
					}
				})
			})
		}
	}
}

// The pause after a refusal, of an asker that has waited for a moment, hears, and has a ticket.
func TestPauseAfterARefusal(t *testing.T) {
	for name, row := range map[string]struct {
		ttl      time.Duration
		place    lua.Place
		deaf     int           // refusals before, without a subscription
		waited   time.Duration // before
		from, to time.Duration
		behind   bool // of a fair lock, behind another of its client
	}{
		"no subscription": {time.Hour, lua.Place{Time: 2}, 1, 0, 50 * time.Millisecond, 50 * time.Millisecond, false},
		"no subscription, the fifth time, first ticket": {time.Hour, lua.Place{Time: 2, First: true}, 5, 0, firstPause, firstPause, false},
		"the holder's TTL ends soon":                    {100 * time.Millisecond, lua.Place{Time: 2, First: true}, 0, 0, 101 * time.Millisecond, 105 * time.Millisecond, false},
		"the holder's TTL ends soon, another is first":  {200 * time.Millisecond, lua.Place{Time: 2}, 0, 0, 250 * time.Millisecond, 360 * time.Millisecond, false},
		"the key has no TTL":                            {-1, lua.Place{Time: 2, First: true}, 0, time.Minute, ttlPause, ttlPause, false},
		"no memory for a ticket":                        {time.Hour, lua.Place{}, 0, 0, deafPause, deafPause, false},
		"the first request of its own accord":           {time.Hour, lua.Place{Time: 2, First: true}, 0, 0, minKeepAlive, minKeepAlive * 11 / 10, false},
		"it has waited for long":                        {time.Hour, lua.Place{Time: 2, First: true}, 0, time.Minute, keepAlive, keepAlive * 11 / 10, false},
		"messages are refused":                          {time.Hour, lua.Place{Time: 2, Mute: true}, 0, time.Minute, 50 * time.Millisecond, 100 * time.Millisecond, false},
		"many wait":                                     {time.Hour, lua.Place{Time: 2, First: true, Queue: 60}, 0, 0, 3 * time.Second, 3300 * time.Millisecond, false},
		"fair, behind another":                          {time.Hour, lua.Place{Time: 2}, 0, 0, 24 * time.Hour, math.MaxInt64, true},
		"fair, behind another, the TTL ends soon":       {time.Second, lua.Place{Time: 2}, 0, 0, 24 * time.Hour, math.MaxInt64, true},
		"fair, behind another, no subscription":         {time.Hour, lua.Place{Time: 2}, 1, 0, 50 * time.Millisecond, 50 * time.Millisecond, true},
		"fair, behind another, no memory for a ticket":  {time.Hour, lua.Place{}, 0, 0, deafPause, deafPause, true},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c, l, f := newFake(t)
				l.terms.tickets = true
				f.signal = live{}
				if row.behind {
					l = c.NewFairLock("a")
					l.use(f)
					_, first := f.enter(t, l, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 1}})
					defer first.leave()
				}
				a, w := f.enter(t, l, lua.Reply{TTL: time.Hour})
				defer w.leave()
				synctest.Wait() // it has asked again, with a ticket
				l.withQueue(func(q *queue) {
					a.since = time.Now().Add(-row.waited)
					if row.deaf > 0 {
						q.signal, f.signal, a.silent = silentSignal{}, nil, row.deaf-1
					}
				})
				r := request.Answer[lua.Reply]{Sent: time.Now(), Value: lua.Reply{TTL: row.ttl, Place: row.place}}
				require.NoError(t, a.refused(t.Context(), r, lua.Ticket{Claim: time.Second, Hears: 1}))
				require.GreaterOrEqual(t, time.Until(a.askAt), row.from)
				require.LessOrEqual(t, time.Until(a.askAt), row.to)
			})
		})
	}
}

// What an owner may have left on the server when nobody asks for it any more, in each order of the withdrawal and a late
// answer: what is released then.
func TestWithdraw(t *testing.T) {
	acquired, refused, ticket := lua.Reply{Acquired: true}, lua.Reply{TTL: time.Hour}, lua.Reply{TTL: time.Hour, Leftover: true}
	type answer struct {
		reply lua.Reply
		err   error
	}
	for name, row := range map[string]struct {
		before    func(*candidate)
		late      *answer // nil: none
		now, soon bool    // a release, and another a second later, as the doubt is not over
		tickets   bool
	}{
		"nothing":                     {},
		"a ticket":                    {before: func(o *candidate) { o.ticket = true }, now: true, tickets: true},
		"a grant that nobody wants":   {before: func(o *candidate) { o.acquired = true }, now: true},
		"a doubt":                     {before: func(o *candidate) { o.doubt = true }, now: true, soon: true},
		"late: refused":               {late: &answer{refused, nil}},
		"late: refused with a ticket": {late: &answer{ticket, nil}, now: true, tickets: true},
		"late: acquired":              {late: &answer{acquired, nil}, now: true, tickets: true},
		"late: not executed":          {late: &answer{lua.Reply{}, request.ErrNotSent}},
		"late: unread":                {late: &answer{lua.Reply{}, request.ErrUnread}, now: true, tickets: true},
		"late: unknown":               {late: &answer{lua.Reply{}, errCut}, now: true, soon: true, tickets: true},
	} {
		for _, order := range []string{"the answer first", "the withdrawal first"} {
			t.Run(name+", "+order, func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					_, l, f := newFake(t)
					o := new(candidate).init(l)
					if row.before != nil {
						row.before(o)
					}
					late := func() {
						if row.late != nil {
							o.late(o.name, row.late.reply, row.late.err)
						}
					}
					if order == "the answer first" {
						late()
						o.withdraw()
					} else {
						o.withdraw()
						late()
					}
					synctest.Wait()
					require.Equal(t, row.now, len(f.calls("release")) > 0)
					if row.now {
						require.Equal(t, row.tickets, len(f.ends[0].Tickets) > 0)
					}
					n := len(f.calls("release"))
					time.Sleep(1500 * time.Millisecond)
					require.Equal(t, row.soon, len(f.calls("release")) > n)
				})
			})
		}
	}
}

// A request for the line may outlast the call that was first when it was sent: that call is not used again meanwhile,
// or its successor would get the error.
func TestFakeTimeErrorForACallThatHasLeft(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		refusal := lua.Reply{TTL: time.Hour, Holder: "x:1"}
		a, first := f.enter(t, l, refusal)
		wait, leave := context.WithCancel(t.Context())
		first.ctx = wait
		answer := make(chan struct{})
		f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
			if n > 2 {
				return refusal, nil
			}
			<-answer
			return lua.Reply{}, &lua.ConflictError{Key: "a", Type: "string"}
		}
		join := func(w *waiter) *waiter {
			_, own, err := l.queues.enter(w)
			require.NoError(t, err)
			require.Nil(t, own)
			return w
		}
		second := join(newWaiter(t, l))
		l.withQueue((*queue).askFirst)
		synctest.Wait()
		leave()
		_, err := first.wait()
		require.ErrorIs(t, err, ErrNotAcquired)
		first.free()
		third := join(l.starts(t.Context()))
		close(answer)
		synctest.Wait()
		l.withQueue(func(*queue) {
			require.True(t, third.waits() && second.waits())
			second.serve(nil, errCut)
			third.serve(nil, errCut)
			require.Nil(t, a.first)
		})
	})
}

// What comes late for an owner that has the lock is ended by the release of the lock, not before: an earlier release would
// release a live grant.
func TestFakeTimeLateAnswerOfALiveOwner(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		o := hold.grant.from
		o.late(o.name, lua.Reply{Acquired: true}, nil)
		time.Sleep(time.Second)
		require.Empty(t, f.calls("release"))
		require.NoError(t, hold.Unlock(held))
		require.Len(t, f.calls("release"), 1)
		o.late(o.name, lua.Reply{Acquired: true}, nil)
		synctest.Wait()
		require.Len(t, f.calls("release"), 2)
	})
}

// waitingReader is a reader that came while another one asked, which has acquired grant.
func waitingReader(t *testing.T, l *Lock) (w *waiter, g *grant, first *Hold) {
	t.Helper()
	leader := newWaiter(t, l)
	_, a, err := l.queues.enter(leader)
	require.NoError(t, err)
	w = behind(t, l)
	g, err = a.askByCall(leader)
	require.NoError(t, err)
	_, first, err = g.take(t.Context(), l, true)
	require.NoError(t, err)
	return w, g, first
}

// served has w take its grant, or leave without.
func served(t *testing.T, w *waiter, leaves bool) *Hold {
	t.Helper()
	if leaves {
		w.leave()
		require.ErrorIs(t, w.err, ErrNotAcquired)
		return nil
	}
	<-w.served
	require.NoError(t, w.err)
	_, hold, err := w.grant.take(t.Context(), w.lock, true)
	if err != nil {
		w.grant.forgo()
		return nil
	}
	return hold
}

func newReader(t *testing.T) (*Lock, *fake) {
	c, _, f := newFake(t)
	l := c.NewRWLock("a").Reader()
	l.use(f)
	return l, f
}

// A reader that was given the grant of another, and gives up before it has taken it, keeps it no longer
// than that: who is the last to leave releases it.
func TestFakeTimeGivenReaderLeaves(t *testing.T) {
	for _, last := range []string{"reader", "holder"} {
		t.Run(last, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				l, f := newReader(t)
				w, _, first := waitingReader(t, l)
				<-w.served
				leave := func() { require.Nil(t, served(t, w, true)) }
				unlock := func() { require.NoError(t, first.Unlock(t.Context())) }
				steps := []func(){leave, unlock}
				if last == "reader" {
					steps = []func(){unlock, leave}
				}
				steps[0]()
				synctest.Wait()
				require.Empty(t, f.calls("release"))
				steps[1]()
				synctest.Wait()
				require.Len(t, f.calls("release"), 1)
			})
		})
	}
}

// A grant that may have been given without an answer is not shared: the next reader asks.
func TestFakeTimeReadersShareNoDoubt(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, f := newReader(t)
		f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
			if n == 1 {
				return lua.Reply{}, errCut
			}
			return lua.Reply{Acquired: true}, nil
		}
		w, g, first := waitingReader(t, l)
		require.True(t, g.from.doubt)
		hold := served(t, w, false)
		require.NotEqual(t, first.Owner(), hold.Owner())
		require.NoError(t, first.Unlock(t.Context()))
		require.NoError(t, hold.Unlock(t.Context()))
	})
}

// The holder of a lost grant has unlocked before the readers that were given the grant are there: the last
// of them releases what the server may still have. Who comes asks for another grant.
func TestFakeTimeReadersOfALostGrant(t *testing.T) {
	for _, comes := range []bool{true, false} {
		redistest.Bubble(t, func(t *testing.T) {
			l, f := newReader(t)
			w, g, first := waitingReader(t, l)
			g.lose(errors.New("renewal failed"))
			require.ErrorIs(t, first.Unlock(t.Context()), ErrLeaseLost)
			synctest.Wait()
			require.Empty(t, f.calls("release"))
			require.Nil(t, served(t, w, !comes), "it has to ask for another")
			synctest.Wait()
			require.Len(t, f.calls("release"), 1)
		})
	}
}

// The answer to a release that was lost may have named a reader of the same client. The reader asks at once,
// and not when its own time comes.
func TestFakeTimeReaderWhoseGrantWasInALostAnswer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		rw := c.NewRWLock("a")
		rw.reader.use(f)
		rw.writer.use(f)
		free := false // only read and written while all others are blocked
		f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
			if n == 1 || free {
				return lua.Reply{Acquired: true}, nil
			}
			return lua.Reply{TTL: time.Hour, Holder: "x:1"}, nil
		}
		f.onRelease = func(_ context.Context, n int) (lua.Released, error) {
			switch n {
			case 1:
				return lua.Released{}, errCut
			case 2: // the first attempt has released it
				return lua.Released{}, lua.ErrNotOwner
			}
			return lua.Released{}, nil
		}
		held, hold, err := rw.Writer().Lock(t.Context())
		require.NoError(t, err)
		entered := make(chan *Hold)
		go func() {
			_, hold, err := rw.Reader().Lock(t.Context())
			require.NoError(t, err)
			entered <- hold
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		free = true
		began := time.Now()
		require.NoError(t, hold.Unlock(held))
		reads := <-entered
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.NoError(t, reads.Unlock(t.Context()))
	})
}

// A grant of a fair lock is lost after it was passed on and before its heir takes it. The heir's own owner is in the
// run, so its ticket is taken out; the heir asks with another.
func TestFakeTimeFairHeirOfALostGrant(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		l := c.NewFairLock("a")
		l.use(f)
		first, holder := f.enter(t, l, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 1, First: true}})
		second, w := f.enter(t, l, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 2}})
		owner := second.owner.name
		l.hear(fmt.Sprint(first.owner.name, " 3 6000 0 0 ", owner))
		<-holder.served
		require.NoError(t, holder.err)
		_, hold, err := holder.grant.take(t.Context(), l, true)
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(t.Context()))
		<-w.served
		g := w.grant
		require.NotNil(t, g, "it was passed on")
		g.lose(errGone)
		_, _, err = g.take(t.Context(), l, true)
		require.ErrorIs(t, err, ErrLeaseLost)
		g.forgo()
		time.Sleep(time.Second)
		require.True(t, slices.ContainsFunc(f.calls("release"), func(c noted) bool { return c.owner == owner }))
		require.Empty(t, l.queues.byKey, "nobody waits any more")
	})
}

// A waiter of a fair lock that has no place on the server, for want of memory there, asks of its own accord also
// behind another of its client, which otherwise asks for both.
func TestFairWaiterWithoutAPlaceAsks(t *testing.T) {
	for _, place := range []lua.Place{{Time: 1}, {}} {
		redistest.Bubble(t, func(t *testing.T) {
			c, _, f := newFake(t)
			f.signal = live{}
			l := c.NewFairLock("a")
			l.use(f)
			f.onAcquire = func(context.Context, int) (lua.Reply, error) {
				return lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 1, First: true}}, nil
			}
			wait := func() { _, _, _ = l.Lock(within(t, 30*time.Second)) }
			go wait()
			synctest.Wait()
			f.onAcquire = func(context.Context, int) (lua.Reply, error) { return lua.Reply{TTL: time.Hour, Place: place}, nil }
			go wait()
			synctest.Wait()
			asked := len(f.calls("acquire"))
			second := f.calls("acquire")[asked-1].owner
			time.Sleep(minKeepAlive - time.Millisecond)
			require.Len(t, f.calls("acquire"), asked)
			time.Sleep(deafPause)
			byItself := slices.ContainsFunc(f.calls("acquire")[asked:], func(n noted) bool { return n.owner == second })
			require.Equal(t, !place.Held(), byItself)
			time.Sleep(time.Minute)
		})
	}
}

func TestFakeTimeAbandonedAcquireIsReleasedTwice(t *testing.T) {
	for name, tt := range map[string]struct {
		answer time.Duration // when the acquire is answered after all; 0: never
		want   []time.Duration
	}{
		"no answer":   {0, []time.Duration{101 * time.Millisecond, 1101 * time.Millisecond, 2101 * time.Millisecond, 4101 * time.Millisecond, 8101 * time.Millisecond, 16101 * time.Millisecond, 30101 * time.Millisecond}},
		"late answer": {1 * time.Second, []time.Duration{time.Second}},
		"very late":   {2500 * time.Millisecond, []time.Duration{2 * time.Second, 2500 * time.Millisecond, 4 * time.Second, 6 * time.Second, 10 * time.Second, 18 * time.Second, 32 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c, l, f := newFake(t)
				f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) {
					if tt.answer == 0 {
						err := hang(ctx)
						time.Sleep(time.Millisecond) // the caller has left by then
						return lua.Reply{}, err
					}
					time.Sleep(tt.answer) // go-redis heeds no context
					return lua.Reply{Acquired: true}, nil
				}
				cause := errors.New("enough")
				ctx := deadline(t, 100*time.Millisecond, cause)
				got, hold, err := l.Lock(ctx)
				require.Equal(t, 100*time.Millisecond, time.Since(f.start))
				require.Nil(t, hold)
				require.Equal(t, ctx, got)
				require.ErrorIs(t, err, ErrUnavailable)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, cause)

				sleepLong(time.Minute)
				require.Equal(t, tt.want, f.times("release"))
				for _, r := range f.calls("release") {
					require.Equal(t, f.calls("acquire")[0].owner, r.owner)
				}
				require.Zero(t, c.active.Load(), "the janitor has ended, too")
			})
		})
	}
}

// An attempt that was repeated is answered while Unlock waits for Redis. What it has
// acquired is what Unlock releases: a second release would have told it that the lock
// was lost.
func TestFakeTimeLateAnswerDuringUnlock(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
			if n == 1 {
				time.Sleep(l.bound * 3 / 2)
			}
			return lua.Reply{Acquired: true}, nil
		}
		f.onRelease = func(_ context.Context, n int) (lua.Released, error) {
			time.Sleep(l.bound * 3 / 4) // the late answer comes meanwhile
			if n > 1 {
				return lua.Released{}, lua.ErrNotOwner
			}
			return lua.Released{}, nil
		}
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
		over := time.Since(f.start)
		sleepLong(time.Hour)
		at := f.times("release")
		require.Greater(t, len(at), 1, "an attempt may have arrived after it")
		for _, again := range at[1:] {
			require.GreaterOrEqual(t, again, over)
		}
		require.Zero(t, c.active.Load())
	})
}
