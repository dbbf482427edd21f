package request

import (
	"context"
	"sync"
	"time"
)

// Alone says how [Detached] makes a request.
type Alone struct {
	Background func(func())    // runs a function in a goroutine that others wait for
	Bound      time.Duration   // how long the request may take
	Stop       <-chan struct{} // ends the wait as ctx does; may be nil

	// Watch, if set, is called at the beginning with the context of the request, own, and may
	// end that early by end. The timer that it returns is stopped when the request is over.
	Watch func(own context.Context, end func()) *time.Timer
}

// Detached makes a request in a goroutine of its own. When ctx is over, the bound has passed
// or Stop is closed, it returns and leaves the request behind. The context of the request
// ends then, and what the request returns goes to late, if set.
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
	if !d.leave(time.Until(deadline)) { // the answer came together with what ended the wait
		return d.result()
	}
	return none, err
}

// detached is a request that may be left behind.
type detached[T any] struct {
	late func(T, error)
	done chan struct{} // closed when there is an answer, unless it was left by then

	mu    sync.Mutex // guards what follows
	value T
	err   error
	over  bool
	left  bool
	timer *time.Timer // tells late that there is no answer in time
}

// result is what the request has returned to a caller who is still there: if it was not
// sent, that is not because the caller has left.
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

// leave reports whether the request was not over. late hears of it after bound, if
// there is no answer by then, and when there is one.
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
