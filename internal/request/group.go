package request

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	grace     = 50 * time.Millisecond  // to stop waiting for a connection
	patient   = 75 * time.Millisecond  // how long a caller's own goroutine waits
	aloneFor  = time.Minute            // how long a server is not asked again what it has refused
	lookPause = 100 * time.Millisecond // how often somebody looks whether another server is to answer
)

// Runner sends commands. Every redis.UniversalClient is one.
type Runner interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// Config is what a [Carrier] needs.
type Config struct {
	Client     redis.UniversalClient
	Begin, End func() // are called before a goroutine is started, and when it ends
	Reload     func() // for a cluster: has its client look for the masters anew, in the background; often called
	Senders    int    // batches under way at once to a server
	Callers    bool   // what is sent for several callers has their contexts: see [Callers]

	// Send sends several commands in one pipeline, some of them as one script if joined
	// is set. It reports whether the server has refused that.
	Send func(ctx context.Context, r Runner, cmds []redis.Cmder, joined bool) (refused bool)
}

// Group sends the commands of all calls in pipelines. While fewer than Senders
// goroutines are sending, a call starts one more, which takes with it whatever is in
// the queue when it runs; on a server that is near one is enough, as what waits for its
// answer costs less together. Whoever has sent sends the queue as it stands by then,
// until there is none. Nobody waits in order to be in company, and each call has its
// own outcome.
//
// A batch that gets no answer is given up after several times as long as the newest
// answer took, so that those behind it go out past it. How long an answer takes is
// measured from when the batch was sent: the wait for a connection says nothing about
// the server. The server still has the batch to do, and its calls are made again. Were
// the next batches as large, an overloaded server would do nothing in time any more: they
// are a quarter as large, and grow again with each that is answered. The same
// holds after a batch that is answered, but too late for most of its calls.
type Group struct {
	Config
	pool
	master
	obeys bool         // the client ends a command at the deadline of its context
	send  func()       // drain
	alone atomic.Int64 // until when scripts are not joined: the server refused it; Unix nanoseconds

	mu sync.Mutex // guards what follows
	backlog
	open     []*batch // under way
	starting int      // goroutines that have not taken a batch yet
	pace     pace
	alarm    alarm
}

// master is what a group knows of its server if that is one of a cluster's.
type master struct {
	first    string                // the key that the group was made for
	replaced func(key string) bool // tells whether another server has taken over a key; nil: none can
	guard    bool                  // the server may be a replica, and its connections are for reading there
}

// NewGroup returns a group. Nothing is sent.
func NewGroup(config Config) *Group {
	g := &Group{Config: config, pace: newPace(config.Senders)}
	g.home = g
	g.alarm.ring = g.ring
	if rdb, ok := config.Client.(*redis.Client); ok {
		g.obeys = rdb.Options().ContextTimeoutEnabled
	}
	g.send = g.drain
	return g
}

func (g *Group) process(c *Call) error {
	if b := g.enter(c); b != nil {
		g.lone(b)
	}
	select {
	case <-c.done:
		return c.err
	case <-c.ctx.Done():
	case <-c.terms.Stop:
	}
	return g.leave(c)
}

// enter puts a call into the queue, and starts a sender if one is missing. It returns a
// batch if the caller is to send it itself, which spares the way to another goroutine
// and back.
func (g *Group) enter(c *Call) *batch {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	c.state, c.err, c.deadline = queued, nil, now.Add(c.terms.Bound)
	g.alarm.set(c.deadline)
	if g.hold && c.terms.Late != nil {
		g.held.push(c)
		return nil
	}
	g.ready.push(c)
	if !g.obeys || !g.pace.fast || g.starting > 0 || len(g.open) > 0 {
		g.start()
		return nil
	}
	b := g.take(now)
	b.deadline = now.Add(min(patient, c.terms.Bound))
	b.wait.deadline = b.deadline
	g.alarm.set(b.deadline)
	return b
}

// start starts a sender if there is a queue that one more could send. mu is held.
func (g *Group) start() {
	if g.ready.n == 0 || g.starting > 0 || len(g.open) >= g.pace.senders {
		return
	}
	g.starting++
	g.Begin()
	go g.send()
}

// Hold implements [Carrier].
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

// take makes a batch of the queue; nil if that is empty. mu is held.
func (g *Group) take(now time.Time) *batch {
	n := min(g.ready.n, g.pace.limit)
	if n == 0 {
		return nil
	}
	c := g.ready.first
	b := &c.own
	if n == 1 && c.users.CompareAndSwap(1, 2) { // whoever has sent it before has done with it
		b.owner = c
	} else {
		b = new(batch)
	}
	if n == 1 {
		b.wait.values = c.ctx
	}
	b.deadline, b.calls = now.Add(g.pace.patience), b.room[:0]
	for range n {
		c := g.ready.first
		g.ready.remove(c)
		c.state, c.batch = sent, b
		if c.deadline.Before(b.deadline) { // the time in the queue is not taken from that for the answer
			c.deadline = now.Add(min(c.terms.Bound, b.deadline.Sub(now)))
		}
		b.calls = append(b.calls, c)
		if g.Callers && n > 1 { // now: whoever leaves takes his along
			b.wait.callers = append(b.wait.callers, c.ctx)
		}
	}
	g.open = append(g.open, b)
	g.alarm.set(b.deadline)
	if g.replaced != nil {
		b.look = now.Add(lookPause)
		g.alarm.set(b.look)
	}
	return b
}

// leave ends the wait for a call, and returns its error. It may have been told at this
// moment.
func (g *Group) leave(c *Call) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch c.state {
	case queued:
		c.in.remove(c)
		c.state = over
		return ErrNotSent
	case sent:
		c.state = left
		c.batch.left++
		c.batch.abandoned()
		return ErrAbandoned
	}
	<-c.done
	return c.err
}
