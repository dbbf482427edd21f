package request

import (
	"context"
	"sync"
	"time"
)

// Detached makes a request in a goroutine of its own. When ctx is over, bound has
// passed or stop is closed, it returns and leaves the request behind. The context of
// the request ends then, or earlier by end, if watch calls that; what the request
// returns goes to late, if set. The timer that watch, if set, returns is stopped when the request is over.
func Detached[T any](ctx context.Context, background func(func()), bound time.Duration, stop <-chan struct{}, watch func(own context.Context, end func()) *time.Timer,
	request func(context.Context) (T, error), late func(T, error),
) (T, error) {
	var none T
	select {
	case <-ctx.Done():
		return none, ErrNotSent
	case <-stop:
		return none, ErrNotSent
	default:
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	d := &detached[T]{late: late, done: make(chan struct{})}
	background(func() {
		defer cancel()
		if watch != nil {
			defer watch(own, cancel).Stop()
		}
		value, err := request(own)
		d.answer(value, err)
	})
	err := ErrAbandoned
	select {
	case <-d.done:
		return d.result()
	case <-ctx.Done():
	case <-stop:
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
