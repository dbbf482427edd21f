package pubsub

import (
	"cmp"
	"context"
	"slices"
	"time"
)

const (
	patience  = 8  // intervals without an answer until a connection is given up
	maxProbes = 3  // in the time of patience: after 1, 2 and 4 intervals
	deafness  = 3  // half intervals from the answer to a probe until the probe must have been heard
	reprobe   = 4  // intervals until the next probe, also after traffic
	rarest    = 20 // the same, at most, if a longer silence is allowed
	calm      = 4  // a wait may lose the fourth part of its time by rarer probes
	inquiries = 2  // per interval, about the server in charge in place of a silent one
	samples   = 8  // channels to look up
)

// watch returns when the connection has been given up, or must be because the server is silent.
func (c *conn) watch() error {
	v := vigil{interval: c.hub.opts.probe}
	v.wake = v.interval / 10 // the first probe comes early: its count of receivers is the standard for the next
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

// sight is the state of a connection at one look. All times are durations since the connection
// began.
type sight struct {
	now, heard time.Duration // heard: the last event
	stirred    time.Duration // somebody began to wait
	echoed     time.Duration // the first answer to a probe without an event since; 0 if there is none
	unanswered time.Duration // how long the oldest request has been waiting for an answer
	awaited    bool          // somebody waits for a message
	silence    time.Duration // how long the waiters can do without a sign of a working connection
	reading    bool          // the reader waits for an event, and is not busy with an earlier one
}

// look returns the state of the connection, and forgets an answered probe after a later event.
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
	woke            time.Duration // when the process last went on after standing still
	probed          time.Duration // the newest probe
	due             time.Duration // the next probe, if the newest is not heard
	inquired        time.Duration
	probes, unheard int // all probes, and the probes without an answer
}

// action is the next act of watch: to give the connection up, or to probe, inquire and sleep.
type action struct {
	verdict        error
	probe, inquire bool
	sleep          time.Duration
}

func (v *vigil) step(s sight) action {
	late := s.now-v.wake > v.interval/2
	if late { // events of the meantime are still unread: one more probe, no verdict
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
	if next := min(s.heard+v.pace(s), v.probed+v.slowest(s)); v.probes > 0 && v.unheard == 0 && s.now < next {
		return action{sleep: next - s.now}
	}
	return v.question(s)
}

// question decides whether it is time to probe the server, and to ask other servers who is in
// charge.
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

// doubtful reports whether a probe was not heard for an interval, or was repeated earlier.
func (v *vigil) doubtful(s sight) bool {
	return v.unheard > 1 || v.unheard == 1 && s.now >= v.due
}

// verdict says why the connection is silent, nil if not, as far as is known. Traffic alone
// does not prove that requests get through: a probe takes another way to the server. Nor
// does silence prove a lost message, unless the server has confirmed the sending.
//
// In intervals since the first probe:
//
//	the server stalls       0 probe    1 probe    3 probe    7 no answer: errSilent
//	the connection is deaf  0 probe, answered: one receiver    0.5 probe    1.5 not heard: errDeaf
func (v *vigil) verdict(s sight) error {
	switch {
	case v.unheard >= maxProbes && s.now >= v.due, s.unanswered >= patience*v.interval:
		return errSilent
	case v.unheard > 1 && s.echoed > 0 && s.reading && s.now >= v.deaf(s):
		return errDeaf
	}
	return nil
}

// deaf is the time by which an answered probe should have been heard.
func (v *vigil) deaf(s sight) time.Duration {
	return max(s.echoed, v.woke) + deafness*v.interval/2
}

// pace is how long a connection may be silent before a probe: the longer everybody has been
// waiting, the longer.
func (v *vigil) pace(s sight) time.Duration {
	return min(max((s.now-s.stirred)/calm, s.silence), v.slowest(s))
}

// slowest is the longest time between two probes.
func (v *vigil) slowest(s sight) time.Duration {
	return min(max(s.silence, reprobe*v.interval), rarest*v.interval)
}

// AllowSilence sets how long the subscribers of a channel can wait without a sign that the connection works.
// After that time without traffic, the hub sends a probe on the connection. Set a longer time if many clients
// wait for the same event, because each of them sends probes. If subscribers of other channels on the same
// connection need a shorter time, the hub sends its probes earlier. The default, also for d <= 0, is 500 ms, and
// the maximum is 10 s. The hub forgets d when the channel has no subscribers any more, and ignores d if there are
// none.
func (h *Hub) AllowSilence(channel string, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := h.channels[channel]
	if ch == nil || !ch.occupied() {
		return
	}
	ch.silence = max(d, 0)
	if ch.node != nil && ch.node.conn != nil {
		ch.node.conn.allow(ch)
	}
}

// allow has watch look now if ch allows less silence than watch knows. hub.mu is held.
func (c *conn) allow(ch *channel) {
	d := cmp.Or(ch.silence, c.hub.opts.probe)
	if d < c.silence-c.silence/4 { // not for each of many channels, or a little less
		c.silence = d
		c.lookNow()
	}
}

// Absent informs the hub that a server had no subscriber of the channel when it answered a request that was
// sent at the time sent. If the hub's connection for the channel was opened before that time, the hub closes
// it, because the connection leads to another server or the server has closed it. Outside a cluster, the hub
// then opens a connection to the server that answers requests.
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

// stir notes a new waiter on the channel, and has the connection probed like a young connection
// again. If the server of the channel is not known yet, assign stirs later. hub.mu is held.
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
	c.allow(ch)
}

// lookNow makes watch look at once. hub.mu is held.
func (c *conn) lookNow() {
	select {
	case c.stirs <- struct{}{}:
	default:
	}
}

// probe finds out whether this is still the right server, as far as is known, and causes
// traffic. The source has half of the patience: a second way, after a failed first one, then
// still ends while an answer counts. now is since began.
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
	sent, err := src.Probe(withCopies(ctx, &c.hub.copies)) // as connections of the pool may be dead, while this one is well
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

// inquire asks anew who is in charge. A young connection may come from an old map; a silent
// server may have been replaced; and an isolated server does not know of its successor, so
// the hub inquires every now and then.
func (c *conn) inquire() {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	c.hub.inquire()
}

// verify gives the connection up if another server is in charge, as far as is known. A few
// channels are looked up, and all must have moved: a single moved channel takes no other along.
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
