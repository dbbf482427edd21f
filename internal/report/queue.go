// Package report calls functions of the user, such as a logger, from a goroutine of the package: the
// reporting code never waits for a slow function.
package report

import (
	"context"
	"sync"
)

// limit is the most calls that wait, beside as many under way.
const limit = 8192

// Queue makes calls, one after another, in the order of [Queue.Do]. The zero value is
// usable. A Queue has a goroutine as long as there are calls to make.
type Queue struct {
	// Dropped, if set, is called in order with the number of calls dropped for want of room.
	// Dropped is set before the first Do.
	Dropped func(n int)

	mu      sync.Mutex // guards what follows; never held during a call
	calls   []func()
	dropped int
	idle    chan struct{} // closed when the goroutine ends; nil if there is none
}

// Do has call made soon, and returns at once. If too many calls wait already, call is dropped
// and counted.
func (q *Queue) Do(call func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) >= limit {
		q.dropped++
		return
	}
	q.calls = append(q.calls, call)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.run()
	}
}

// run makes calls until none are left. A call that panics, or ends the goroutine, as FailNow of a
// test does, ends run: another goroutine makes the rest. The panic is not reported, as the logger may
// have caused the panic.
func (q *Queue) run() {
	var calls []func()
	over := false
	defer func() {
		if _ = recover(); !over {
			q.putBack(calls)
			go q.run()
		}
	}()
	for {
		var dropped int
		if calls, dropped = q.take(); len(calls) == 0 {
			over = true
			return
		}
		if dropped > 0 && q.Dropped != nil {
			calls = append(calls, func() { q.Dropped(dropped) })
		}
		for len(calls) > 0 {
			call := calls[0]
			calls = calls[1:]
			call()
		}
	}
}

// putBack puts calls before the newer calls, as far as there is room.
func (q *Queue) putBack(calls []func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls = append(calls, q.calls...)
	if n := len(q.calls) - 2*limit; n > 0 {
		clear(q.calls[2*limit:])
		q.calls, q.dropped = q.calls[:2*limit], q.dropped+n
	}
}

// take returns all waiting calls, and the number of calls dropped since. Without calls, the goroutine
// ends.
func (q *Queue) take() (calls []func(), dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	calls, dropped = q.calls, q.dropped
	q.calls, q.dropped = nil, 0
	if len(calls) == 0 {
		close(q.idle)
		q.idle = nil
	}
	return calls, dropped
}

// Wait returns when all calls have been made, or when ctx ends, with the cause of ctx. A call must not
// wait for the queue of the call.
func (q *Queue) Wait(ctx context.Context) error {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
