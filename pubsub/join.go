package pubsub

// kind says which messages wake a [Waiter].
type kind int

const (
	inTurn kind = iota
	every
	kinds
)

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

// channel returns the channel of that name, which the caller gives a listener and
// settles. mu is held, as for left.
func (h *Hub) channel(name string) *channel {
	ch := h.channels[name]
	if ch == nil {
		ch = &channel{name: name}
		h.channels[name] = ch
		h.active.Store(int64(len(h.channels)))
		h.wg.Go(func() { h.place(ch) })
	}
	return ch
}

// left lets a channel linger whose last listener may just have gone.
func (h *Hub) left(ch *channel) {
	if !ch.occupied() && !ch.refused && !h.closed {
		h.keep(ch, h.opts.Linger)
	}
}
