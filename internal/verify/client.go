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
	part   part
	r      *rand.Rand
	ops    int
}

func newClient(p *partner, history, number int) *client {
	j := &p.job
	return &client{p: p, agenda: j.agenda(history), number: number, part: j.part(history, number), r: random(j.Seed, j.Row, j.Round, "client", history, number)}
}

// run makes steps while the fault lasts, and two after it.
func (c *client) run() {
	switch {
	case c.p.job.Lock == results:
		c.share()
		return
	case c.part != anyPart:
		c.play()
		return
	}
	for range c.p.job.Steps {
		select {
		case <-c.p.healed:
		default:
			c.do(draw(c.r, &c.p.job, c.agenda))
		}
	}
	c.rest()
}

// rest is what is left to do when everything is healed.
func (c *client) rest() {
	<-c.p.healed
	for range 2 {
		c.do(last(c.r, &c.p.job, c.agenda))
	}
}

// note writes an event, of an operation of this client, into the journal: once
// for each of its locks.
func (c *client) note(e event) {
	e.Client = c.number
	if len(e.on) > 1 {
		for _, t := range e.on {
			e.All = append(e.All, t.lock)
		}
	}
	for _, t := range e.on {
		e.Lock, e.Owner, e.Token = t.lock, t.owner, t.token
		c.p.journal.write(e)
	}
}

// call opens an operation.
func (c *client) call(e event) event {
	c.ops++
	e.ID, e.At = fmt.Sprintf("%d.%d", c.number, c.ops), now()
	c.note(e)
	if e.Kind == opLock {
		c.p.queue.join(c.number, e)
	}
	return e
}

// returned closes an operation. For a grant that began, e.Grant is its own ID.
func (c *client) returned(e event, r result, err error) {
	if e.Kind == opLock {
		c.p.queue.leave(c.number, e)
	}
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
	a := c.access(s)
	mu := a.taker(s.shared)
	e := event{on: a.on, Kind: opLock, Shared: s.shared, Must: s.must}
	var held context.Context
	var hold unlocker
	var err error
	switch s.how {
	case function:
		c.function(ctx, a, e, s)
		return
	case trying:
		e.Kind = opTry
		e = c.call(e)
		c.p.called.Add(1)
		held, hold, err = mu.TryLock(ctx)
	default:
		e = c.call(e)
		c.p.called.Add(1)
		held, hold, err = mu.TryLockFor(ctx, s.wait)
	}
	if err != nil {
		again := s.again > 0 && errors.Is(err, rlock.ErrUnavailable)
		e.Must = s.must && !again
		if c.returned(e, refusal(err), err); again {
			s.again--
			c.do(s)
		}
		return
	}
	if in := c.enter(held, hold, a, e); in != nil {
		in.work(s)
		in.leave(s)
	}
}

// function makes a step by way of Do.
func (c *client) function(ctx context.Context, a access, e event, s step) {
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	e = c.call(e)
	var last event
	entered := false
	c.p.called.Add(1)
	err := a.taker(s.shared).Do(ctx, func(held context.Context) error {
		entered = true
		in := c.enter(held, nil, a, e)
		if in == nil {
			return nil
		}
		in.work(s)
		in.leave(s) // the nested ones
		last = c.call(in.event(opUnlock, s.shared))
		return nil
	})
	switch {
	case !entered:
		c.returned(e, refusal(err), err)
	case last.ID != "":
		c.returned(last, release(err), err)
	}
}

// refusal tells what an error of an acquisition means to a history. A wait that
// is over may have left a request behind.
func refusal(err error) result {
	switch {
	case errors.Is(err, rlock.ErrLeaseLost):
		return lost
	case errors.Is(err, rlock.ErrUpgrade):
		return upgrade
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
