package rlock

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/internal/request"
)

// closeGrace is how long Close waits after the end of its context for goroutines that end by
// themselves, such as one that has just delivered its answer.
const closeGrace = 100 * time.Millisecond

func (c *Client) wait(ctx context.Context) error {
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
func (c *Client) begin() error {
	c.active.Add(1)
	if c.closed.Load() {
		c.done()
		return ErrClosed
	}
	return nil
}

// more notes something that Close waits for besides calls; done is its end.
func (c *Client) more() { c.active.Add(1) }

// sleep returns false if ctx is over or the client closes first.
func (c *Client) sleep(ctx context.Context, d time.Duration) bool {
	return request.Sleep(ctx, c.closing, d)
}

func (c *Client) done() {
	if c.active.Add(-1) == 0 {
		c.signal()
	}
}

func (c *Client) signal() {
	select {
	case c.quiet <- struct{}{}:
	default:
	}
}

// background runs f in a goroutine that Close waits for.
func (c *Client) background(f func()) {
	c.active.Add(1)
	go func() {
		defer c.done()
		f()
	}()
}
