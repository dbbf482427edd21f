package request

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// batch is the calls of one pipeline.
type batch struct {
	calls []*Call
	room  [1]*Call // of calls, if it is only one
	owner *Call    // whose own it is; nil if it is nobody's
	note  note
	wait  wait

	// Guarded by Group.mu.
	deadline time.Time // then it is given up
	look     time.Time // then it is asked whether another server has taken over; zero: never
	left     int       // calls that were left
	late     int       // of these, calls that got no answer in their time, or are to go elsewhere
	begged   bool      // it was told to stop waiting for a connection
	ended    bool      // its calls are over
	given    bool      // it was given up
}

// abandoned cancels a batch for which nobody waits any more. What was sent goes on.
func (b *batch) abandoned() {
	if b.left == len(b.calls) {
		b.wait.cancel()
	}
}

// free makes a batch that is a call's own a new one, and lets the call use it again.
// Nobody else looks at it any more.
func (b *batch) free() {
	c := b.owner
	if c == nil {
		return
	}
	b.calls, b.room[0], b.owner = nil, nil, nil
	b.note.Cmder = nil
	b.note.at.Store(0)
	b.deadline, b.look, b.left, b.late, b.begged, b.ended, b.given = time.Time{}, time.Time{}, 0, 0, false, false, false
	b.wait.values, b.wait.deadline = nil, time.Time{}
	if b.wait.closed {
		b.wait.done, b.wait.closed = nil, false
	}
	c.Put()
}

// note is the first command of a pipeline. It knows when it was sent: go-redis asks
// for the arguments of a command when it writes it, which is when it has a connection.
// A hook of the application may ask earlier; then the time is that.
type note struct {
	redis.Cmder
	at atomic.Int64 // Unix nanoseconds; 0: not sent yet
}

func (n *note) Args() []any {
	n.at.CompareAndSwap(0, time.Now().UnixNano())
	return n.Cmder.Args()
}

// sent tells whether the command may have been sent.
func (n *note) sent() bool { return n.at.Load() != 0 }

// wait is the context that a batch is sent with. It bounds the wait for a connection:
// it ends when the batch is given up, or when all its callers have left. Its deadline
// counts for clients with ContextTimeoutEnabled.
type wait struct {
	values   context.Context   // may be nil
	callers  []context.Context // whose values there are none of
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
