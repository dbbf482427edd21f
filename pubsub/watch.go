package pubsub

import (
	"cmp"
	"context"
	"slices"
	"time"
)

const (
	patience  = 8 // intervals without an answer until a connection is given up
	maxProbes = 3 // in that time: after 1, 2 and 4 of them
	deafness  = 3 // half intervals after the answer to a probe in which it must be heard
	reprobe   = 4 // intervals until the next probe, whatever is heard and however long silence is allowed
	calm      = 4 // the part of its time that a wait may lose because probes have become rarer
	inquiries = 2 // per interval, about who is in charge in place of a server that is silent
	samples   = 8 // channels, by which to tell
)

// watch returns when the connection has been given up, or has to be because the
// server is silent.
func (c *conn) watch() error {
	v := vigil{interval: c.hub.opts.probe}
	v.wake = v.interval / 10 // then is the first probe, and what it counts is a standard for the next
	timer := time.NewTimer(v.wake)
	defer timer.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		case <-timer.C:
		case <-c.stirs:
		}
		s := c.look()
		a := v.step(s)
		if a.verdict != nil {
			return a.verdict
		}
		if a.inquire {
			c.inquire()
		}
		if a.probe {
			c.hub.wg.Go(func() { c.probe(s.now) })
		}
		v.wake = s.now + a.sleep
		timer.Reset(a.sleep)
	}
}

// sight is what can be seen of a connection. All times are durations since it began.
type sight struct {
	now, heard time.Duration // heard: the last event
	stirred    time.Duration // somebody began to wait
	echoed     time.Duration // the first answer to a probe that nothing was heard after; 0 if there is none
	unanswered time.Duration // how long the oldest request has been waiting for its answer
	awaited    bool          // somebody waits for a message
	silence    time.Duration // how long they can do without a sign that the connection works
	reading    bool          // and nobody is busy with one that has come
}

// look also forgets the answers to probes that something was heard after.
func (c *conn) look() sight {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	s := sight{now: time.Since(c.began), heard: time.Duration(c.heard.Load()), stirred: c.stirred, reading: c.reading.Load()}
	if s.heard >= c.echo.probe {
		c.echo = echo{}
	}
	s.echoed = c.echo.at
	for _, ch := range c.node.channels {
		if ch.occupied() {
			if d := cmp.Or(ch.silence, c.hub.opts.probe); !s.awaited || d < s.silence {
				s.awaited, s.silence = true, d
			}
		}
	}
	c.silence = cmp.Or(s.silence, c.hub.opts.probe)
	if len(c.pending) > 0 {
		s.unanswered = time.Since(c.pending[0].at)
	}
	return s
}

// vigil decides when to probe, and when a connection is silent.
type vigil struct {
	interval        time.Duration
	wake            time.Duration // when the timer is to fire
	woke            time.Duration // when the process last went on that had stood still
	probed          time.Duration // the newest probe
	due             time.Duration // the next, if that is not heard
	inquired        time.Duration
	probes, unheard int // all, and those without an answer
}

// action is what is to be done: to give the connection up, or to do the rest.
type action struct {
	verdict        error
	probe, inquire bool
	sleep          time.Duration
}

func (v *vigil) step(s sight) action {
	late := s.now-v.wake > v.interval/2
	if late { // what has come meanwhile is still to be read: a probe more, no verdict
		v.woke = s.now
	}
	if s.heard >= v.probed {
		v.unheard = 0
	}
	if err := v.verdict(s); err != nil && !late {
		return action{verdict: err}
	}
	if !s.awaited {
		return action{sleep: v.interval}
	}
	if next := min(s.heard+v.pace(s), v.probed+reprobe*v.interval); v.probes > 0 && v.unheard == 0 && s.now < next {
		return action{sleep: next - s.now}
	}
	return v.question(s)
}

// question has the server probed, and others asked who is in charge, as far as it is time
// for that.
func (v *vigil) question(s sight) action {
	var a action
	if v.probes < 2 || v.doubtful(s) || s.now-v.inquired >= patience*v.interval {
		a.inquire, v.inquired = true, s.now
	}
	if v.due <= s.now || v.unheard == 0 || v.unheard == 1 && s.echoed > 0 && s.now >= s.echoed+v.interval/2 {
		a.probe = true
		v.probed, v.due = s.now, s.now+v.interval<<min(v.unheard, maxProbes-1)
		v.probes++
		v.unheard++
	}
	a.sleep = v.interval / inquiries
	if v.unheard == 1 { // nothing is wrong yet
		a.sleep = min(a.sleep, s.silence)
	}
	if s.echoed > 0 {
		a.sleep = max(min(a.sleep, v.deaf(s)-s.now), 1)
	}
	return a
}

// doubtful reports whether a probe was not heard for an interval, or was repeated before that.
func (v *vigil) doubtful(s sight) bool {
	return v.unheard > 1 || v.unheard == 1 && s.now >= v.due
}

// verdict says why the connection is silent, nil if it is not, as far as is known.
// Traffic alone does not prove that requests get through: a probe takes another way
// to the server. Nor does silence prove that messages are lost, unless the server has
// said that it sent one.
func (v *vigil) verdict(s sight) error {
	switch {
	case v.unheard >= maxProbes && s.now >= v.due, s.unanswered >= patience*v.interval:
		return errSilent
	case v.unheard > 1 && s.echoed > 0 && s.reading && s.now >= v.deaf(s):
		return errDeaf
	}
	return nil
}

// deaf is when a probe that the server has answered should have been heard.
func (v *vigil) deaf(s sight) time.Duration {
	return max(s.echoed, v.woke) + deafness*v.interval/2
}

// pace is how long a connection may be silent before it is probed: the longer,
// the longer everybody has been waiting on it.
func (v *vigil) pace(s sight) time.Duration {
	return min(max((s.now-s.stirred)/calm, s.silence), reprobe*v.interval)
}

// AllowSilence says how long those who listen to a channel can do without a sign that its
// connection works, before the hub probes that: longer if many clients wait for the same thing,
// which would all send probes. Those of other channels on the connection may have it probed
// earlier. It is 500 ms if nothing is said, or d is 0, and 2 s at most; nothing is kept of a
// channel that nobody wants.
func (h *Hub) AllowSilence(channel string, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := h.channels[channel]
	if ch == nil {
		return
	}
	ch.silence = d
	if ch.node == nil || ch.node.conn == nil {
		return
	}
	if c := ch.node.conn; d < c.silence-c.silence/4 { // not for each of many channels, or a little less
		c.silence = d
		c.lookNow()
	}
}

// Absent says that the server that has answered a request, sent at that time, had no subscriber
// of the channel. A connection that was there by then is given up: it leads to another server,
// or the server has closed it. Another one is of use only if what leads there is the same for
// both, as in all but a cluster.
func (h *Hub) Absent(channel string, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := h.channels[channel]
	if ch == nil || !ch.live || ch.node == nil || ch.node.conn == nil {
		return
	}
	if c := ch.node.conn; c.began.Before(sent) {
		c.giveUp(errElsewhere)
	}
}

// stir notes that somebody begins to wait on the channel, and has its connection
// probed as a young one again. hub.mu is held.
func (ch *channel) stir() {
	if ch.node == nil || ch.node.conn == nil {
		return
	}
	c := ch.node.conn
	now := time.Since(c.began)
	if now-c.stirred > c.hub.opts.probe {
		c.lookNow()
	}
	c.stirred = now
}

// lookNow has watch look at once. hub.mu is held.
func (c *conn) lookNow() {
	select {
	case c.stirs <- struct{}{}:
	default:
	}
}

// probe finds out whether this is still the right server, as far as is known, and
// causes traffic. It has half of the patience, so that a Source which has to try
// something else can do so while an answer still counts. now is since began.
func (c *conn) probe(now time.Duration) {
	c.verify()
	c.hub.mu.Lock()
	src := c.src
	c.hub.mu.Unlock()
	if src == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, patience/2*c.hub.opts.probe)
	defer cancel()
	sent, err := src.Probe(ctx)
	if err != nil {
		c.giveUp(err)
		return
	}
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if sent && c.echo.at == 0 && time.Duration(c.heard.Load()) < now {
		c.echo = echo{now, time.Since(c.began)}
	}
}

// inquire asks anew who is in charge: when a connection is young, because what was
// known when it was opened may have been old; while the server is silent, because
// it may have been replaced; and every now and then, because a server that is cut
// off does not know that it was.
func (c *conn) inquire() {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	c.hub.inquire()
}

// verify gives the connection up if another server is in charge, as far as is known.
// A few channels are asked about, because one that has moved does not take the
// others with it.
func (c *conn) verify() {
	var names []string
	c.hub.mu.Lock()
	for name := range c.node.channels {
		if names = append(names, name); len(names) == samples {
			break
		}
	}
	c.hub.mu.Unlock()
	here := func(name string) bool {
		server, err := c.hub.servers.Find(c.ctx, name)
		return err != nil || server == c.node.name
	}
	if len(names) > 0 && !slices.ContainsFunc(names, here) {
		c.giveUp(errElsewhere)
	}
}
