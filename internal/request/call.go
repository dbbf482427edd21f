package request

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Call is one request to a [Carrier]. Process sends one command at a time, and may be called again after
// the answer. A call is for one goroutine.
type Call struct {
	pool *pool
	opts Options
	ctx  context.Context // of the command
	cmd  redis.Cmder
	done chan struct{} // capacity 1; sent to when the call is over

	// Guarded by the mu of the call's group.
	state    state
	batch    *batch    // nil before the sending
	deadline time.Time // then the call is over
	err      error     // of the answer, or the reason for no answer
	copied   bool      // sent more than once
	answer   *twins    // a copy has got the answer; nil: none has
	in       *calls    // the queue of the call; nil: none
	prev     *Call     // neighbours in the queue
	next     *Call
}

// Options are the options of a call.
type Options struct {
	Key    string          // chooses the server, if the client has several
	Bound  time.Duration   // time for the call, and as much again if the queue has taken all of Bound
	End    time.Time       // then the call is over in any case; zero: no such time
	Stop   <-chan struct{} // ends the call as the context of Process does; may be nil
	Repeat bool            // an earlier attempt may have been executed
	Leaves bool            // the call may leave an orphan, and may be held back: see [Server]
	Late   func(error)     // if set, gets the outcome after the caller has left: maybe more than once

	Trailer Trailer // ends the pipeline of the call; the zero value: nothing does
}

// Trailer is a last command about all calls of a pipeline, which must all have the same trailer.
// A caller whose call was sent waits for the answer even when the context ends: the answer tells
// what the server has granted.
type Trailer struct {
	Replicas int           // WAIT for so many replicas to have all writes before; 0: INFO server
	Within   time.Duration // at most so long
	Bound    time.Duration // then another pipeline may be sent; the calls of this one go on
}

// Command makes the command: a [redis.IntCmd] about replicas, otherwise a [redis.StringCmd]; nil
// for the zero value.
func (t Trailer) Command(ctx context.Context) redis.Cmder {
	switch {
	case t == (Trailer{}):
		return nil
	case t.Replicas == 0:
		return redis.NewStringCmd(ctx, "info", "server")
	}
	return redis.NewIntCmd(ctx, "wait", t.Replicas, t.Within.Milliseconds())
}

type state int

const (
	queued state = iota
	sent
	left // sent, and the caller has left
	over
)

// home is the carrier of calls.
type home interface {
	// process sends the command of a call in a batch, and returns the command's error.
	process(c *Call) error
	Pipeline() redis.Pipeliner
}

// pool has the reusable calls of a carrier, with the channels.
type pool struct {
	home  home
	spare sync.Pool
}

// Call implements [Carrier].
func (p *pool) Call(o Options) *Call {
	c, ok := p.spare.Get().(*Call)
	if !ok {
		c = &Call{pool: p, done: make(chan struct{}, 1)}
	}
	c.opts = o
	return c
}

// Process sends cmd in a batch, and returns the error of cmd. After an error of this package, cmd must
// not be used.
func (c *Call) Process(ctx context.Context, cmd redis.Cmder) error {
	c.ctx, c.cmd = ctx, cmd
	return c.pool.home.process(c)
}

// Copied reports whether a command was sent more than once: see [Copies].
func (c *Call) Copied() bool { return c.copied }

// end returns the error of an ended call. If a copy has got the answer, the command tells that answer.
func (c *Call) end() error {
	if c.copied {
		doubt(c.ctx)
	}
	if c.answer != nil {
		c.cmd.(Twin).Take(c.answer.cmd)
	}
	return c.err
}

// leaves reports whether the caller's context ends before a time.
func (c *Call) leaves(before time.Time) bool {
	deadline, ok := c.ctx.Deadline()
	return ok && deadline.Before(before)
}

// complete ends a call, and wakes the caller. Group.mu is held.
func (c *Call) complete(s state, err error) {
	c.state, c.err = s, err
	c.done <- struct{}{}
}

// Trailer is the trailer's command with its answer, after a Process without error.
func (c *Call) Trailer() redis.Cmder {
	if c.answer != nil {
		return c.answer.trailer
	}
	return c.batch.trailer
}

// Put takes back a call for reuse, unless the caller has left: then a batch still uses the call.
func (c *Call) Put() {
	if c.state == left {
		return
	}
	c.ctx, c.opts, c.cmd, c.err, c.batch, c.copied, c.answer = nil, Options{}, nil, nil, nil, false, nil
	c.pool.spare.Put(c)
}

// Pipeline returns a pipeline of the client.
func (c *Call) Pipeline() redis.Pipeliner { return c.pool.home.Pipeline() }

// calls is a queue of calls. Any call can be taken out.
type calls struct {
	first, last *Call
	n           int
}

func (q *calls) push(c *Call) {
	c.in, c.prev, c.next = q, q.last, nil
	if q.last == nil {
		q.first = c
	} else {
		q.last.next = c
	}
	q.last = c
	q.n++
}

func (q *calls) remove(c *Call) {
	prev, next := c.prev, c.next
	if prev == nil {
		q.first = next
	} else {
		prev.next = next
	}
	if next == nil {
		q.last = prev
	} else {
		next.prev = prev
	}
	c.in, c.prev, c.next = nil, nil, nil
	q.n--
}
