package verify

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

// inside is a client within its critical section.
type inside struct {
	c     *client
	mu    *rlock.Lock
	ctx   context.Context // of the innermost hold
	holds []*rlock.Hold   // those to unlock; Do unlocks its own
	token int64
	grant event
	seen  int64 // before the last look that found the context alive
	told  bool  // of the loss
}

func (c *client) enter(ctx context.Context, hold *rlock.Hold, mu *rlock.Lock, grant event) *inside {
	in := &inside{c: c, mu: mu, ctx: ctx, grant: grant}
	if hold != nil {
		in.holds, in.token, grant.Owner = []*rlock.Hold{hold}, hold.Token(), hold.Owner()
	} else {
		in.token, grant.Owner = in.peek()
	}
	grant.Token = in.token
	c.returned(grant, ok, nil)
	return in
}

// peek takes a nested hold, which is not recorded, because Do does not show its
// own. Nothing is learnt of a grant that is lost already, or of a closed client's:
// neither is passed on.
func (in *inside) peek() (token int64, owner string) {
	ctx := context.WithoutCancel(in.ctx) // which Do may have left
	for {
		held, hold, err := in.mu.TryLockFor(ctx, time.Second)
		switch {
		case err == nil:
			token, owner = hold.Token(), hold.Owner()
			_ = hold.Unlock(held)
			return token, owner
		case !errors.Is(err, rlock.ErrUnavailable):
			return 0, ""
		}
	}
}

// event is one under this grant.
func (in *inside) event(k kind) event {
	return event{Lock: in.grant.Lock, Kind: k, Grant: in.grant.ID, Seen: in.seen}
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
		e := in.event(opLost)
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
	for range s.nested {
		in.nest(s)
	}
	if s.rival {
		in.rival()
	}
	value, ready := in.read()
	in.stay(s.hold)
	if ready {
		in.write(value)
	}
}

// stay looks at the context as often as the clock's resolution makes sense of.
func (in *inside) stay(d time.Duration) {
	for start := time.Now(); in.alive() && time.Since(start) < d; {
		time.Sleep(time.Millisecond)
	}
}

func (in *inside) nest(s step) {
	e := in.c.call(in.event(opNest))
	ctx, hold, err := in.mu.TryLockFor(in.ctx, s.wait)
	if err != nil {
		in.c.returned(e, refusal(err), err)
		return
	}
	e.Token = hold.Token()
	in.c.returned(e, ok, nil)
	in.ctx, in.holds = ctx, append(in.holds, hold)
}

// rival is somebody who was given the context without the ownership.
func (in *inside) rival() {
	e := event{Lock: in.grant.Lock, Kind: opTry}
	e = in.c.call(e)
	ctx, hold, err := in.mu.TryLock(rlock.Detach(in.ctx))
	if err != nil {
		in.c.returned(e, refusal(err), err)
		return
	}
	other := in.c.enter(ctx, hold, in.mu, e) // legal only if the grant is over
	other.leave(step{})
}

// read and write change the resource. The value is not the holder's to change
// once its context has ended, but a process can be stopped after the look.
func (in *inside) read() (int64, bool) {
	if in.token == 0 || !in.alive() {
		return 0, false
	}
	e := in.c.call(in.event(opRead))
	var err error
	e.Value, err = in.c.p.store.read(context.Background(), e.Lock, in.token)
	in.c.returned(e, outcome(err), err)
	return e.Value, err == nil
}

func (in *inside) write(value int64) {
	if !in.alive() {
		return
	}
	e := in.event(opWrite)
	e.Value = value + 1
	e = in.c.call(e)
	err := in.c.p.store.write(context.Background(), e.Lock, in.token, e.Value)
	in.c.returned(e, outcome(err), err)
}

// leave unlocks in any order.
func (in *inside) leave(s step) {
	r := rand.New(rand.NewPCG(s.order, 0))
	r.Shuffle(len(in.holds), func(i, k int) { in.holds[i], in.holds[k] = in.holds[k], in.holds[i] })
	for _, hold := range in.holds {
		in.alive()
		e := in.c.call(in.event(opUnlock))
		err := hold.Unlock(in.ctx)
		in.c.returned(e, release(err), err)
	}
}
