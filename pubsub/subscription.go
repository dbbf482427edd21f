package pubsub

// Subscription listens to one channel, and calls the functions that it was made with. Its
// methods may be called from any goroutine, and by its own functions.
type Subscription struct {
	hub     *Hub
	channel *channel // nil if the hub was closed already
	message func(payload string)
	changed func()

	// Guarded by hub.mu.
	left    bool     // by Close
	calls   []notice // to be made, oldest first
	calling bool     // a goroutine makes them, or is about to
}

// notice is one call to be made: of message, or of changed.
type notice struct {
	payload string
	changed bool
}

// Subscribe has message called with the payload of each message on the channel, in
// their order, and changed whenever something may have happened to
// [Subscription.Live]: the server has confirmed the subscription, or refused it; it
// was lost; the hub was closed. Read inside changed, or after it, Live tells the truth.
// Subscribe itself calls neither and does not block. If the channel is subscribed
// already, Live is true at once and changed is not called for it. On a closed hub
// neither is ever called.
//
// The goroutine that reads the connection makes the calls, one at a time, and until
// they return nothing else is heard from that server; others make some of them, such
// as that of Close. So the functions must not block: they take note of what they are
// told and return. No mutex of the hub is held meanwhile, and they may call its
// methods and those of this subscription, but not [Hub.Close], which would wait for
// them. A channel may have several subscriptions.
//
// Every subscription must be closed.
func (h *Hub) Subscribe(channel string, message func(payload string), changed func()) *Subscription {
	s := &Subscription{hub: h, message: message, changed: changed}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		s.left = true
		return s
	}
	ch := h.channel(channel)
	s.channel = ch
	if ch.subscriptions == nil {
		ch.subscriptions = make(map[*Subscription]struct{})
	}
	ch.subscriptions[s] = struct{}{}
	ch.stir()
	h.settle(ch)
	return s
}

// Live reports whether messages are heard now: the server has confirmed the
// subscription on a connection that is sound as far as is known.
func (s *Subscription) Live() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return !s.left && s.channel.live
}

// Close ends the subscription. A call that has begun goes on, and may still run when
// Close returns; no other is made after that. The server is told when the channel has
// had no listener for a second. A second call does nothing.
func (s *Subscription) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.left {
		return
	}
	s.left, s.calls = true, nil
	delete(s.channel.subscriptions, s)
	h.left(s.channel)
}

// notify has a call made when hub.mu is released. It is held here.
func (s *Subscription) notify(n notice) {
	s.calls = append(s.calls, n)
	if !s.calling {
		s.calling = true
		s.hub.notified = append(s.hub.notified, s)
	}
}

// unlock releases mu, and makes the calls that have become due under it. Whoever may
// have notified a subscription unlocks with it.
func (h *Hub) unlock() {
	notified := h.notified
	h.notified = nil
	h.mu.Unlock()
	for _, s := range notified {
		for s.call() {
		}
	}
}

// call makes the oldest call that is due, and reports whether there was one. Only
// one goroutine makes those of a subscription, so that they keep their order.
func (s *Subscription) call() bool {
	s.hub.mu.Lock()
	if len(s.calls) == 0 {
		s.calls, s.calling = nil, false
		s.hub.mu.Unlock()
		return false
	}
	n := s.calls[0]
	s.calls = s.calls[1:]
	s.hub.mu.Unlock()
	if n.changed {
		s.changed()
	} else {
		s.message(n.payload)
	}
	return true
}
