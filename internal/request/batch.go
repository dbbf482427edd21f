package request

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxBatch    = 1024                   // calls in a pipeline
	minBatch    = 16                     // that a slow server is sent in any case
	fastAnswer  = 15 * time.Millisecond  // a server that answers within it may be waited for in the caller's own goroutine
	near        = time.Millisecond       // a server that answers within it is near
	nearSenders = 2                      // batches under way at once to a server that is near
	least       = 250 * time.Millisecond // a batch is not given up before that
	most        = 2 * time.Second        // and at the latest then
	slower      = 8                      // times as long as the newest answer took: then a batch is given up
	scarceFor   = time.Minute            // how long single calls use the pool of pipelines
)

// batch is the calls of one pipeline.
type batch struct {
	wait     wait
	calls    []*Call
	room     [1]*Call // of calls, if it is only one
	piped    bool     // it is sent as a pipeline even if it is one call
	combined bool     // calls of the same script may be sent as one
	note     note
	trailer  redis.Cmder // the last command of the pipeline; nil: none

	// Guarded by Group.mu.
	deadline  time.Time // then the batch is abandoned
	look      time.Time // when to ask whether another server has taken over; zero: never
	left      int       // calls whose callers have left
	late      int       // callers among these that left for want of an answer, or as another server took over
	cancelled bool      // the batch was told to stop waiting for a connection
	ended     bool      // its calls are over
	abandoned bool      // nobody waits for the answer, and the next batch may be sent
}

// note is the first command of a pipeline. It notes when it is sent: go-redis asks for the
// arguments of a command when it writes it, and then it has a connection. A hook of the
// application may ask earlier; then that is the time.
type note struct {
	redis.Cmder
	since time.Time
	at    atomic.Int64 // nanoseconds after since, and one more; 0: not sent yet
}

func (n *note) Args() []any {
	n.at.CompareAndSwap(0, int64(time.Since(n.since))+1)
	return n.Cmder.Args()
}

// sent reports whether the command may have been sent.
func (n *note) sent() bool { return n.at.Load() != 0 }

// errorOf is err, of a command that was to be sent with the first one: an unsentError if none was.
func (n *note) errorOf(err error) error {
	if err != nil && !n.sent() {
		return &unsentError{err}
	}
	return err
}

// took is the time since the command was sent, at least 1; 0 if it was not sent.
func (n *note) took() time.Duration {
	at := n.at.Load()
	if at == 0 {
		return 0
	}
	return max(time.Since(n.since)-time.Duration(at-1), 1)
}

// wait is the context that a batch is sent with. It bounds the wait for a connection: it
// ends when the batch is given up, or when all its callers have left. Only clients with
// ContextTimeoutEnabled look at its deadline.
type wait struct {
	values   context.Context   // that of the only caller; nil if there are several
	callers  []context.Context // those of several callers; their values are not found here
	deadline time.Time         // zero: none

	mu     sync.Mutex // guards what follows
	done   chan struct{}
	closed bool
}

func (w *wait) Deadline() (time.Time, bool) { return w.deadline, !w.deadline.IsZero() }

func (w *wait) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = make(chan struct{})
		if w.closed {
			close(w.done)
		}
	}
	return w.done
}

func (w *wait) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return context.Canceled
	}
	return nil
}

func (w *wait) Value(key any) any {
	switch {
	case w.values != nil:
		return w.values.Value(key)
	case key == callersKey{} && w.callers != nil:
		return w.callers
	}
	return nil
}

type callersKey struct{}

// Callers returns the contexts of the callers for whom a request is made with ctx, nil if
// it is that of one caller.
func Callers(ctx context.Context) []context.Context {
	callers, _ := ctx.Value(callersKey{}).([]context.Context)
	return callers
}

func (w *wait) cancel() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed && w.done != nil {
		close(w.done)
	}
	w.closed = true
}

// pace is how fast a server answers, and what follows from that for the batches that it is
// sent. Group.mu guards it.
type pace struct {
	took    time.Duration // how long the newest answer took; 0 before the first
	fast    bool          // a caller may wait for an answer in its own goroutine
	allowed int           // how many batches may be under way at once
	senders int           // how many may be under way at the present pace
	limit   int           // calls in a batch
	bound   time.Duration // how long a batch may take
	scarce  time.Time     // until then single calls use the pool of pipelines
}

// newPace returns the pace of a server of which nothing is known.
func newPace(allowed int) pace {
	return pace{allowed: allowed, senders: allowed, limit: maxBatch, bound: most}
}

// answered notes how long the answer to a batch took. If it came too late for most of the
// calls, the server has too much to do.
func (p *pace) answered(b *batch, took time.Duration) {
	p.took = max(took, 1)
	p.fast = p.took < fastAnswer
	p.bound = min(max(slower*p.took, least), most)
	p.senders = p.allowed
	if p.took < near {
		p.senders = min(p.allowed, nearSenders)
	}
	switch {
	case b.abandoned: // abandoned has changed the size
	case b.late > len(b.calls)/2 && len(b.calls) > minBatch:
		p.shrink(b)
	case len(b.calls) == p.limit:
		p.limit = min(2*p.limit, maxBatch)
	}
}

// unsent notes that there was no connection for a batch. A connection may take longer to make
// than an answer, and go-redis drops one that it is making when its caller leaves. So the next
// batch is not sent by a caller's own goroutine, and waits twice as long if this one has left
// before it got a connection. For single commands go-redis has a separate pool, all
// connections of which the application may be using.
func (p *pace) unsent(b *batch, now time.Time) {
	p.fast = false
	p.scarce = now.Add(scarceFor)
	if b.cancelled {
		p.bound = min(2*p.bound, most)
	}
}

// abandoned notes that nobody waits for a batch any more. The server may have become slow, so this counts as
// an answer that took twice as long as the newest.
func (p *pace) abandoned(b *batch) {
	p.answered(b, min(max(2*p.took, fastAnswer), most))
	p.shrink(b)
}

// shrink makes the next batches a quarter as large as one that was too much for the server.
func (p *pace) shrink(b *batch) { p.limit = max(min(p.limit, len(b.calls)/4), minBatch) }
