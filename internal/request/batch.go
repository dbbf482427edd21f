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
	fastAnswer  = 15 * time.Millisecond  // an answer within it lets a caller's own goroutine wait
	near        = time.Millisecond       // an answer within it is waited for with the next batch
	nearSenders = 2                      // batches under way at once to a server that is near
	least       = 250 * time.Millisecond // before a batch is given up
	most        = 2 * time.Second
	slower      = 8           // times as long as the newest answer took: then a batch is given up
	scarceFor   = time.Minute // how long single calls go by the pool of pipelines
)

// batch is the calls of one pipeline.
type batch struct {
	wait   wait
	calls  []*Call
	room   [1]*Call // of calls, if it is only one
	piped  bool     // it goes in a pipeline in any case
	joined bool     // calls of the same script may go as one
	note   note

	// Guarded by Group.mu.
	deadline time.Time // then it is given up
	look     time.Time // then it is asked whether another server has taken over; zero: never
	leavers
	begged bool // it was told to stop waiting for a connection
	ended  bool // its calls are over
	given  bool // it was given up
}

// leavers are how many calls of a batch nobody waits for any more.
type leavers struct {
	left int // all of them
	late int // those that got no answer in their time, or are to go elsewhere
}

// note is the first command of a pipeline. It knows when it was sent: go-redis asks
// for the arguments of a command when it writes it, which is when it has a connection.
// A hook of the application may ask earlier; then the time is that.
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

// took is how long ago that was, at least 1; 0 if it was not sent.
func (n *note) took() time.Duration {
	at := n.at.Load()
	if at == 0 {
		return 0
	}
	return max(time.Since(n.since)-time.Duration(at-1), 1)
}

// wait is the context that a batch is sent with. It bounds the wait for a connection:
// it ends when the batch is given up, or when all its callers have left. Its deadline
// counts for clients with ContextTimeoutEnabled.
type wait struct {
	values   context.Context   // may be nil
	callers  []context.Context // of several callers, of whose values none is found here
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

// pace is how fast a server answers, and what follows for the batches that it is sent.
// Group.mu guards it.
type pace struct {
	took    time.Duration // what the newest answer took; 0: there was none
	fast    bool          // the answer is waited for in the caller's own goroutine
	allowed int           // batches under way at once, at most
	senders int           // as many may be, as it is
	limit   int           // calls in a batch
	bound   time.Duration // how long a batch is waited for
	scarce  time.Time     // until then single calls go by the pool of pipelines
}

// newPace returns that of a server of which nothing is known.
func newPace(allowed int) pace {
	return pace{allowed: allowed, senders: allowed, limit: maxBatch, bound: most}
}

// answered notes how long the answer to a batch took. One that came too late for most of
// its calls came from a server that has too much to do.
func (p *pace) answered(b *batch, took time.Duration) {
	p.took = max(took, 1)
	p.fast = p.took < fastAnswer
	p.bound = min(max(slower*p.took, least), most)
	p.senders = p.allowed
	if p.took < near {
		p.senders = min(p.allowed, nearSenders)
	}
	switch {
	case b.given: // givenUp sees to the size
	case b.late > len(b.calls)/2 && len(b.calls) > minBatch:
		p.shrink(b)
	case len(b.calls) == p.limit:
		p.limit = min(2*p.limit, maxBatch)
	}
}

// unsent notes that there was no connection for a batch. To make one may take longer than
// an answer, and one that is still being set up is lost when nobody waits for it any more: so
// no caller's own goroutine waits for the next, and a batch waits twice as long as this one
// if that was in vain. For single commands go-redis has a pool of its own, of which the
// application may have all.
func (p *pace) unsent(b *batch, now time.Time) {
	p.fast = false
	p.scarce = now.Add(scarceFor)
	if b.begged {
		p.bound = min(2*p.bound, most)
	}
}

// givenUp notes that a batch was. The server may have become slow: this counts as an
// answer that took twice as long as the newest.
func (p *pace) givenUp(b *batch) {
	p.answered(b, min(max(2*p.took, fastAnswer), most))
	p.shrink(b)
}

// shrink has the next batches be a quarter as large as one that was too much for the
// server.
func (p *pace) shrink(b *batch) { p.limit = max(min(p.limit, len(b.calls)/4), minBatch) }
