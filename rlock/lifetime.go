package rlock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-rlock/rlock/internal/request"
)

// lifetime is what Close waits for, and what tells all others that the client closes.
type lifetime struct {
	active  atomic.Int64  // calls, grants and goroutines that Close waits for
	quiet   chan struct{} // capacity 1; sent to when active falls to zero
	closing chan struct{} // closed by the first Close
	closed  atomic.Bool
}

// closeGrace is how long Close waits after the end of its context for goroutines that end by
// themselves, such as one that has just delivered its answer.
const closeGrace = 100 * time.Millisecond

func (c *lifetime) wait(ctx context.Context) error {
	over := ctx.Done()
	var grace <-chan time.Time
	for c.active.Load() != 0 {
		select {
		case <-c.quiet:
		case <-over:
			over, grace = nil, time.After(closeGrace)
		case <-grace:
			return ended(ctx)
		}
	}
	c.signal() // for another Close that waits as well
	return nil
}

// begin admits a call; done is its end.
func (c *lifetime) begin() error {
	c.active.Add(1)
	if c.closed.Load() {
		c.done()
		return ErrClosed
	}
	return nil
}

// errClosed is the error of a call that begins after Close, nil before.
func (c *lifetime) errClosed() error {
	if c.closed.Load() {
		return ErrClosed
	}
	return nil
}

// sleep returns false if ctx is over or the client closes first.
func (c *lifetime) sleep(ctx context.Context, d time.Duration) bool {
	return request.Sleep(ctx, c.closing, d)
}

func (c *lifetime) done() {
	if c.active.Add(-1) == 0 {
		c.signal()
	}
}

func (c *lifetime) signal() {
	select {
	case c.quiet <- struct{}{}:
	default:
	}
}

// background runs f in a goroutine that Close waits for.
func (c *lifetime) background(f func()) {
	c.active.Add(1)
	go func() {
		defer c.done()
		f()
	}()
}
