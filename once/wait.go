package once

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/pubsub"
)

const (
	// unheard is how long a waiter waits without a message: one may be lost.
	unheard = 5 * time.Second
	// deaf is the same while the server has not confirmed the subscription.
	deaf = 200 * time.Millisecond
	// spread is over how much time the waiters try for the lock of a host that has died.
	spread = 20 * time.Millisecond
)

// waiter waits for the end of another client's run. Its zero value is not subscribed: most calls need
// not wait.
type waiter struct {
	sub  *pubsub.Subscription
	woke chan struct{}
}

func (w *waiter) close() {
	if w.sub != nil {
		w.sub.Close()
	}
}

// wait returns when the state should be read again. A run may end before the subscription is there, so
// the first wait is only for that.
func (w *waiter) wait(ctx context.Context, c *companion.Companion, ttl time.Duration) error {
	if w.sub == nil {
		w.woke = make(chan struct{}, 1)
		woken := func() {
			select {
			case w.woke <- struct{}{}:
			default:
			}
		}
		if w.sub = c.Subscribe(func(string) { woken() }, woken); w.sub.Live() {
			return nil
		}
	}
	limit := unheard
	if ttl > 0 { // then the lock is free if its host has died
		limit = min(limit, ttl+rand.N(spread))
	}
	if !w.sub.Live() {
		limit = min(limit, deaf)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.woke:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
