package pubsub_test

import (
	"sync/atomic"

	"github.com/go-rlock/rlock/pubsub"
)

// waiter is somebody who waits for the messages of one channel: each of them, and each change of
// the subscription, leaves a wake-up in C, which holds one.
type waiter struct {
	*pubsub.Subscription
	c     chan struct{}
	heard atomic.Int64 // messages
}

func newWaiter(h *pubsub.Hub, channel string) *waiter {
	w := &waiter{c: make(chan struct{}, 1)}
	w.Subscription = h.Subscribe(channel, func(string) { w.heard.Add(1); w.wake() }, w.wake)
	if w.Live() {
		w.wake()
	}
	return w
}

func (w *waiter) wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

func (w *waiter) C() <-chan struct{} { return w.c }

func (w *waiter) Heard() int64 { return w.heard.Load() }

// Leave ends the wait, and takes a wake-up that is still in C.
func (w *waiter) Leave() {
	w.Close()
	awake(w)
}
