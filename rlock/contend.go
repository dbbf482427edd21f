package rlock

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// step is what a waiter does next: it takes a grant, or asks, or sleeps for so long.
type step struct {
	grant *grant
	ask   bool
	sleep time.Duration
}

// contend waits until the lock is the waiter's: acquired by a request, granted by a
// message, or passed on in memory. An owner that was refused holds nothing, so all
// requests of one waiter are made for the same.
func (w *waiter) contend(wait context.Context) (*grant, error) {
	for {
		switch s := w.next(); {
		case s.grant != nil:
			return s.grant, nil
		case s.ask:
			if g, err := w.ask(wait); g != nil || err != nil {
				return g, err
			}
		default:
			if err := w.sleep(wait, s.sleep); err != nil {
				return nil, err
			}
		}
	}
}

// next decides what the waiter does.
func (w *waiter) next() step {
	mine := w.queues.holder(w.lock)
	if mine != nil && (w.lock.fair || !mine.check()) {
		mine = nil
	}
	now := time.Now()
	if mine != nil && now.Sub(w.since) > w.lock.lease {
		w.lock.client.warnOwnHolder(w.lock, mine)
	}
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	if g := cmp.Or(w.take(), w.granted(now)); g != nil {
		return step{grant: g}
	}
	if d := w.rest(mine, now); d > 0 {
		return step{sleep: d}
	}
	w.state, w.again = waitAsking, false // what is heard from now on needs another request
	w.tries++
	return step{ask: true}
}

// rest returns how long the waiter should sleep as things are; it has to ask if that is
// not more than 0. mine is the client's own grant that is in the way, nil if there is
// none. queues.mu is held.
func (w *waiter) rest(mine *grant, now time.Time) time.Duration {
	switch {
	case !w.contends():
		w.state = waitBlocked
		return maxPause
	case mine != nil && (w.askAt.IsZero() || w.askAt.After(now)): // its end will be told, unless it was removed
		if w.askAt.IsZero() {
			w.askAt = now.Add(keepAlive)
		}
		w.state = waitBlocked
		return min(max(mine.until().Sub(now), minPause), w.askAt.Sub(now))
	case w.again, w.state != waitQueued && !w.place.held:
		return 0
	case w.lock.fair && w.place.silent == 0: // the first of a client asks for all
		if w.askAt = w.queue.askAt; w.queue.first() != w {
			return maxPause
		}
	}
	w.state = waitQueued
	return w.askAt.Sub(now)
}

// ask makes a request. There is no grant if it is refused.
func (w *waiter) ask(wait context.Context) (*grant, error) {
	l := w.lock
	g, o, p := w.prepare()
	a := g.acquire(wait, p, o)
	if a.cut {
		if refused := w.refused(); refused != nil { // asked once: another waiter's answer may take it away
			return nil, refused.because(ended(wait))
		}
	}
	switch {
	case a.err != nil:
		return nil, a.err
	case a.value.Acquired:
		w.owns(g)
		return g, nil
	}
	refusal := l.refusal(a.value.Holder, a.value.TTL)
	l.reportWaiting(wait, refusal)
	w.listen(a.value.Holder)
	return nil, w.queueUp(a, refusal, o.Ticket)
}

// refused returns the newest refusal of the lock.
func (w *waiter) refused() *NotAcquiredError {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	return w.queue.refusal
}

// prepare returns the attempt of the waiter, on what terms it asks, and for how long.
func (w *waiter) prepare() (*grant, kind.Options, request.Policy) {
	qs, q, l := w.queues, w.queue, w.lock
	p := l.retry()
	p.Report = func(err error) time.Time { return q.asked(qs, err) }
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if p.Since, p.Trouble = q.since, q.trouble; !p.Since.IsZero() && p.Since.Before(w.since) {
		p.Since = w.since // everybody in the queue gives up after the same time, not one after the other
	}
	if q.signal == nil && l.tickets && l.client.server.Hub.Active() && l.client.server.Hub.Listens(lua.GrantChannel(q.key, l.client.id)) {
		q.signal = l.wire.Subscribe(l.hear, l.doubt) // it was wanted a moment ago
	}
	if w.attempt == nil {
		w.attempt = l.newGrant(l.owner())
	}
	o := kind.Options{Wait: true, Spare: w.spareTokens()}
	if l.tickets {
		o.Ticket = w.ticket()
	}
	if o.Ticket.Claim > 0 {
		if q.tickets == nil {
			q.tickets = make(map[string]*waiter)
		}
		q.tickets[w.attempt.owner] = w
		w.attempt.leftState = true
	}
	return w.attempt, o, p
}

// ticket is what the waiter asks for if the lock is not free. One that was never
// refused takes none, unless its place must be that of its first request: most locks
// are free. One that cannot hear takes one when it is clear that this will not change
// at once.
func (w *waiter) ticket() lua.Ticket {
	t := lua.Ticket{Claim: min(longestClaim, w.lock.lease)}
	switch s := w.queue.signal; {
	case s != nil && s.Live():
		t.Hears = w.lock.client.server.Channels.Hearing()
	case w.lock.fair, w.place.silent > 1, w.place.held:
	default:
		return lua.Ticket{}
	}
	return t
}

// owns notes that the waiter's request was granted.
func (w *waiter) owns(g *grant) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.got = g
	w.queue.answered(g.sent)
}

// queueUp notes a refusal, and when to ask again if nothing is heard. The error ends
// the wait.
func (w *waiter) queueUp(a answer[kind.Answer], refusal *NotAcquiredError, asked lua.Ticket) error {
	l, q, now := w.lock, w.queue, time.Now()
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	q.answered(a.sent)
	q.refusal = refusal
	w.state = waitQueued
	before := w.place.held
	w.place.Place, w.place.held = a.value.Place, l.tickets && a.value.Place.Time != 0 && !a.value.Place.None
	if w.place.held {
		q.clock = moment{a.sent, w.place.Time}
		w.attempt.place = q.clock
	}
	if before && w.place.New { // the server has forgotten the queue, or this client
		again := w.again
		q.doubt()
		w.again = again // this one has just asked
	}
	if q.signal == nil || !q.signal.Live() {
		w.place.silent++
		pause, err := l.polling.refused(l, w.place.silent, refusal)
		if w.place.First { // everybody waits for this one
			pause = min(pause, firstPause)
		}
		w.askAt = now.Add(min(pause, untilExpiry(refusal.TTL)))
		return err
	}
	w.place.silent = 0
	w.again = w.again || l.tickets && asked.Hears == lua.Deaf // now that it can hear
	pause := w.pause(refusal.TTL)
	if most := a.value.AskIn; most > 0 {
		pause = min(pause, most)
	}
	w.askAt = now.Add(pause)
	q.askAt = w.askAt
	return nil
}

// listen makes sure that the waiter is told when it may have the lock.
func (w *waiter) listen(holder string) {
	l, qs, q := w.lock, w.queues, w.queue
	if l.polling != nil {
		return
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q.signal == nil {
		q.signal = l.wire.Subscribe(l.hear, l.doubt)
	}
	if !l.tickets {
		return
	}
	switch foreign := holder != "" && !ours(holder); {
	case foreign && q.unlocks == nil:
		q.unlocks = l.client.server.SubscribeToUnlocks(l.key, func() { l.withQueue((*queue).unlocked) }, l.doubt)
		w.again = w.again || q.unlocks.Live() // what was announced before is lost
	case !foreign && q.unlocks != nil:
		q.unlocks.Leave()
		q.unlocks = nil
	}
}

// Bounds of a pause.
const (
	minPause = 5 * time.Millisecond // a holder's TTL may read 0
	maxPause = 30 * time.Second     // against whatever else may swallow a message
	ttlPause = time.Second          // a key without TTL: it is foreign, or broken

	deafPause = time.Second // of a waiter who hears, and has no ticket for which it would be told anything

	// keepAlive is how often the first waiter of a client asks although nothing has
	// happened: it keeps the queue on the server, repairs what that has forgotten, and
	// learns of a holder that was granted the lock and died. So it is shorter than the
	// longest claim.
	keepAlive    = 5 * time.Second
	longestClaim = 6 * time.Second

	// firstPause is how often the first in the server's queue asks while it cannot hear.
	firstPause = 100 * time.Millisecond
	// straggle is how much later than the first those behind it ask for a lock whose
	// holder's lease is over: only if the first is dead as well is it their turn.
	straggle = 200 * time.Millisecond
	// reaction is how long those behind leave it to the first to answer a message that
	// all hear.
	reaction = 100 * time.Millisecond
)

// pause is how long a waiter that can hear sleeps, if the holder's lease ends after ttl.
func (w *waiter) pause(ttl time.Duration) time.Duration {
	d := untilExpiry(ttl)
	switch {
	case !w.lock.tickets:
		return d
	case !w.place.held: // the server had no memory for a ticket, and tells it nothing
		return min(d, deafPause)
	}
	if !w.place.First && ttl >= 0 {
		d += straggle + rand.N(straggle*2)
	}
	return min(d, keepAlive+rand.N(keepAlive/10))
}

// untilExpiry is how long to sleep if no wake-up comes, for a lock whose key
// expires after ttl: within its last millisecond. The random part keeps processes
// apart that saw the same TTL.
func untilExpiry(ttl time.Duration) time.Duration {
	if ttl < 0 {
		return ttlPause
	}
	return min(max(ttl, minPause)+time.Millisecond+rand.N(4*time.Millisecond), maxPause)
}

// sleep waits for so long, or until something has happened.
func (w *waiter) sleep(wait context.Context, d time.Duration) (err error) {
	wake, c := w.hears()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wake:
	case <-c:
		w.queues.mu.Lock()
		w.again = true
		w.by.Message++
		w.queues.mu.Unlock()
	case <-timer.C:
		w.queues.mu.Lock()
		w.by.TTL++
		w.queues.mu.Unlock()
	case <-w.lock.client.closing:
		err = w.lock.isClosed()
	case <-wait.Done():
		err = w.givenUp(wait)
	}
	return err
}

// hears returns the channels of the waiter's own wake-ups, and of those that are for no
// waiter in particular.
func (w *waiter) hears() (own, all <-chan struct{}) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	if w.queue.signal != nil && w.contends() {
		all = w.queue.signal.C()
	}
	w.slept = true
	return w.enableWake(), all
}
