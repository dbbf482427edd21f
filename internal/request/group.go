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
	aloneFor  = time.Minute           // how long scripts are not combined after the server has refused a combined script
)

// Group sends the commands of all calls in pipelines. While fewer than Senders goroutines
// are sending, a call starts one more. The new goroutine sends the whole queue, waits for the
// answers, and sends the queue again, until the queue is empty. No call waits for more calls to
// share a pipeline, and each call has a separate outcome. A near server gets fewer batches at once:
// the batches are larger then, and cost less.
//
// A batch without an answer is given up after several times the duration of the newest answer, so
// the next calls can be sent. The duration counts from the sending of the batch: the wait for a
// connection says nothing about the server. The server still has to execute the batch, and the calls
// are made again. An overloaded server would answer no further batch of that size in time: so the
// next batches are a quarter as large, and grow again with each answer. The same holds after a batch
// answered too late for most of the calls.
//
// A group pays from two callers on. 64 goroutines on two cores, shared with the server, took 27 µs
// for a Lock with its Unlock (13.2 of the client's CPU, 6.7 of the server's), and 73 µs (46.5 and
// 25.6) with each command sent by the caller: BenchmarkUncontended64 of package rlock.
type Group struct {
	Config
	pool
	first    string                // for a master of a cluster: the key of the first call
	replaced func(key string) bool // reports whether another server has taken over a key; nil: none can
	guard    bool                  // the server may have become a replica, and the connection may be READONLY
	obeys    bool                  // the client ends a command at the deadline of its context
	sender   func()                // run, bound once for all senders

	// mu guards the fields below, and fields of a batch and a Call as noted there. Order: Masters.mu,
	// mu, then wait.mu or any mutex of Begin, Reload and the client's map of a cluster. No function of
	// the application is called under mu.
	mu       sync.Mutex
	ready    calls     // sent next
	held     calls     // held back
	hold     bool      // calls with Leaves are held back
	starting int       // senders without a batch yet
	open     []*batch  // under way; an abandoned batch only with a trailer
	hung     int       // abandoned batches in open
	alone    time.Time // until then scripts are not combined: the server has refused a combined script
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

// process queues a call, starts a sender if needed, and waits for the answer. If nothing else is under
// way, the caller's goroutine sends the batch: without the way to another goroutine and back, a quarter
// of the client's CPU is saved (BenchmarkLockAlone).
func (g *Group) process(c *Call) error {
	if c.ctx.Err() != nil { // a sender could take the call before the caller leaves
		return ErrNotSent
	}
	// Both lines ask the context before mu is taken, and before the call is in the queue: a context of
	// the application may panic.
	left, now := c.ctx.Done(), time.Now()
	alone := g.obeys && !c.leaves(now.Add(loneBound)) && c.opts.Trailer == (Trailer{})

	var own *batch
	g.mu.Lock()
	c.state, c.err, c.deadline, c.answer = queued, nil, now.Add(c.opts.Bound), nil
	g.alarm.set(c.deadline)
	switch {
	case g.hold && c.opts.Leaves:
		g.held.push(c)
	case alone && g.pace.fast && g.starting == 0 && len(g.open) == 0:
		g.ready.push(c)
		own = g.take(now)
		own.deadline, own.copyAt = now.Add(min(loneBound, c.opts.Bound)), time.Time{}
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
		return c.end()
	case <-left:
	case <-c.opts.Stop:
	}
	err := g.leave(c)
	if err == ErrAbandoned && c.copied {
		doubt(c.ctx)
	}
	return err
}

// start starts one more sender, if needed. mu is held.
func (g *Group) start() {
	if g.more() {
		g.Begin()
		go g.sender()
	}
}

// more reports whether one more sender must send, and counts the sender as starting. No sender is
// needed if nothing is queued, if a sender is starting, or if enough are sending: the limit can have
// dropped below the number of senders after a stall, when the server is near again. A hung batch with
// a trailer does not count until there are more than Senders hung batches: each keeps a connection,
// and the application and the renewals need connections, too. mu is held.
func (g *Group) more() bool {
	if g.ready.n == 0 || g.starting > 0 || len(g.open)-min(g.hung, g.Senders) >= g.pace.senders {
		return false
	}
	g.starting++
	return true
}

// run sends the queue until the queue is empty. Calls beyond one batch are for one more sender, if one
// more may send. A sender also ends when the batch was abandoned, as another sender goes on.
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

// carry sends a batch, and reports whether the same goroutine must send the next batch. If a hook of
// the client ends the goroutine, the callers get ErrNoAnswer, and another goroutine sends the next batch.
func (g *Group) carry(b *batch) (more bool) {
	answered := false
	defer func() {
		g.settle(b, answered)
		runtime.Gosched() // answered callers may make further calls, for the next batch
		if more = g.pass(b); more && !answered {
			g.Begin()
			go g.sender()
		}
	}()
	g.send(b)
	answered = true
	return more
}

// take makes a batch of the first call in the queue and all calls with the same trailer; nil if the
// queue is empty. mu is held.
func (g *Group) take(now time.Time) *batch {
	next := g.ready.first
	if next == nil {
		return nil
	}
	b := &batch{ // never reused: a hook of the client may still have the context
		deadline: now.Add(g.pace.bound),
		piped:    g.guard || now.Before(g.pace.scarce), combined: !now.Before(g.alone),
		note: note{since: now},
	}
	trailer := next.opts.Trailer
	if b.trailer = trailer.Command(&b.wait); b.trailer != nil {
		b.deadline, b.piped, b.combined, b.replicas = now.Add(trailer.Bound), true, false, trailer.Replicas > 0
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
	} else if g.Callers { // now, as an ended call may be reused with another context
		for _, c := range b.calls {
			b.wait.callers = append(b.wait.callers, c.ctx)
		}
	}
	if g.replaced != nil {
		b.look = now.Add(lookPause)
	}
	if g.Copies != nil {
		b.patience = trailer.Within + patience(g.pace.expected(len(b.calls)), b.deadline.Sub(now)-trailer.Within)
		b.copyAt = now.Add(b.patience)
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

// settle ends the calls of a sent batch. answered is false if a hook of the client has ended the
// goroutine.
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
	calls, first := b.waiting(), b.copied()
	if b.copying != nil {
		defer b.copying.race.tell(result[twins]{}) // after mu is given back
	}
	if took != 0 && answered && !b.replicas && IsAnswer(first.Err()) {
		g.pace.trip, g.pace.tripOf = took, len(b.calls)
	}
	switch {
	case b.trailer != nil: // the replicas' time does not tell the server's speed
	case took != 0:
		g.pace.answered(b, took)
	default:
		g.pace.unsent(b, now)
	}
	b.ended = true
	for _, c := range calls {
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

// pass removes b from the batches under way, and reports whether the sender must send the next batch.
func (g *Group) pass(b *batch) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case b.abandoned && b.trailer == nil: // another sender goes on
		return false
	case b.abandoned:
		g.hung--
	}
	g.open = slices.DeleteFunc(g.open, func(other *batch) bool { return other == b })
	return g.more()
}

// lone sends a batch in the goroutine of the only caller.
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

// alarm is one timer for all deadlines of a group. Group.mu guards alarm.
type alarm struct {
	ring  func()
	timer *time.Timer // runs ring
	next  time.Time   // when timer fires; zero: not set
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
