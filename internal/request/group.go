package request

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	loneBound = 75 * time.Millisecond // how long a caller waits for a batch that it sends itself
	aloneFor  = time.Minute           // how long scripts are not combined after a server has refused it
)

// Group sends the commands of all calls in pipelines. While fewer than Senders goroutines
// are sending, a call starts one more, which sends all that is in the queue when it runs.
// When it has the answers it sends the queue again, until that is empty. No call waits so
// that others can join it, and each has its own outcome. A server that is near gets fewer
// batches at once: they are larger then, and cost less.
//
// A batch that gets no answer is given up after several times as long as the newest
// answer took, so that the calls behind it can be sent. How long an answer takes is
// measured from when the batch was sent: the wait for a connection says nothing about
// the server. The server still has to execute the batch, and its calls are made again. If
// the next batches were as large, an overloaded server would answer none of them in time:
// so they are a quarter as large, and grow again with each that is answered. The same
// holds after a batch that was answered too late for most of its calls.
//
// It pays from two callers on. 64 goroutines on two cores, shared with the server, took 27 µs for a
// Lock with its Unlock (13.2 of the client's CPU, 6.7 of the server's), and 73 µs (46.5 and 25.6)
// with each command sent by its caller: BenchmarkUncontended64 of package rlock.
type Group struct {
	Config
	pool
	first    string                // for a master of a cluster: the key that the group was made for
	replaced func(key string) bool // reports whether another server has taken over a key; nil: none can
	guard    bool                  // the server may have become a replica, and the connection may be READONLY
	obeys    bool                  // the client ends a command at the deadline of its context
	sender   func()                // run, bound once for all senders

	// mu guards what follows, and the fields of a batch and of a Call that say so. Order: Masters.mu,
	// mu, then wait.mu or whatever Begin, Reload and the client's map of a cluster take. No function
	// of the application is called under mu.
	mu       sync.Mutex
	ready    calls     // sent next
	held     calls     // held back
	hold     bool      // calls that may leave something behind are held back
	starting int       // senders that have not taken a batch yet
	open     []*batch  // under way; abandoned ones only if they have a trailer
	hung     int       // abandoned ones in open
	alone    time.Time // until then scripts are not combined: the server has refused it
	pace     pace
	alarm    alarm
}

// NewGroup returns a group. Nothing is sent.
func NewGroup(config Config) *Group {
	g := &Group{Config: config, pace: newPace(config.Senders)}
	g.home = g
	g.alarm.ring = g.ring
	if rdb, ok := config.Client.(*redis.Client); ok {
		g.obeys = obeys(rdb.Options())
	}
	g.sender = g.run
	return g
}

// process queues a call, sees to it that the queue is sent, and waits for the answer. A caller
// sends its own batch if nothing else is under way: that saves the way to another goroutine and
// back, a quarter of the client's CPU (BenchmarkLockAlone).
func (g *Group) process(c *Call) error {
	if c.ctx.Err() != nil { // a sender could be faster than its caller, who would have to fear that it was sent
		return ErrNotSent
	}
	// Both ask the context before mu is taken, and before the call is in the queue: the context may be
	// one of the application's, and panic.
	left, now := c.ctx.Done(), time.Now()
	alone := g.obeys && !c.leaves(now.Add(loneBound)) && c.opts.Trailer == (Trailer{})

	var own *batch
	g.mu.Lock()
	c.state, c.err, c.deadline = queued, nil, now.Add(c.opts.Bound)
	g.alarm.set(c.deadline)
	switch {
	case g.hold && c.opts.Leaves:
		g.held.push(c)
	case alone && g.pace.fast && g.starting == 0 && len(g.open) == 0:
		g.ready.push(c)
		own = g.take(now)
		own.deadline = now.Add(min(loneBound, c.opts.Bound))
		own.wait.deadline = own.deadline
		g.alarm.set(own.deadline)
	default:
		g.ready.push(c)
		g.start()
	}
	g.mu.Unlock()

	if own != nil {
		g.lone(own)
	}
	select {
	case <-c.done:
		return c.err
	case <-left:
	case <-c.opts.Stop:
	}
	return g.leave(c)
}

// start starts a sender if there are calls to send and one more may send. mu is held.
func (g *Group) start() {
	if g.more() {
		g.Begin()
		go g.sender()
	}
}

// more reports whether one more sender must send, and counts the sender as starting. None must if
// nothing is queued, if another one is starting, or if enough are sending: the limit can have dropped
// below the number of senders after a stall, when the server is near again. A hung batch with a
// trailer takes no sender's place, until there are Senders of them: each keeps a connection, and the
// application and the renewals need connections, too. mu is held.
func (g *Group) more() bool {
	if g.ready.n == 0 || g.starting > 0 || len(g.open)-min(g.hung, g.Senders) >= g.pace.senders {
		return false
	}
	g.starting++
	return true
}

// run is what a sender does: it sends the queue until that is empty. What does not fit into
// one batch is left to one more sender, if one more may send. A sender also ends when its
// batch was abandoned, as another has taken its place.
func (g *Group) run() {
	defer g.End()
	for {
		g.mu.Lock()
		g.starting--
		b := g.take(time.Now())
		g.start()
		g.mu.Unlock()
		if b == nil || !g.carry(b) {
			return
		}
	}
}

// carry sends a batch, and reports whether the same goroutine must send the next. If a hook of the
// client ends the goroutine, the callers get ErrNoAnswer, and another goroutine sends the next.
func (g *Group) carry(b *batch) (more bool) {
	answered := false
	defer func() {
		g.settle(b, answered)
		runtime.Gosched() // callers that were answered may make their next call, which the next batch then has
		if more = g.pass(b); more && !answered {
			g.Begin()
			go g.sender()
		}
	}()
	g.send(b)
	answered = true
	return more
}

// take makes a batch of the first call in the queue and those that may share its pipeline; nil if
// the queue is empty. mu is held.
func (g *Group) take(now time.Time) *batch {
	next := g.ready.first
	if next == nil {
		return nil
	}
	b := &batch{ // not a used one: a hook of the client may still have its context
		deadline: now.Add(g.pace.bound),
		piped:    g.guard || now.Before(g.pace.scarce), combined: !now.Before(g.alone),
		note: note{since: now},
	}
	trailer := next.opts.Trailer
	if b.trailer = trailer.Command(&b.wait); b.trailer != nil {
		b.deadline, b.piped, b.combined = now.Add(trailer.Bound), true, false
	}
	b.calls = b.room[:0]
	for next != nil && len(b.calls) < g.pace.limit {
		c := next
		if next = c.next; c.opts.Trailer != trailer {
			continue
		}
		g.ready.remove(c)
		c.state, c.batch = sent, b
		if c.deadline.Before(b.deadline) { // the time in the queue does not shorten the time for the answer
			c.deadline = now.Add(min(c.opts.Bound, b.deadline.Sub(now)))
			if end := c.opts.End; !end.IsZero() && end.Before(c.deadline) {
				c.deadline = end
			}
		}
		b.calls = append(b.calls, c)
	}
	if len(b.calls) == 1 {
		b.wait.values = b.calls[0].ctx
	} else if g.Callers { // now, as a call that is over may be used again with another context
		for _, c := range b.calls {
			b.wait.callers = append(b.wait.callers, c.ctx)
		}
	}
	if g.replaced != nil {
		b.look = now.Add(lookPause)
	}
	g.open = append(g.open, b)
	g.alarm.set(b.earliest())
	return b
}

// send sends a batch.
func (g *Group) send(b *batch) {
	if len(b.calls) == 1 && !b.piped {
		b.note.Cmder = b.calls[0].cmd
		_ = g.Client.Process(&b.wait, &b.note)
	} else {
		cmds := make([]redis.Cmder, len(b.calls), len(b.calls)+1)
		for i, c := range b.calls {
			if cmds[i] = c.cmd; c.opts.Repeat {
				cmds[i] = unjoined{c.cmd}
			}
		}
		if b.trailer != nil {
			cmds = append(cmds, b.trailer)
		}
		if g.Send(&b.wait, &marking{g.Client, &b.note, g.guard}, cmds, b.combined) {
			g.mu.Lock()
			g.alone = time.Now().Add(aloneFor)
			g.mu.Unlock()
		}
	}
}

// settle ends the calls of a batch that was sent. It was not answered if a hook of the client has
// ended the goroutine.
func (g *Group) settle(b *batch, answered bool) {
	var gone []*Call
	now, took := time.Now(), b.note.took()
	crowded := took == 0 && b.wait.Err() != nil
	errorOf := func(c *Call) error {
		if !answered {
			return ErrNoAnswer
		}
		return c.cmd.Err()
	}
	g.mu.Lock()
	switch {
	case b.trailer != nil: // the replicas' time tells nothing of the server
	case took != 0:
		g.pace.answered(b, took)
	default:
		g.pace.unsent(b, now)
	}
	b.ended = true
	for _, c := range b.calls {
		switch {
		case c.state == left:
			gone = append(gone, c)
		case c.state != sent:
		case crowded:
			c.complete(over, ErrCrowded)
		default:
			c.complete(over, b.note.errorOf(errorOf(c)))
		}
	}
	g.mu.Unlock()
	for _, c := range gone {
		if err := errorOf(c); c.opts.Late != nil && (took != 0 || err == nil) { // else nothing was sent
			c.opts.Late(cmp.Or(err, ErrUnread))
		}
	}
}

// pass removes b from the batches under way, and reports whether its sender must send the next.
func (g *Group) pass(b *batch) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case b.abandoned && b.trailer == nil: // another sender has taken the place of this one
		return false
	case b.abandoned:
		g.hung--
	}
	g.open = slices.DeleteFunc(g.open, func(other *batch) bool { return other == b })
	return g.more()
}

// lone sends a batch in the goroutine of its only caller.
func (g *Group) lone(b *batch) {
	defer func() { // also if a hook of the client panics
		if g.pass(b) {
			g.Begin()
			go g.sender()
		}
	}()
	g.send(b)
	g.settle(b, true)
}

// Server implements [Carrier].
func (g *Group) Server(string) Server { return g }

// Hold implements [Server].
func (g *Group) Hold(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold = on
	for c := g.held.first; c != nil && !on; c = g.held.first {
		g.held.remove(c)
		g.ready.push(c)
	}
	g.start()
}

// alarm is one timer for everything that may take too long. Group.mu guards it.
type alarm struct {
	ring  func()
	timer *time.Timer // runs ring
	next  time.Time   // when it fires; zero: it is not set
}

// set makes ring run at a time, or before.
func (a *alarm) set(at time.Time) {
	if !a.next.IsZero() && !at.Before(a.next) {
		return
	}
	a.next = at
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(at), a.ring)
	} else {
		a.timer.Reset(time.Until(at))
	}
}
