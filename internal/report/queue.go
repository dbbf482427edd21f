// Package report calls functions of the user's, such as a logger, from a goroutine of
// its own: what they are told about does not wait for them, however long they take.
package report

import (
	"context"
	"sync"
)

// limit is how many calls wait at most, beside as many that are being made.
const limit = 8192

// Queue makes calls, one after another, in the order of [Queue.Do]. The zero value is
// usable. It has a goroutine as long as there are calls to be made.
type Queue struct {
	// Dropped, if set, is called in its turn with the number of calls for which there
	// was no room. It is set before the first Do.
	Dropped func(n int)

	mu      sync.Mutex // guards what follows; never held during a call
	calls   []func()
	dropped int
	idle    chan struct{} // closed when the goroutine ends; nil if there is none
}

// Do has call made soon, and returns at once. If too many wait already, it is dropped
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

// run makes calls until there are none. One that panics, or ends its goroutine, as FailNow
// of a test does, ends this one: another goes on behind it. Who should be told of a panic may
// be the logger that has caused it.
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

// putBack has calls made before those that have come since, as far as there is room.
func (q *Queue) putBack(calls []func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls = append(calls, q.calls...)
	if n := len(q.calls) - 2*limit; n > 0 {
		clear(q.calls[2*limit:])
		q.calls, q.dropped = q.calls[:2*limit], q.dropped+n
	}
}

// take returns all calls that wait, and how many were dropped behind them. If there
// are none, the goroutine ends.
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

// Wait returns when all calls have been made, or with the cause of ctx when that is
// over. A call must not wait for its own queue.
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
