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
	minBatch    = 16                     // calls in a pipeline to a slow server, in any case
	fastAnswer  = 15 * time.Millisecond  // a caller may wait in its own goroutine for a server answering within fastAnswer
	near        = time.Millisecond       // a server answering within near is near
	nearSenders = 2                      // batches under way at once to a near server
	least       = 250 * time.Millisecond // a batch is given up after that at the earliest
	most        = 2 * time.Second        // and after that at the latest
	slower      = 8                      // times the duration of the newest answer: then a batch is given up
	scarceFor   = time.Minute            // how long single calls use the pool of pipelines
)

// batch is the calls of one pipeline.
type batch struct {
	wait     wait
	calls    []*Call
	room     [1]*Call // of calls, for a single call
	piped    bool     // sent as a pipeline even with a single call
	combined bool     // calls of the same script may be sent as one script
	note     note
	trailer  redis.Cmder // the last command of the pipeline; nil: none
	replicas bool        // the trailer waits for replicas: its answer does not tell the server's speed

	// Guarded by Group.mu.
	deadline  time.Time     // then the batch is abandoned
	look      time.Time     // when to ask whether another server has taken over; zero: never
	left      int           // calls without a caller, as all of these have left
	late      int           // among left: for want of an answer, or because another server took over
	cancelled bool          // the wait for a connection was cancelled
	ended     bool          // the calls are over
	abandoned bool          // overdue: the next batch may be sent
	patience  time.Duration // how long the sent batch waits for the answer before copies; does not change
	copyAt    time.Time     // when to look whether copies of a call are due; zero: not, or not any more
	copying   *copying      // the copies; nil before copyAt
}

// note is the first command of a pipeline, and notes the time of sending: go-redis asks for the
// arguments of a command in order to write, and has a connection then. A hook of the application may
// ask earlier; then that time is noted.
type note struct {
	redis.Cmder
	since time.Time
	at    atomic.Int64 // nanoseconds after since, plus 1; 0: not sent yet
}

func (n *note) Args() []any {
	n.at.CompareAndSwap(0, int64(time.Since(n.since))+1)
	return n.Cmder.Args()
}

// SetVal answers the command, as a hook that stands for a server does. A script has this method, and so must
// what stands for the script.
func (n *note) SetVal(value any) {
	if cmd, ok := n.Cmder.(interface{ SetVal(any) }); ok {
		cmd.SetVal(value)
	}
}

// sent reports whether the command may have been sent.
func (n *note) sent() bool { return n.at.Load() != 0 }

// errorOf is err, of a command in the pipeline: an unsentError if the pipeline was not sent.
func (n *note) errorOf(err error) error {
	if err != nil && !n.sent() {
		return &unsentError{err}
	}
	return err
}

// took is the time since the command was sent, at least 1; 0 if the command was not sent.
func (n *note) took() time.Duration {
	at := n.at.Load()
	if at == 0 {
		return 0
	}
	return max(time.Since(n.since)-time.Duration(at-1), 1)
}

// useful is the longest time that a copy of the command can take to show that the connection of the command is
// dead: see [Copies].
func (n *note) useful() time.Duration {
	if took := n.took(); took > 0 {
		return took / 3
	}
	return time.Since(n.since) / 8
}

// wait is the context of a batch, and bounds the wait for a connection: wait ends when the batch is
// given up, or when all callers have left. Only clients with ContextTimeoutEnabled look at the
// deadline.
type wait struct {
	values   context.Context   // of a single caller; nil with several callers
	callers  []context.Context // of several callers; wait does not have the values of these
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

// Callers returns the contexts of the callers of a pipeline sent with ctx, nil if ctx is the context of
// one caller.
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

// pace is the speed of a server, and the resulting limits for batches. Group.mu guards pace.
type pace struct {
	trip    time.Duration // newest round trip; 0 before the first
	tripOf  int           // the calls of that round trip
	took    time.Duration // duration of the newest answer; 0 before the first
	fast    bool          // a caller may wait for an answer in its own goroutine
	allowed int           // most batches under way at once
	senders int           // most batches under way at the present speed
	limit   int           // most calls in a batch
	bound   time.Duration // longest time of a batch
	scarce  time.Time     // until then single calls use the pool of pipelines
}

// newPace returns the pace of an unknown server.
func newPace(allowed int) pace {
	return pace{allowed: allowed, senders: allowed, limit: maxBatch, bound: most}
}

// answered notes the duration of an answer. An answer too late for most of the calls means: the server
// has too much to do.
func (p *pace) answered(b *batch, took time.Duration) {
	p.took = max(took, 1)
	p.fast = p.took < fastAnswer
	p.bound = min(max(slower*p.took, least), most)
	p.senders = p.allowed
	if p.took < near {
		p.senders = min(p.allowed, nearSenders)
	}
	switch {
	case b.abandoned: // the method abandoned has changed the limit
	case b.late > len(b.calls)/2 && len(b.calls) > minBatch:
		p.shrink(b)
	case len(b.calls) == p.limit:
		p.limit = min(2*p.limit, maxBatch)
	}
}

// expected is how long a batch of n calls takes. A longer one may take longer.
func (p *pace) expected(n int) time.Duration {
	return p.trip * time.Duration(max(n, p.tripOf)) / time.Duration(max(p.tripOf, 1))
}

// unsent notes a batch without a connection. Making a connection may take longer than an answer, and
// go-redis drops an unfinished connection when the caller leaves. So no caller sends the next batch in
// its own goroutine, and the next batch has twice the time if this batch was cancelled without a
// connection. go-redis has a separate pool for single commands, and the application may be using all
// connections of that pool.
func (p *pace) unsent(b *batch, now time.Time) {
	p.fast = false
	p.scarce = now.Add(scarceFor)
	if b.cancelled {
		p.bound = min(2*p.bound, most)
	}
}

// abandoned notes that a batch was given up. The server may have become slow, so this counts as an
// answer with twice the duration of the newest.
func (p *pace) abandoned(b *batch) {
	p.answered(b, min(max(2*p.took, fastAnswer), most))
	p.shrink(b)
}

// shrink makes the next batches a quarter as large as b, which was too much for the server.
func (p *pace) shrink(b *batch) { p.limit = max(min(p.limit, len(b.calls)/4), minBatch) }
