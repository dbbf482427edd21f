package rlock

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// contend tries until the lock is acquired, or given: at once, when the
// subscription is confirmed, and then after each wake-up or pause, unless it is
// somebody else's turn. While this client holds the lock itself, nothing is sent.
// An owner that was refused holds nothing, so all tries of one call share it.
func (l *Lock) contend(wait context.Context, seat *seat, p patience) (*grant, error) {
	v := seat.look()
	if v.given != nil {
		return v.given, nil
	}
	c := l.client
	g := l.newGrant(c.owner())
	g.chain.spare = v.spare
	p.told = seat.told
	p.since, p.trouble = v.since, v.trouble
	busy := v.refusal
	deaf, woken := 0, false
	if l.apart { // has a place of its own on the server, and perhaps hears of it already
		seat.listen(g.owner)
	}
	for first := true; ; first, v = false, seat.look() {
		if v.given != nil {
			// The release of what it was given takes its ticket out, if it has one.
			g.queued = g.queued && !(slices.Contains(v.given.chain.heirs, g.owner) && v.given.check())
			g.abandon(false)
			return v.given, nil
		}
		mine := v.mine
		if mine != nil && (l.apart || !mine.check()) {
			mine = nil
		}
		d, try := seat.outlook(woken, mine)
		if try {
			a := g.acquire(wait, p)
			if a.cut && busy != nil {
				a.err = &NotAcquiredError{Name: l.name, TTL: busy.TTL, Err: ended(wait)}
			}
			if a.err != nil {
				g.abandon(false)
				return nil, a.err
			}
			if a.value.Acquired {
				seat.owes = false
				return g, nil
			}
			p.since, p.trouble = time.Time{}, nil
			busy = &NotAcquiredError{Name: l.name, TTL: a.value.TTL}
			d = cmp.Or(a.value.rest, seat.refused(busy, a.sent))
		} else if mine != nil {
			busy = &NotAcquiredError{Name: l.name, TTL: time.Until(mine.until())}
		}
		if f := c.opts.Trace.Waiting; f != nil && busy != nil && (try || first) {
			c.observe(func() { f(l.name, busy.TTL) })
		}
		waiter, joined := seat.listen(g.owner)
		switch live := waiter != nil && waiter.Live(); {
		case live:
			deaf = 0
			if joined && mine != nil { // what it was woken for, the gate knows
				drain(waiter)
			}
		case try:
			deaf++
			pause, err := l.polling.refused(l, deaf, busy.TTL)
			if err != nil {
				g.abandon(false)
				return nil, err
			}
			d = min(d, pause)
		}
		var err error
		if woken, err = l.pause(wait, seat, waiter, d); err != nil {
			g.abandon(false)
			if refused, ok := err.(*NotAcquiredError); ok && busy != nil {
				refused.TTL = busy.TTL
			}
			return nil, err
		}
	}
}

// Bounds of a pause.
const (
	minPause = 5 * time.Millisecond // a holder's TTL may read 0
	maxPause = 30 * time.Second     // against whatever else may swallow a message
	ttlPause = time.Second          // a key without TTL: it is foreign, or broken
)

// untilExpiry is how long to sleep if no wake-up comes, for a lock whose key
// expires after ttl: within its last millisecond. The random part keeps processes
// apart that saw the same TTL.
func untilExpiry(ttl time.Duration) time.Duration {
	if ttl < 0 {
		return ttlPause
	}
	return min(max(ttl, minPause)+time.Millisecond+rand.N(4*time.Millisecond), maxPause)
}

// pause waits for so long, or until the seat or its waiter is woken, and reports
// the latter.
func (l *Lock) pause(wait context.Context, seat *seat, waiter ear, d time.Duration) (woken bool, err error) {
	var c <-chan struct{}
	if waiter != nil {
		c = waiter.C()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-seat.wake:
	case <-c:
		woken = true
	case <-timer.C:
	case <-l.client.closing:
		err = l.isClosed()
	case <-wait.Done():
		err = &NotAcquiredError{Name: l.name, Err: ended(wait)}
	}
	return woken, err
}
