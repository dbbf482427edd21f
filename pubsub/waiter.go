package pubsub

import "container/list"

// kind says which messages wake a [Waiter].
type kind int

const (
	inTurn kind = iota
	every
	kinds
)

// Waiter is a place in the queue of one channel. Its methods may be called from
// any goroutine.
type Waiter struct {
	hub     *Hub
	c       chan struct{} // capacity 1; the hub sends with mu held; never closed
	kind    kind
	channel *channel      // nil if the hub was closed already
	place   *list.Element // in channel.waiters[kind], nil after Leave; guarded by hub.mu
}

// Join enters the queue of a channel, and never blocks: a message wakes the
// longest waiter. The waiter's first wake-up comes when the server has confirmed
// the subscription: at once, if it has already. After Close the waiter is awake
// and never live.
//
// Every waiter must [Waiter.Leave].
func (h *Hub) Join(channel string) *Waiter { return h.join(channel, &Waiter{}) }

// JoinAll is a [Hub.Join] without a queue: each message wakes this waiter, and
// takes no turn away from those that queue.
func (h *Hub) JoinAll(channel string) *Waiter { return h.join(channel, &Waiter{kind: every}) }

// JoinAllWith is a [Hub.JoinAll] whose wake-ups come through the C of another
// waiter, of any hub: for somebody who is called from several servers. When either
// leaves, a wake-up in C is gone for both.
func (h *Hub) JoinAllWith(channel string, other *Waiter) *Waiter {
	return h.join(channel, &Waiter{kind: every, c: other.c})
}

func (h *Hub) join(name string, w *Waiter) *Waiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.hub = h; w.c == nil {
		w.c = make(chan struct{}, 1)
	}
	if h.closed {
		w.wake()
		return w
	}
	ch := h.channel(name)
	w.channel, w.place = ch, ch.waiters[w.kind].PushBack(w)
	if ch.live {
		w.wake()
	}
	ch.stir()
	h.settle(ch)
	return w
}

// C is readable when it is time to try. It holds one wake-up, however many there
// were, and some are spurious. A caller that takes one must try: the others may
// depend on it.
func (w *Waiter) C() <-chan struct{} { return w.c }

// Live reports whether messages reach this waiter now: the server has confirmed
// the subscription, and nothing has happened to it since. When it becomes true,
// and when it ceases to be, C becomes readable. While it is false, only the
// caller's own timer can be relied on.
func (w *Waiter) Live() bool {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.place != nil && w.channel.live
}

// Heard counts the messages on the channel, whomever they were for. It never
// falls while this waiter has its place, and started with any number: only the
// difference between two calls says something. A message is counted before it
// wakes anybody.
func (w *Waiter) Heard() int64 {
	if w.channel == nil {
		return 0
	}
	return w.channel.heard.Load()
}

// Leave gives up the place, and hands a wake-up still in C on to the next in the
// queue. A second call does nothing.
func (w *Waiter) Leave() {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.place == nil {
		return
	}
	ch := w.channel
	ch.waiters[w.kind].Remove(w.place)
	w.place = nil
	select {
	case <-w.c:
		if w.kind == inTurn { // what woke the others has woken all of them
			ch.wakeNext()
		}
	default:
	}
	h.left(ch)
}

// wake leaves a wake-up in C, and reports whether there was room for it.
// hub.mu is held.
func (w *Waiter) wake() bool {
	select {
	case w.c <- struct{}{}:
		return true
	default:
		return false
	}
}
