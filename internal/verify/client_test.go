package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

// client is one goroutine of a party that takes part in one history.
type client struct {
	p      *partner
	agenda agenda
	number int // within the history
	r      *rand.Rand
	ops    int
}

func newClient(p *partner, history, number int) *client {
	j := &p.job
	return &client{p: p, agenda: j.agenda(history), number: number, r: random(j.Seed, j.Row, j.Round, "client", history, number)}
}

// run makes steps while the fault lasts, and two after it.
func (c *client) run() {
	for range c.p.job.Steps {
		select {
		case <-c.p.healed:
		default:
			c.do(draw(c.r, c.agenda, c.p.job.Cancel))
		}
	}
	<-c.p.healed
	for range 2 {
		c.do(last(c.r, c.agenda))
	}
}

// note writes an event, of an operation of this client, into the journal.
func (c *client) note(e event) {
	e.Client = c.number
	c.p.journal.write(e)
}

// call opens an operation.
func (c *client) call(e event) event {
	c.ops++
	e.ID = fmt.Sprintf("%d.%d", c.number, c.ops)
	c.note(e)
	return e
}

// returned closes an operation. For a grant that began, e.Grant is its own ID.
func (c *client) returned(e event, r result, err error) {
	e.At, e.Return, e.Result = now(), true, r
	if err != nil {
		e.Err = err.Error()
	}
	c.note(e)
}

// do makes one step.
func (c *client) do(s step) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if pause(ctx, s.pause); s.cancel > 0 {
		stop := time.AfterFunc(s.cancel, cancel)
		defer stop.Stop()
	}
	name := c.agenda.locks[s.lock]
	mu := c.lock(name, s.fixed)
	e := event{Lock: name, Kind: opLock, Must: s.must}
	var held context.Context
	var hold *rlock.Hold
	var err error
	switch s.how {
	case function:
		c.function(ctx, mu, e, s)
		return
	case trying:
		e.Kind = opTry
		e = c.call(e)
		held, hold, err = mu.TryLock(ctx)
	default:
		e = c.call(e)
		held, hold, err = mu.TryLockFor(ctx, s.wait)
	}
	if err != nil {
		c.returned(e, refusal(err), err)
		return
	}
	in := c.enter(held, hold, mu, e)
	in.work(s)
	in.leave(s)
}

// function makes a step by way of Do.
func (c *client) function(ctx context.Context, mu *rlock.Lock, e event, s step) {
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	e = c.call(e)
	var in *inside
	var last event
	err := mu.Do(ctx, func(held context.Context) error {
		in = c.enter(held, nil, mu, e)
		in.work(s)
		in.leave(s) // the nested ones
		last = c.call(event{Lock: e.Lock, Kind: opUnlock, Grant: e.ID, Seen: in.seen})
		return nil
	})
	if in == nil {
		c.returned(e, refusal(err), err)
		return
	}
	c.returned(last, release(err), err)
}

func (c *client) lock(name string, fixed bool) *rlock.Lock {
	opts := []rlock.LockOption{rlock.WithLeaseTime(c.agenda.lease)}
	if c.agenda.fenced {
		opts = append(opts, rlock.WithFencing())
	}
	if fixed {
		opts = append(opts, rlock.WithoutRenewal())
	}
	return c.p.locks.Load().NewLock(name, opts...)
}

// refusal tells what an error of an acquisition means to a history. A wait that
// is over may have left a request behind.
func refusal(err error) result {
	switch {
	case errors.Is(err, rlock.ErrLeaseLost):
		return lost
	case errors.Is(err, rlock.ErrNotAcquired) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
		return denied
	}
	return unknown
}

// release does it for an Unlock.
func release(err error) result {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, rlock.ErrLeaseLost):
		return lost
	}
	return unknown
}
