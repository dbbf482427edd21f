package verify

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

// inside is a client within its critical section.
type inside struct {
	c      *client
	access access
	shared bool            // as a reader
	ctx    context.Context // of the innermost hold
	holds  []holding       // those to unlock; Do unlocks its own
	on     []target
	grant  event
	seen   int64 // before the last look that found the context alive
	told   bool  // of the loss
}

var errLostAtOnce = errors.New("lost before it could be looked at")

type holding struct {
	unlocker
	shared bool
}

// enter closes the operation that acquired the locks. It returns nil if one of them is lost
// already, of which the library tells nothing: its owner may be one whom the server had forgotten
// before the call, and who was passed on to it. That is as if the caller had left.
func (c *client) enter(ctx context.Context, hold unlocker, a access, grant event) *inside {
	in := &inside{c: c, access: a, shared: grant.Shared, ctx: ctx, on: slices.Clone(a.on), grant: grant}
	if hold != nil {
		in.holds = []holding{{hold, grant.Shared}}
	}
	for i := range in.on {
		t := &in.on[i]
		switch {
		case a.members != nil:
			t.owner, t.token = a.members[i].Owner(ctx), a.members[i].Token(ctx)
		case hold == nil, a.leads != nil: // Do keeps it
			t.owner, t.token = a.of(grant.Shared).Owner(ctx), a.of(grant.Shared).Token(ctx)
		default:
			h := hold.(*rlock.Hold)
			t.owner, t.token = h.Owner(), h.Token()
		}
		if t.owner == "" {
			c.returned(grant, unknown, errLostAtOnce)
			if hold != nil {
				_ = hold.Unlock(ctx)
			}
			return nil
		}
	}
	grant.on = in.on
	c.returned(grant, ok, nil)
	return in
}

// event is one under this grant.
func (in *inside) event(k kind, shared bool) event {
	return event{on: in.on, Kind: k, Grant: in.grant.ID, Seen: in.seen, Shared: shared}
}

// alive looks at the context, and notes a loss.
func (in *inside) alive() bool {
	before := now()
	if in.ctx.Err() == nil {
		in.seen = before
		return true
	}
	if errors.Is(context.Cause(in.ctx), rlock.ErrLeaseLost) && !in.told {
		in.told = true
		e := in.event(opLost, in.shared)
		e.Err = context.Cause(in.ctx).Error()
		in.c.call(e)
	}
	return false
}

// work is the critical section: nested holds, a change of the resource, and time.
func (in *inside) work(s step) {
	if !in.alive() {
		return
	}
	for n := range s.nested {
		in.nest(s, in.access.side != nil && s.order>>n&1 == 0)
	}
	if s.rival {
		in.rival()
	}
	if in.access.leads != nil {
		in.holds[0].unlocker.(leadership).proclaim(in.ctx)
	}
	values := in.read()
	if s.stays {
		in.await(in.c.p.freed)
	}
	in.stay(s.hold)
	for i, value := range values {
		in.write(in.on[i], value)
	}
}

// stay looks at the context as often as the clock's resolution makes sense of.
func (in *inside) stay(d time.Duration) {
	for start := time.Now(); in.alive() && time.Since(start) < d; {
		time.Sleep(time.Millisecond)
	}
}

// await looks at the context until it is told to leave.
func (in *inside) await(told <-chan struct{}) {
	for in.alive() {
		select {
		case <-told:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func (in *inside) nest(s step, shared bool) {
	e := in.c.call(in.event(opNest, shared))
	in.c.p.called.Add(1)
	ctx, hold, err := in.access.taker(shared).TryLockFor(in.ctx, s.wait)
	if err != nil {
		in.c.returned(e, refusal(err), err)
		return
	}
	if in.access.members == nil { // otherwise it has none
		e.on = []target{{in.on[0].lock, in.on[0].owner, hold.(*rlock.Hold).Token()}}
	}
	in.c.returned(e, ok, nil)
	in.ctx, in.holds = ctx, append(in.holds, holding{hold, shared})
}

// rival is somebody who was given the context without the ownership.
func (in *inside) rival() {
	e := in.c.call(event{on: in.access.on, Kind: opTry})
	in.c.p.called.Add(1)
	ctx, hold, err := in.access.taker(false).TryLock(rlock.Detach(in.ctx))
	if err != nil {
		in.c.returned(e, refusal(err), err)
		return
	}
	if other := in.c.enter(ctx, hold, in.access, e); other != nil { // legal only if the grant is over
		other.leave(step{})
	}
}

// read and write change the resource of each lock, unless it is only read. The
// value is not the holder's to change once its context has ended, but a process can
// be stopped after the look.
func (in *inside) read() (values []int64) {
	for _, t := range in.on {
		if t.token == 0 || !in.alive() {
			break
		}
		e := in.event(opRead, in.shared)
		e.on = []target{t}
		e = in.c.call(e)
		var err error
		e.Value, err = in.c.p.store.read(context.Background(), t.lock, t.token)
		in.c.returned(e, outcome(err), err)
		if err != nil {
			break
		}
		values = append(values, e.Value)
	}
	if in.shared {
		return nil
	}
	return values
}

func (in *inside) write(t target, value int64) {
	if !in.alive() {
		return
	}
	e := in.event(opWrite, in.shared)
	e.on, e.Value = []target{t}, value+1
	e = in.c.call(e)
	err := in.c.p.store.write(context.Background(), t.lock, t.token, e.Value)
	in.c.returned(e, outcome(err), err)
}

// leave unlocks in any order. A writer that has become a reader stays one for a
// while.
func (in *inside) leave(s step) {
	r := rand.New(rand.NewPCG(s.order, 0))
	r.Shuffle(len(in.holds), func(i, k int) { in.holds[i], in.holds[k] = in.holds[k], in.holds[i] })
	for _, hold := range in.holds {
		in.alive()
		e := in.c.call(in.event(opUnlock, hold.shared))
		err := hold.Unlock(in.ctx)
		in.c.returned(e, release(err), err)
		if in.access.side != nil {
			in.stay(time.Duration(r.IntN(20)) * ms)
		}
	}
}
