package pubsub

import (
	"container/list"
	"time"
)

// channel is a channel as the hub sees it. Hub.mu guards all of it, and is held
// by the callers of everything in this file.
type channel struct {
	name    string
	waiters list.List   // of *Waiter, the longest first
	timer   *time.Timer // holds on to a channel that lingers or was refused; else nil

	// What the current connection was asked, and has answered.
	asked   bool // the last request was SUBSCRIBE, and was not refused
	open    int  // unanswered requests
	live    bool // nothing is open, and the last answer was a confirmation
	refused bool // not to be asked for before the timer fires
	queued  bool // in conn.todo
}

func (ch *channel) wanted() bool { return ch.waiters.Len() > 0 || ch.timer != nil }

// wakeOne passes over those that are awake already, or a burst of messages would
// be spent on the first waiter.
func (ch *channel) wakeOne() {
	for e := ch.waiters.Front(); e != nil; e = e.Next() {
		if e.Value.(*Waiter).wake() {
			return
		}
	}
}

func (ch *channel) wakeAll() {
	for e := ch.waiters.Front(); e != nil; e = e.Next() {
		e.Value.(*Waiter).wake()
	}
}

// reset forgets what belonged to a connection that has ended.
func (ch *channel) reset() {
	if ch.live {
		ch.wakeAll() // the others rely on nothing
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

// keep holds on to ch for d, with or without waiters.
func (h *Hub) keep(ch *channel, d time.Duration) {
	ch.dropTimer()
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if ch.timer == t { // otherwise it was stopped too late
			ch.timer, ch.refused = nil, false
			h.settle(ch)
		}
	})
	ch.timer = t
}

// settle does what is due after a change of ch: it has a request written, or
// forgets the channel.
func (h *Hub) settle(ch *channel) {
	switch {
	case ch.wanted() != ch.asked:
		if h.conn != nil { // otherwise the next connection will ask
			h.conn.enqueue(ch)
		}
	case !ch.asked && ch.open == 0:
		delete(h.channels, ch.name)
		if len(h.channels) == 0 {
			h.idle.Reset(h.opts.Idle)
		}
	}
}
