package pubsub

// kind says which messages wake a [Waiter].
type kind int

const (
	inTurn kind = iota
	every
	byName
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

// JoinNamed is a [Hub.Join] for somebody who is called by name: a message that
// is name, or begins with name and a space, wakes this waiter and nobody else,
// and [Waiter.Message] returns it. No other message does. A name has no space,
// and is that of the newest waiter that joined with it.
func (h *Hub) JoinNamed(channel, name string) *Waiter {
	return h.join(channel, &Waiter{kind: byName, name: name})
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
	ch := h.channels[name]
	if ch == nil {
		ch = &channel{name: name}
		h.channels[name] = ch
		h.wg.Go(func() { h.place(ch) })
	}
	ch.add(w)
	if ch.live {
		w.wake()
	}
	h.settle(ch)
	return w
}

// add gives w the last place. hub.mu is held, as for remove.
func (ch *channel) add(w *Waiter) {
	w.channel, w.place = ch, ch.waiters[w.kind].PushBack(w)
	if w.kind == byName {
		if ch.named == nil {
			ch.named = make(map[string]*Waiter)
		}
		ch.named[w.name] = w
	}
}

func (ch *channel) remove(w *Waiter) {
	ch.waiters[w.kind].Remove(w.place)
	w.place = nil
	if w.kind == byName && ch.named[w.name] == w {
		delete(ch.named, w.name)
	}
}
