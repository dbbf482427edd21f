package rlock

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// step is the waiter's next action: take a grant, give up, ask the server, or sleep.
type step struct {
	grant  *grant
	err    error
	ask    bool
	sleep  time.Duration
	behind *grant // during a sleep: the own client's grant that the waiter waits for
}

// acquire is the rest of a call after its turn has come. failure, if set, is the error of the wait
// before; counted as in Lock.lock.
func (w *waiter) acquire(ctx, wait context.Context, failure error, counted bool) (held context.Context, hold *Hold, err error) {
	l := w.lock
	err = failure
	defer func() { // at the very end, when nobody waits for this call
		err = ownHolder(ctx, err)
		if counted {
			l.ends(wait, w.since, hold, err, w)
		}
	}()
	defer l.client.done()
	defer w.leave()
	for err == nil {
		var g *grant
		if g, err = w.contend(wait); err != nil {
			break
		}
		if held, hold, err = g.start(ctx, l); err == nil {
			return held, hold, nil
		}
		if l.terms.shared && g.entry != nil { // others may hold it
			g.forgo()
		} else {
			g.abandon(true)
		}
		w.renounce(g)
		if !errors.Is(err, ErrClosed) { // the grant came too late for a hold: wait on
			err = nil
		}
	}
	return ctx, nil, err
}

// contend waits until the waiter has the lock: acquired by a request, granted by a message, or handed off
// in memory. A refused owner holds nothing, so all requests of a waiter are for the same owner.
func (w *waiter) contend(wait context.Context) (*grant, error) {
	qs := w.lock.queues
	for {
		qs.mu.Lock()
		mine := w.blocker()
		if mine != nil { // check reports an ended lease to the queue, and so takes the mutex
			qs.mu.Unlock()
			if !mine.check() { // lost meanwhile, or handed on
				mine = nil
			}
			qs.mu.Lock()
		}
		s := w.next(time.Now(), mine)
		if s.sleep > 0 && w.woken == nil {
			w.woken = make(chan struct{}, 1)
		}
		qs.mu.Unlock()
		switch {
		case s.grant != nil:
			return s.grant, nil
		case s.err != nil:
			return nil, w.lock.failed(s.err) // without the mutex: methods of the error may be the application's
		case s.ask:
			if g, err := w.ask(wait); g != nil || err != nil {
				return g, err
			}
		default:
			if time.Since(w.since) > w.lock.terms.lease {
				w.warn(s.behind)
			}
			if err := w.sleep(wait, s.sleep); err != nil {
				return nil, err
			}
		}
	}
}

// next decides the waiter's next step. mine is the own client's grant that the waiter waits for, nil if
// there is none. queues.mu is held. The first true row counts:
//
//	the call has come, and nobody was there                     ask
//	a hand-off has given the waiter a grant                     take the lock
//	a trusted message grants the lock to the waiter's owner     take the lock
//	another waiter asks for all, without an answer too long     fail
//	another waiter asks for all                                 sleep as blocked
//	its client has the lock, and askAt is not over              sleep as blocked, until the trusted window or askAt ends
//	an event since the last request                             ask
//	no place on the server, and not refused                     ask
//	askAt is over (fair, with a place: the queue's askAt)       ask
//	otherwise                                                   sleep as queued, until askAt
//
// Events change the input of next, and wake the waiter: messages (queue.heard), the subscription
// (queue.changed), a refusal (waiter.queueUp), a foreign release (queue.unlocked), the end of a grant
// (queues.ended), a leaving waiter (waiter.leave).
func (w *waiter) next(now time.Time, mine *grant) step {
	l, q := w.lock, w.queue
	ask := func() step {
		w.state, w.again = waiterAsking, false // an event from now on needs another request
		w.course.tries++
		return step{ask: true}
	}
	switch {
	case w.state == waiterAsking:
		return ask()
	case w.state == waiterGiven:
		w.state = waiterOwns
		return step{grant: w.grant}
	case w.place.message.Granted:
		if g := w.granted(now); g != nil {
			return step{grant: g}
		}
	}
	if !w.contends() {
		if w.unanswered(now) { // a contending waiter learns of the failure from its own request
			return step{err: q.news.trouble}
		}
		w.state = waiterBlocked
		return step{sleep: maxPause, behind: mine}
	}
	if mine != nil && (w.askAt.IsZero() || w.askAt.After(now)) {
		// The end of that grant wakes this waiter. Nothing does if the lock is removed on the server, so
		// the waiter asks after keepAlive.
		if w.askAt.IsZero() {
			w.askAt = now.Add(keepAlive)
		}
		w.state = waiterBlocked
		return step{sleep: min(max(mine.until().Sub(now), minPause), w.askAt.Sub(now)), behind: mine}
	}
	if w.again || w.state != waiterQueued && !w.place.Held() { // an event, or no request yet
		return ask()
	}
	w.state = waiterQueued
	pause := w.askAt.Sub(now)
	if l.terms.fair && w.place.silent == 0 && w.place.Held() { // the client's first waiter asks for all subscribed waiters with a place
		pause = maxPause
		if q.writers.first == w {
			pause = q.news.askAt.Sub(now)
		}
	}
	if pause <= 0 {
		return ask()
	}
	return step{sleep: pause, behind: mine}
}

// blocker returns the own client's grant that the waiter waits for, nil if there is none. A waiter for a
// fair lock has none, nor has a reader: both wait in the server's queue. queues.mu is held.
func (w *waiter) blocker() *grant {
	if w.lock.terms.fair || w.lock.terms.shared || w.state == waiterAsking || w.state == waiterGiven {
		return nil
	}
	return w.queue.holder()
}

// ask makes a request. A refusal is neither a grant nor an error.
func (w *waiter) ask(wait context.Context) (*grant, error) {
	l := w.lock
	g, o, p := w.prepare()
	a := g.acquire(wait, p, o)
	if a.Cut {
		switch refusal, trouble := w.refused(wait); { // read once: the answer to another waiter may remove it
		case refusal != nil:
			return nil, refusal
		case trouble != nil: // the request is young, but those of the waiters before had no answer either
			a.Err = l.givenUp(wait, nil)
		}
	}
	switch {
	case a.Err != nil:
		if short, ok := errors.AsType[*NotReplicatedError](a.Err); ok { // the owner was released, and has no ticket any more
			w.lock.queues.mu.Lock()
			w.place, w.queue.news.short = place{attempt: g}, replicaShortage{short, time.Now()}
			w.lock.queues.mu.Unlock()
		}
		return nil, a.Err
	case a.Value.Acquired:
		w.owns(g)
		return g, nil
	}
	refusal := l.refusedBy(a.Value)
	l.reportWaiting(wait, refusal)
	w.listen(a.Value.Holder)
	return nil, w.queueUp(a, refusal, o.Ticket)
}

// refused returns why a waiter whose context has ended does not have the lock: its own client holds the
// lock (known without the server), or grants have too few replicas, or else the newest refusal. refusal
// is nil if none of these is known. trouble is the newest error since then.
func (w *waiter) refused(ctx context.Context) (refusal, trouble error) {
	why := ended(ctx)
	w.lock.queues.mu.Lock()
	last, mine := w.queue.news.refusal, w.queue.holder()
	short, trouble := w.queue.news.short.of(w.lock.name, w.lock.terms.replicas.n, why), w.queue.news.trouble
	if trouble == nil && w.queue.news.newest.IsZero() && time.Since(w.since) >= answerTime { // another waiter asks for all
		trouble = request.ErrNoAnswer
	}
	w.lock.queues.mu.Unlock()
	switch {
	case mine != nil:
		return w.lock.refusal(mine.owner, time.Until(mine.until())).because(why), trouble
	case short != nil: // the present owner may be about to give the lock up for the same reason
		return short, trouble
	case last != nil:
		return last.because(why), trouble
	}
	return nil, trouble
}

// prepare returns the waiter's attempt, the options of its request, and the retry policy.
func (w *waiter) prepare() (*grant, kind.Options, request.Policy) {
	qs, q, l := w.lock.queues, w.queue, w.lock
	p := l.retries()
	p.Report = w.asked
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w.served || q.news.served { // a free lock has no such queue, and is spared the allocation
		p.Patient = w.patient
	}
	if p.Since = q.news.silentSince(w.since, time.Now()); !p.Since.IsZero() {
		p.Trouble = q.news.trouble
	}
	if w.place.attempt == nil {
		w.place.attempt = l.newAttempt()
	}
	o := kind.Options{Wait: true, Spare: l.spareTokens(q.writers.first != q.writers.last)}
	if l.terms.tickets {
		o.Ticket = w.ticket()
	}
	return w.place.attempt, o, p
}

// asked is called with an error when an attempt of the waiter got no answer, and with nil when a later
// attempt got an answer. It returns when the queue's newest answered request was sent.
func (w *waiter) asked(err error) time.Time {
	w.lock.queues.mu.Lock()
	defer w.lock.queues.mu.Unlock()
	q := w.queue
	if err == nil {
		q.news.answered(time.Time{})
		return q.news.newest
	}
	q.news.fails(err)
	if w.lane().first == w { // the first waiter tells the rest
		for other := w; other != nil; other = other.behind {
			if other.unanswered(time.Now()) {
				other.wake()
			}
		}
	}
	return q.news.newest
}

// patience is for how long a call that waits goes on after a refusal to serve it, counted from the first
// refusal since the newest answer.
const patience = 5 * time.Second

// patient reports whether the waiter asks again after the server has refused to serve it: the user is being
// made anew, say, or gets another password. The waiter keeps its place meanwhile, as its ticket stays on the
// server. Only a waiter that sleeps in a queue the server has served before is patient: otherwise the
// user's rights or the password are probably wrong, and the caller must know at once. The waiters of a queue
// give up together:
//
//	0 s   the first waiter is refused, and asks again
//	3 s   it leaves, so the second waiter asks, is refused, and asks again
//	5 s   the second waiter fails; the third asks, is refused, and fails at once
func (w *waiter) patient(err error) bool {
	lasts := stays(err) // without the mutex: methods of the error may be the application's
	w.lock.queues.mu.Lock()
	defer w.lock.queues.mu.Unlock()
	n := &w.queue.news
	if n.denied.IsZero() {
		n.denied = time.Now()
	}
	return !lasts && (w.served || n.served && w.slept()) && time.Since(n.denied) < patience
}

// unanswered reports whether the waiter has had no answer for its total retry time. queues.mu is held.
func (w *waiter) unanswered(now time.Time) bool {
	n := &w.queue.news
	since := n.silentSince(w.since, now)
	return n.trouble != nil && !since.IsZero() && now.Sub(since) >= w.lock.retries().Total
}

// owns notes that the waiter's request was granted g.
func (w *waiter) owns(g *grant) {
	w.lock.queues.mu.Lock()
	defer w.lock.queues.mu.Unlock()
	w.gets(waiterOwns, g)
	w.queue.news.answered(g.sent)
	if short := &w.queue.news.short; short.err != nil && w.lock.terms.replicas.n >= short.err.Want { // enough replicas are there
		*short = replicaShortage{}
	}
}

// queueUp notes a refusal, and when to ask again if no message arrives. An error ends the wait.
func (w *waiter) queueUp(a request.Answer[lua.Reply], refusal *NotAcquiredError, asked lua.Ticket) error {
	l, q, now := w.lock, w.queue, time.Now()
	w.lock.queues.mu.Lock()
	defer w.lock.queues.mu.Unlock()
	q.news.answered(a.Sent)
	q.news.refusal = refusal
	free := a.Value.Holder == "" && a.Value.TTL == 0 && asked != (lua.Ticket{}) // and the first ticket is not told
	if free || a.Value.Place.Mute {
		q.cannotTell()
	}
	w.state = waiterQueued
	w.stand(a)
	most := cmp.Or(a.Value.AskIn, math.MaxInt64)
	if !w.hears() {
		w.place.silent++
		pause, err := w.silentPause(refusal)
		switch {
		case w.place.Held() && !q.news.tells(): // the first tickets ask most often, as one of them is the next, and all together about 50 times a second
			pause = min(firstPause*time.Duration(w.place.Before+1), keepAlive)
		case w.place.First: // all other tickets wait for this waiter
			pause = min(pause, firstPause)
		}
		if !free { // otherwise all who wait would ask until the first does
			pause = min(pause, untilExpiry(a.Value.TTL))
		}
		w.askAt = now.Add(min(pause, most))
		return err
	}
	w.place.silent = 0
	pause := min(untilExpiry(a.Value.TTL), w.unprompted())
	if l.terms.tickets {
		pause = w.ticketPause(asked, a.Value.TTL)
	}
	w.askAt = now.Add(min(pause, most))
	if q.writers.first == w || q.news.askAt.IsZero() || w.askAt.Before(q.news.askAt) { // later calls do not delay the request: their own say nothing of the other tickets
		q.news.askAt = w.askAt
	}
	return nil
}

// stand notes the waiter's place in the server's queue, from a refusal. queues.mu is held.
func (w *waiter) stand(a request.Answer[lua.Reply]) {
	q, before, taken := w.queue, w.place.Held(), w.place.queuedAt.here
	if w.place.Place = a.Value.Place; w.place.Held() {
		q.news.clock = moment{a.Sent, w.place.Time}
		w.place.queuedAt = q.news.clock
		w.place.attempt.leaves(hadTicket)
	}
	if before && w.place.New && !taken.Before(q.news.forgotten) { // the server had forgotten the queue, or the tickets of this client
		q.news.forgotten = a.Sent
		again := w.again
		q.askAll()
		w.again = again // this waiter has just asked
	}
}
