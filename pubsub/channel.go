package pubsub

import "time"

// channel is a channel as the hub sees the channel. Hub.mu guards all fields, and is held by
// the callers of every function in this file. A caller of notifyAll releases Hub.mu with
// Hub.unlock.
type channel struct {
	name  string
	timer *time.Timer // holds on to a channel that lingers or was refused; else nil

	silence time.Duration // see Hub.AllowSilence; 0: an interval

	subscriptions map[*Subscription]struct{} // nil if there never was one

	node  *node // nil while the server of the channel is not known
	moves int   // how often the server was looked for again since the last confirmation

	// The requests on the current connection, and the answers.
	asked   bool // the last request was SUBSCRIBE, and was not refused
	open    int  // unanswered requests
	live    bool // nothing is open, and the last answer was a confirmation
	refused bool // not to be asked for before the timer fires
	queued  bool // in conn.todo
}

// channel returns the channel of a name. The caller adds a listener and calls settle.
func (h *Hub) channel(name string) *channel {
	ch := h.channels[name]
	if ch == nil {
		ch = &channel{name: name}
		h.channels[name] = ch
		h.active.Store(int64(len(h.channels)))
		h.wg.Go(func() { h.route(ch) })
	}
	return ch
}

func (ch *channel) wanted() bool { return ch.occupied() || ch.timer != nil }

func (ch *channel) occupied() bool { return len(ch.subscriptions) > 0 }

// message gives the message to the subscriptions.
func (ch *channel) message(payload string) { ch.notifyAll(notice{payload: payload}) }

// changed tells the subscriptions of a change of the channel.
func (ch *channel) changed() { ch.notifyAll(notice{changed: true}) }

func (ch *channel) notifyAll(n notice) {
	for s := range ch.subscriptions {
		s.notify(n)
	}
}

// reset forgets the state of a connection at the end of the connection.
func (ch *channel) reset() {
	if ch.live {
		ch.changed() // listeners of channels not live rely on nothing
	}
	ch.dropTimer()
	ch.asked, ch.open, ch.live, ch.refused, ch.queued = false, 0, false, false, false
}

func (ch *channel) dropTimer() {
	if ch.timer != nil {
		ch.timer.Stop()
		ch.timer = nil
	}
}

// left is called after a listener has gone: without listeners the channel lingers.
func (h *Hub) left(ch *channel) {
	if ch.occupied() {
		return
	}
	ch.silence = 0
	if !ch.refused && !h.closed {
		h.keep(ch, h.opts.linger)
	}
}

// keep holds on to ch for d, with or without subscriptions.
func (h *Hub) keep(ch *channel, d time.Duration) {
	ch.dropTimer()
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if ch.timer == t { // otherwise the timer was stopped too late
			ch.timer, ch.refused = nil, false
			h.settle(ch)
		}
	})
	ch.timer = t
}

// settle acts on a change of ch: a request is written, or the channel forgotten.
func (h *Hub) settle(ch *channel) {
	switch {
	case ch.wanted() != ch.asked:
		if ch.node != nil && ch.node.conn != nil { // otherwise the next connection will ask
			ch.node.conn.enqueue(ch)
		}
	case !ch.asked && ch.open == 0:
		h.forget(ch)
	}
}
