package rlock

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/lua"
)

const (
	maxSenders = 4                     // of prompt requests, at once
	maxBatch   = 128                   // requests in a pipeline
	patient    = 75 * time.Millisecond // how long a prompt request is waited for
	swift      = 15 * time.Millisecond // an answer within it lets the next requests be prompt
	aloneFor   = time.Minute           // how long a server is not asked again what it has refused
)

// commits sends the scripts of a client. Prompt requests that are made at the same
// time share pipelines, as databases let concurrent transactions share a write to
// the log (group commit). While fewer than maxSenders goroutines are sending, a
// request starts one more, and goes out at once and by itself. Others queue; whoever
// has sent sends the queue, as it stands by then, until there is none. Nobody waits
// in order to be in company, but for a fair lock, see gates.rest; and each request has
// its own outcome. In a pipeline most scripts are joined to one, see [lua.Send].
//
// In a cluster, where a pipeline would wait for the slowest of several nodes, no
// request is prompt.
type commits struct {
	redis.UniversalClient
	background func(func())  // runs a function in a goroutine of the client
	rdb        *redis.Client // nil in a cluster
	brisk      atomic.Bool   // the newest answer was swift
	alone      atomic.Int64  // until when scripts are not joined: the server refused it; Unix nanoseconds
	requests   sync.Pool     // of *request

	mu      sync.Mutex // guards what follows
	queue   []*request
	senders int

	resuming bool // those that have rested are about to be sent, and other fair ones with them
}

// request is a prompt one, which is expected to be answered at once and given up if
// it is not. It is also the context that it is made with.
type request struct {
	context.Context
	late func() // runs when a request that was given up has ended; may be nil
	cmd  redis.Cmder
	done chan bool // capacity 1; told whether there was an answer
	kept bool      // given up: it is not over when its caller is

	fair   *Lock // a fair lock that it is to acquire; then it may rest
	rested bool

	// Guarded by commits.mu.
	over, left bool // it is told, or will not be: its caller has gone
	rests      bool // it is not in the queue yet
}

func newCommits(rdb redis.UniversalClient, background func(func())) *commits {
	c := &commits{UniversalClient: rdb, background: background}
	c.rdb, _ = rdb.(*redis.Client)
	c.requests.New = func() any { return &request{done: make(chan bool, 1)} }
	return c
}

// prompt tells whether a request that may take so long can be a prompt one.
func (c *commits) prompt(bound time.Duration) bool {
	return c.rdb != nil && bound >= patient && c.brisk.Load()
}

// request returns a prompt request, to be put back after its use.
func (c *commits) request(ctx context.Context) *request {
	r := c.requests.Get().(*request)
	r.Context = ctx
	return r
}

func (c *commits) put(r *request) {
	if !r.kept {
		*r = request{done: r.done}
		c.requests.Put(r)
	}
}

// Process sends cmd, and returns its error. That of a prompt request may be that it
// was not sent, was abandoned or had no answer in time; then cmd must not be used.
func (c *commits) Process(ctx context.Context, cmd redis.Cmder) (err error) {
	r, ok := ctx.(*request)
	if !ok {
		defer c.measure(time.Now())
		return c.UniversalClient.Process(ctx, cmd)
	}
	r.cmd, r.over = cmd, false
	switch {
	case r.fair != nil && r.fair.gates.rest(r):
	case !c.enqueue(r):
	case c.rdb.Options().ContextTimeoutEnabled:
		return c.lone(r.Context, cmd)
	default:
		c.background(func() { c.drain(r.Context, []*request{r}) })
	}
	answered := false
	select {
	case answered = <-r.done:
	case <-r.Done():
		answered, err = c.abandon(r)
	}
	switch {
	case err == errNotSent:
		return err
	case err != nil, !answered:
		r.kept = true
		return cmp.Or(err, errNoAnswer)
	}
	return cmd.Err()
}

// lone makes a request in the goroutine of its caller, which spares the hop to
// another goroutine and back, 8 µs. It is for clients that obey a deadline.
func (c *commits) lone(ctx context.Context, cmd redis.Cmder) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patient)
	defer cancel()
	defer c.relay() // also if a hook of the client panics
	defer c.measure(time.Now())
	return c.UniversalClient.Process(ctx, cmd)
}

// relay has another goroutine send the queue, if there is one.
func (c *commits) relay() {
	if next := c.next(); next != nil {
		c.background(func() { c.drain(context.Background(), next) })
	}
}

// enqueue puts a request into the queue, or has its caller become a sender.
func (c *commits) enqueue(r *request) (sender bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.senders < maxSenders && (!c.resuming || r.fair == nil) {
		c.senders++
		return true
	}
	c.queue = append(c.queue, r)
	return false
}

// resume sends requests that have rested, and the one that comes for the same reason:
// the end of a grant.
func (c *commits) resume(rested []*request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rested {
		if r.rests = false; !r.left {
			c.queue = append(c.queue, r)
		}
	}
	if c.senders == maxSenders || len(c.queue) == 0 {
		return
	}
	c.senders++
	c.resuming = true
	c.background(func() {
		runtime.Gosched() // whoever has ended the grant, and asks for another, comes along
		c.mu.Lock()
		c.resuming = false
		c.mu.Unlock()
		c.drain(context.Background(), c.next())
	})
}

// abandon ends the wait for a request, unless it is over at this moment.
func (c *commits) abandon(r *request) (answered bool, err error) {
	c.mu.Lock()
	over, i := r.over, slices.Index(c.queue, r)
	switch {
	case over:
	case r.rests:
		r.left, err = true, errRested
	case i >= 0:
		c.queue = slices.Delete(c.queue, i, i+1)
		if err = errNotSent; r.rested {
			err = errRested
		}
	default:
		r.left, err = true, errAbandoned
	}
	c.mu.Unlock()
	if over {
		answered = <-r.done
	}
	return answered, err
}

// measure notes how long a request took that was sent at start.
func (c *commits) measure(start time.Time) { c.brisk.Store(time.Since(start) < swift) }

// next takes a batch off the queue. If there is none, it ends a sender.
func (c *commits) next() []*request {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.queue), maxBatch)
	if n == 0 {
		c.senders--
		return nil
	}
	batch := slices.Clone(c.queue[:n])
	c.queue = slices.Delete(c.queue, 0, n)
	return batch
}

// drain sends a batch, and then the queue until it is empty. It ends as well when a
// batch is given up: another sender has taken over.
func (c *commits) drain(ctx context.Context, batch []*request) {
	for batch != nil && c.send(context.WithoutCancel(ctx), batch) {
		runtime.Gosched() // whoever was answered, and asks for more, comes along
		batch, ctx = c.next(), context.Background()
	}
}

// send sends a batch in one pipeline, and tells whether there was an answer before
// it was given up.
func (c *commits) send(ctx context.Context, batch []*request) bool {
	told := false // guarded by mu
	timer := time.AfterFunc(patient, func() {
		if _, first := c.tell(batch, &told, false); !first {
			return
		}
		c.brisk.Store(false)
		c.relay()
	})
	defer timer.Stop()
	start := time.Now()
	if len(batch) == 1 {
		_ = c.UniversalClient.Process(ctx, batch[0].cmd)
	} else {
		cmds := make([]redis.Cmder, len(batch))
		for i, r := range batch {
			cmds[i] = r.cmd
		}
		if lua.Send(ctx, c.UniversalClient, cmds, start.UnixNano() >= c.alone.Load()) {
			c.alone.Store(start.Add(aloneFor).UnixNano())
		}
	}
	gone, inTime := c.tell(batch, &told, true)
	if inTime {
		c.measure(start)
	}
	for _, r := range gone {
		if r.late != nil {
			r.late()
		}
	}
	return inTime
}

// tell tells those who wait for the requests of a batch whether they were answered,
// unless that was told before. It returns those who do not wait any more.
func (c *commits) tell(batch []*request, told *bool, answered bool) (gone []*request, first bool) {
	c.mu.Lock()
	if first = !*told; !first {
		c.mu.Unlock()
		return batch, false
	}
	*told = true
	for _, r := range batch {
		if r.over = true; r.left {
			gone = append(gone, r)
		}
	}
	c.mu.Unlock()
	for _, r := range batch {
		if !r.left { // which nobody sets any more
			r.done <- answered
		}
	}
	return gone, true
}
