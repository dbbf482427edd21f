package pubsub

// Subscription listens to one channel and calls the two functions that were passed to [Hub.Subscribe]. Its
// methods are safe for concurrent use, and these two functions can call them.
type Subscription struct {
	hub     *Hub
	channel *channel // nil if the hub was closed already
	message func(payload string)
	changed func()

	// Guarded by hub.mu.
	left    bool     // by Close
	calls   []notice // to be made, oldest first
	calling bool     // a goroutine makes the calls, or is about to
}

// notice is one call to be made: of message, or of changed.
type notice struct {
	payload string
	changed bool
}

// Subscribe subscribes to a channel. It does not block, and does not call the two functions itself. The hub
// calls message with the payload of each message on the channel, in order. It calls the function changed whenever the result
// of [Subscription.Live] may have changed: when the subscription was confirmed, refused or lost, and when the
// hub was closed. A call of Live inside changed, or later, returns the new state. If the channel is already
// subscribed, Live returns true at once, and changed is not called for that. If the hub is already closed,
// neither function is ever called. You must close every subscription. A channel can have several subscriptions.
//
// The functions must not block. Most calls are made by the goroutine that reads the connection, which makes one
// call at a time and receives nothing else from that server until the function returns. Other goroutines, such
// as the caller of [Hub.Close], make some of the calls. The hub holds no mutex during a call. The functions can
// call the methods of the hub and of this subscription, but not Hub.Close, because Close would wait for them.
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

// Live reports whether messages are received now. The result is true if the server has confirmed the
// subscription, and if the connection works as far as the hub knows.
func (s *Subscription) Live() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return !s.left && s.channel.live
}

// Close ends the subscription. If a function of the subscription is running, it can still run after Close has
// returned, but no function is called after that. The hub sends UNSUBSCRIBE about a second after the last
// subscription of the channel was closed. A second Close does nothing.
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

// notify has a call made at the release of hub.mu. hub.mu is held.
func (s *Subscription) notify(n notice) {
	s.calls = append(s.calls, n)
	if !s.calling {
		s.calling = true
		s.hub.notified = append(s.hub.notified, s)
	}
}

// unlock releases mu, and makes the calls noted under mu. A function that may notify a
// subscription releases mu by unlock.
func (h *Hub) unlock() {
	notified := h.notified
	h.notified = nil
	h.mu.Unlock()
	for _, s := range notified {
		for s.call() {
		}
	}
}

// call makes the oldest due call, and reports whether there was any. Only one goroutine makes the
// calls of a subscription, so the calls keep their order.
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
