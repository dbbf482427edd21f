package pubsub

// Waiter is somebody who waits for the messages of one channel. Its methods may be called
// from any goroutine.
type Waiter struct {
	hub     *Hub
	c       chan struct{} // capacity 1; the hub sends with mu held; never closed
	channel *channel      // nil if the hub was closed already
	left    bool          // guarded by hub.mu
}

// Join waits for the messages of a channel, and never blocks: each of them wakes the
// waiter. Its first wake-up comes when the server has confirmed the subscription: at
// once, if it has already. After Close the waiter is awake and never live.
//
// Every waiter must [Waiter.Leave].
func (h *Hub) Join(channel string) *Waiter { return h.join(channel, make(chan struct{}, 1)) }

// JoinWith is a [Hub.Join] whose wake-ups come through the C of another waiter, of any
// hub: for somebody who is called from several servers. When either leaves, a wake-up in
// C is gone for both.
func (h *Hub) JoinWith(channel string, other *Waiter) *Waiter { return h.join(channel, other.c) }

func (h *Hub) join(name string, c chan struct{}) *Waiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &Waiter{hub: h, c: c}
	if h.closed {
		w.left = true
		w.wake()
		return w
	}
	ch := h.channel(name)
	w.channel = ch
	if ch.waiters == nil {
		ch.waiters = make(map[*Waiter]struct{})
	}
	ch.waiters[w] = struct{}{}
	if ch.live {
		w.wake()
	}
	ch.stir()
	h.settle(ch)
	return w
}

// C is readable when it is time to try. It holds one wake-up, however many there
// were, and some are spurious.
func (w *Waiter) C() <-chan struct{} { return w.c }

// Live reports whether messages reach this waiter now: the server has confirmed
// the subscription, and nothing has happened to it since. When it becomes true,
// and when it ceases to be, C becomes readable. While it is false, only the
// caller's own timer can be relied on.
func (w *Waiter) Live() bool {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return !w.left && w.channel.live
}

// Heard counts the messages on the channel. It never falls while this waiter waits, and
// started with any number: only the difference between two calls says something. A
// message is counted before it wakes anybody.
func (w *Waiter) Heard() int64 {
	if w.channel == nil {
		return 0
	}
	return w.channel.heard.Load()
}

// Leave ends the wait, and takes a wake-up that is still in C. A second call does nothing.
func (w *Waiter) Leave() {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.left {
		return
	}
	w.left = true
	delete(w.channel.waiters, w)
	select {
	case <-w.c:
	default:
	}
	h.left(w.channel)
}

// wake leaves a wake-up in C, if there is none. hub.mu is held.
func (w *Waiter) wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}
