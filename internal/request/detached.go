package request

import (
	"context"
	"sync"
	"time"
)

// Alone says how [Detached] makes a request.
type Alone struct {
	Background func(func())    // runs a function in a goroutine; the client's Close waits for the goroutine
	Bound      time.Duration   // time for the request
	Stop       <-chan struct{} // ends the wait as ctx does; may be nil

	// Watch, if set, is called at the beginning with the context of the request, own, and may
	// call end to end own early. The returned timer is stopped when the request is over.
	Watch func(own context.Context, end func()) *time.Timer
}

// Detached makes a request in a separate goroutine. When ctx is over, the bound has passed or Stop is
// closed, Detached returns without waiting for the request. The context of the request ends then, and
// late, if set, gets the result of the request.
func Detached[T any](ctx context.Context, a Alone, request func(context.Context) (T, error), late func(T, error)) (T, error) {
	var none T
	select {
	case <-ctx.Done():
		return none, ErrNotSent
	case <-a.Stop:
		return none, ErrNotSent
	default:
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.Bound)
	d := &detached[T]{late: late, done: make(chan struct{})}
	a.Background(func() {
		defer cancel()
		if a.Watch != nil {
			defer a.Watch(own, cancel).Stop()
		}
		value, err := request(own)
		d.answer(value, err)
	})
	err := ErrAbandoned
	select {
	case <-d.done:
		return d.result()
	case <-ctx.Done():
	case <-a.Stop:
	case <-own.Done():
		err = ErrNoAnswer
	}
	deadline, _ := own.Deadline()
	cancel()
	if !d.leave(time.Until(deadline)) { // the answer came at the same moment as the end of the wait
		return d.result()
	}
	return none, err
}

// detached is a request whose caller may leave.
type detached[T any] struct {
	late func(T, error)
	done chan struct{} // closed by the answer, unless the caller has left

	mu    sync.Mutex // guards what follows
	value T
	err   error
	over  bool
	left  bool
	timer *time.Timer // tells late: no answer in time
}

// result is the result of the request for a caller still there: if the request was not sent, the reason
// is not that the caller has left.
func (d *detached[T]) result() (T, error) {
	if d.err == ErrNotSent {
		return d.value, ErrCrowded
	}
	return d.value, d.err
}

func (d *detached[T]) answer(value T, err error) {
	d.mu.Lock()
	d.over = true
	gone := d.left
	if !gone {
		d.value, d.err = value, err
		close(d.done)
	} else if d.timer != nil {
		d.timer.Stop()
	}
	d.mu.Unlock()
	if gone && d.late != nil {
		d.late(value, err)
	}
}

// leave reports whether the request was not over. late gets ErrNoAnswer after bound, if there is no
// answer by then, and later the answer.
func (d *detached[T]) leave(bound time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return false
	}
	d.left = true
	if d.late != nil && bound > 0 {
		d.timer = time.AfterFunc(bound, func() {
			var none T
			d.late(none, ErrNoAnswer)
		})
	}
	return true
}
