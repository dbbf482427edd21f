package pubsub

// Subscription listens to one channel, and calls the two functions of [Hub.Subscribe]. All
// goroutines may call the methods, also from these two functions.
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

// Subscribe has message called with the payload of each message on the channel, in order, and
// changed whenever [Subscription.Live] may have changed: the subscription was confirmed,
// refused or lost, or the hub was closed. Read inside changed, or later, Live tells the truth.
// Subscribe itself calls neither function and does not block. If the channel is subscribed
// already, Live is true at once, without a call of changed. On a closed hub neither function
// is ever called.
//
// The goroutine that reads the connection makes most calls, one at a time, and nothing else
// is heard from that server until a call returns; other goroutines, such as the caller of
// Close, make some. So the functions must not block: they take note and return. No mutex of
// the hub is held meanwhile. The functions may call the methods of the hub and of this
// subscription, but not [Hub.Close]: Close would wait for the functions. A channel may have
// several subscriptions.
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

// Live reports whether messages are heard now: the server has confirmed the subscription, on a
// connection that is sound as far as is known.
func (s *Subscription) Live() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return !s.left && s.channel.live
}

// Close ends the subscription. A running call goes on, and may still run when Close returns; no
// further call is made. The server is told a second after the last listener of the channel
// has gone. A second Close does nothing.
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
