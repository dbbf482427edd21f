package rlock

import (
	"context"
	"errors"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// told is one request that sets the hold count of a grant on the server, for all changes before it is sent. The grant
// makes it, not a caller, so two never overlap. If all callers leave, the request is left as well: it gets no more
// copies, and late tells when the attempt under way has been executed. Guarded by grant.mu.
type told struct {
	ctx    context.Context // with the values of the first call
	cancel context.CancelFunc
	calls  int           // that wait for it
	repeat bool          // it follows one in doubt, and no change; see grant.tellLater
	done   chan struct{} // closed when it was answered, or left
	err    error
	next   *told // for the changes while it is under way; nil: none
}

var errCounting = errors.New("the request about the hold count has got no answer yet")

// recount has the server know the number of live holds, and the longest lease asked for. It waits as long as ctx and the
// policy of the call allow.
func (g *grant) recount(ctx context.Context, p request.Policy) error {
	t := g.tell(ctx, false)
	var over <-chan time.Time
	if p.Once {
		timer := time.NewTimer(p.Total)
		defer timer.Stop()
		over = timer.C
	}
	var err error
	select {
	case <-t.done:
		if !g.check() {
			return g.lossOrNil()
		}
		if t.err != nil {
			return g.lock.failure(ctx, t.err)
		}
		return nil
	case <-over:
		err = g.lock.failed(errCounting)
	case <-ctx.Done():
		err = g.lock.givenUp(ctx, nil)
	case <-p.Stop:
		err = g.lock.givenUp(ctx, nil)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.calls--; t.calls == 0 {
		t.cancel()
	}
	return err
}

// tell has the count told in the background. Requests have the values of ctx. repeat means: no change is the reason.
func (g *grant) tell(ctx context.Context, repeat bool) *told {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := &told{repeat: repeat, done: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	switch {
	case g.told == nil:
		g.told = t
		g.lock.client.background(func() { g.tellNow(t) })
	case g.told.next == nil || g.told.next.calls == 0: // all who waited for that one have left
		g.told.next = t
	default:
		t = g.told.next
		t.repeat = t.repeat && repeat
	}
	t.calls++
	return t
}

// tellNow makes the request, and then the next.
func (g *grant) tellNow(t *told) {
	t.err = unanswered{error: request.ErrNoAnswer} // if a hook ends the goroutine
	answered := false
	defer func() {
		if v := recover(); v != nil {
			t.err = panicked{value: v}
		}
		if !answered {
			g.leaves(countUnderWay)
		}
		t.cancel()
		close(t.done)
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.told = t.next; t.next != nil {
			g.lock.client.background(func() { g.tellNow(t.next) })
		}
	}()
	a := g.tellTotal(t.ctx)
	t.err = a.Err
	answered = true
	if a.Doubt && !t.repeat {
		g.tellLater()
	}
}

// tellLater has the count told once more when requests under way now have been executed. For example, A has the hold
// count 2 told, and leaves:
//
//	the client sends "count 2", and 0.1 s later a copy on a new connection, which is still being set up
//	A leaves, so 1 hold is left; the server answers "count 2"
//	the client sends "count 1" for that, and the server answers
//	the copy of "count 2" is executed
func (g *grant) tellLater() {
	c := g.lock.client
	c.background(func() {
		if c.sleep(context.Background(), countArrival) {
			g.tell(context.Background(), true)
		}
	})
}

// countArrival is how late a request about the hold count may be executed for the correction to find it.
const countArrival = time.Second

// tellTotal has the server know the sum of the live holds.
func (g *grant) tellTotal(ctx context.Context) (a request.Answer[lua.Released]) {
	n, lease, fixed := g.total()
	if n == (kind.Count{}) {
		return a
	}
	l := g.lock
	g.askAnew()
	a = send(ctx, l, g.retry(time.Until(g.entry.Until())), func(ctx context.Context, r lua.Runner) (lua.Released, error) {
		return l.freed(l.wire.SetCount(ctx, r, g.owner, lease, n))
	}, func(lua.Released, error) { // it may have set an older count
		g.tell(context.Background(), false)
		g.tellLater()
	})
	if a.Doubt || a.Open {
		g.leaves(countUnderWay)
	}
	if n.Exclusive == 0 && !l.terms.shared { // a downgrade: no message tells a writer waiting for this grant
		l.withQueue((*queue).askFirst)
	}
	switch {
	case a.Err == nil:
		g.entry.Rearm(a.Sent, lease, fixed)
	case errors.Is(a.Err, lua.ErrNotOwner):
		g.lose(errGone)
	default:
		g.entry.Rearm(time.Time{}, lease, fixed) // renew as the live holds ask, but trust no later end of the window
	}
	return a
}

// total is the sum of the live holds: their count, the longest lease, and whether no hold has the lease renewed. The
// count is zero if there is nothing to tell, or the grant was joined, and the count is the holder's.
func (g *grant) total() (n kind.Count, lease time.Duration, fixed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state != owned || len(g.holds) == 0 || g.lock.joined { // a passed-on grant has no hold at first
		return n, 0, false
	}
	n.Exclusive, n.Shared = int(g.exclusives.Load()), g.readers()
	fixed = true
	for _, h := range g.holds {
		lease, fixed = max(lease, h.lock.terms.lease), fixed && h.lock.terms.fixed
	}
	if g.left(proofGiven) { // processes may rely on the lease stated by the proof
		lease = max(lease, g.lock.terms.lease)
	}
	return n, lease, fixed
}
