package rlock

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// asker asks the server for a lock on behalf of the calls that wait in its line, first come, first served: one owner,
// one ticket, one request at a time. Nobody else knows of them. A request belongs to the line, never to a waiter: a
// waiter that leaves takes nothing along but its place. queues.mu guards what changes.
//
//	           refused: a timer until askAt
//	asking ◄──────────────────────────────────────► waiting for an event, or askAt
//	   │ granted by the answer                          │ granted by a message
//	   └───────► the first waiter has the grant ◄───────┘
//
// Events: a message without a grant, a change of the subscription, the end of a grant of this client. After one
// that comes while a request is under way the asker asks once more, as the answer may be older.
//
// An asker has no goroutine, but for the time of a request.
type asker struct {
	queue       *queue
	first, last *waiter
	private     bool // of a single call, which has a place of its own on the server

	lock  *Lock      // with whose terms the owner asks; nil if nobody waits, or asks
	since time.Time  // when the first call in the line began
	owner *candidate // nil before the first request, and after a grant

	asking  bool
	cancel  context.CancelFunc // of a request that no call makes by itself
	again   bool               // an event since the newest request was sent
	place   lua.Place          // of the owner in the server's queue, from the newest refusal; zero if the owner has no ticket
	taken   moment             // when the owner's newest ticket was taken; zero if there was none
	message lua.Message        // grants the lock to the owner, and came while a request was under way
	silent  int                // refusals in a row while no message could arrive
	askAt   time.Time          // when to ask if nothing happens
	timer   *time.Timer

	course course
}

// asker returns the asker in whose line a call waits, and whether it is a new one. A call makes the first request of a
// new one by itself, unless the client has the lock. Each call for a fair lock has an asker of its own, because each
// ticket has a separate place, and so does a reader who cannot share the grant of the others. queues.mu is held.
func (q *queue) asker(w *waiter) (a *asker, begins bool) {
	l, private := w.lock, w.lock.private
	for _, a := range q.askers {
		switch {
		case private, a.private, a.lock.terms.shared != l.terms.shared:
		case !l.terms.shared, l.shares(a.lock):
			return a, false
		default:
			private = true
		}
	}
	if a = &q.room; a.lock != nil {
		a = new(asker)
	}
	*a = asker{queue: q, lock: l, since: w.since, askAt: w.since.Add(keepAlive), private: private, asking: l.ownPlace || len(q.grants) == 0}
	q.askers = append(q.askers, a)
	return a, true
}

// next decides what an asker does next for those who wait. The first true row counts:
//
//	its client has the lock, and askAt is not over     wait until then, or until the trusted window ends
//	no request yet, or an event since the newest       ask
//	askAt is over                                      ask
//	otherwise                                          wait until then
//
// held is the end of the trusted window of the own client's grant that the line waits for, zero if there is none.
func (a *asker) next(now, held time.Time) (ask bool, pause time.Duration) {
	if held.After(now) && a.askAt.After(now) {
		return false, min(max(held.Sub(now), minPause), a.askAt.Sub(now))
	}
	if a.again || a.owner == nil {
		return true, 0
	}
	pause = min(max(a.askAt.Sub(now), 0), maxPause)
	return pause == 0, pause
}

// leads reports whether no asker of its client is before this one. queues.mu is held.
func (a *asker) leads() bool {
	return !a.private || a.queue.leader() == a
}

// leader returns the first asker with a place of its own, nil if there is none: it asks for all of them. queues.mu is held.
func (q *queue) leader() *asker {
	for _, a := range q.askers {
		if a.private {
			return a
		}
	}
	return nil
}

// turn has the asker do what is next. It ends if its line is empty. queues.mu is held.
func (a *asker) turn() {
	if a.asking || a.lock == nil {
		return
	}
	if a.first == nil {
		a.end()
		return
	}
	if !a.serves(a.first) {
		a.withdraw()
	}
	if a.message.Granted {
		if g := a.accept(time.Now()); g != nil {
			a.give(g)
			a.turn() // for those behind; without any it ends, unless give has ended it already
			return
		}
	}
	now := time.Now()
	var mine *grant // that the line waits for
	var held time.Time
	if !a.lock.ownPlace {
		mine = a.queue.holder()
	}
	if mine != nil {
		held = mine.entry.Until()
	}
	if ask, pause := a.next(now, held); ask {
		a.asks(now)
	} else {
		a.alarm(pause, mine)
	}
}

// asks has a goroutine make a request for the line. queues.mu is held.
func (a *asker) asks(now time.Time) {
	w, n := a.first, &a.queue.news
	if a.owner == nil {
		a.lock = w.lock
	}
	a.since, a.asking = w.since, true
	p := a.lock.policy
	if n.served || w.answered {
		p.Patient = a.patient
	}
	if n.trouble != nil {
		if p.Since = n.silentSince(a.since, now); !p.Since.IsZero() {
			p.Trouble = n.trouble
		}
	}
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.WithoutCancel(w.ctx)) // requests have the values of the first call
	a.lock.client.background(func() { a.askForLine(ctx, w, p) })
}

// alarm wakes the asker after a pause. queues.mu is held.
func (a *asker) alarm(pause time.Duration, mine *grant) {
	if w := a.first; time.Since(w.since) > w.lock.terms.lease {
		w.warn(mine)
	}
	if a.timer == nil {
		qs := a.lock.queues
		a.timer = time.AfterFunc(pause, func() { a.wake(qs) })
		return
	}
	a.timer.Reset(pause)
}

// wake is called when a pause is over, and perhaps once more after end has stopped the timer.
func (a *asker) wake(qs *queues) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if a.lock != nil && !a.asking {
		a.woken(byTimer)
		a.turn()
	}
}

// mustAsk has the asker ask as soon as possible. queues.mu is held.
func (a *asker) mustAsk() {
	a.again = true
	a.turn()
}

// goOn has the asker go on after the end of a grant of its client. Without a place, no message will come. queues.mu is
// held.
func (a *asker) goOn() {
	a.again = a.again || !a.place.Held()
	a.turn()
}

// told is called with a message for the owner. queues.mu is held.
func (a *asker) told(m lua.Message) {
	if a.woken(byMessage); m.Granted {
		a.message = m
	} else {
		a.again = true
	}
	a.turn()
}

// woken counts a wake-up. queues.mu is held.
func (a *asker) woken(by wakeup) { a.course.by[by]++ }

// end is called when the line is empty. queues.mu is held.
func (a *asker) end() {
	q, qs := a.queue, a.lock.queues
	if a.timer != nil {
		a.timer.Stop()
	}
	if a.owner != nil {
		a.withdraw()
	}
	led, again := a.private && q.leader() == a, a.again
	q.askers = slices.DeleteFunc(q.askers, func(other *asker) bool { return other == a })
	*a = asker{}
	if led {
		q.follow(again)
	}
	qs.tidy(q)
}

// follow has the next leader go on: the one that has ended may have been asking for all. again says that there was an event
// since its newest request. queues.mu is held.
func (q *queue) follow(again bool) {
	if next := q.leader(); next != nil {
		next.again = next.again || again || q.news.trouble != nil
		if q.news.askAt.Before(next.askAt) {
			next.askAt = q.news.askAt
		}
		next.turn()
	}
}

// unlocked is called when a foreign owner has announced its release. The waiter with the first ticket of the server's
// queue asks at once, and so do waiters with a request under way, whose answer may be older than the release. The rest ask
// after the reaction time. For a fair lock, the first waiter of their client asks for the rest, or who becomes the first
// meanwhile. queues.mu is held.
func (q *queue) unlocked() {
	later := time.Now().Add(reaction)
	if q.news.askAt.After(later) {
		q.news.askAt = later
	}
	for _, a := range q.tickets {
		switch {
		case a.place.First, a.asking:
			a.woken(byMessage)
			a.mustAsk()
		case a.leads() && a.askAt.After(later):
			a.askAt = later
			a.turn()
		}
	}
}

// serves reports whether the owner asks with the terms of the waiter, and not with those of one that has left.
func (a *asker) serves(w *waiter) bool { return a.owner == nil || w.lock.terms == a.lock.terms }

// out gives a call that leaves, or is served, what the asker has counted since the last one. queues.mu is held.
func (a *asker) out(w *waiter) {
	a.queue.waiting--
	w.course.tries += a.course.tries
	for by, n := range a.course.by {
		w.course.by[by] += n
	}
	a.course = course{}
}

// left is told that a waiter is out of the line. queues.mu is held.
func (a *asker) left() {
	switch {
	case a.first != nil && a.serves(a.first): // the asker goes on for that one
	case a.first == nil && a.cancel != nil: // nobody wants the answer to the request under way
		a.cancel()
	case a.owner != nil, a.private, a.lock.client.closed.Load():
		a.turn()
	} // otherwise the next waiter finds an asker whose timer is set
}

// askByCall makes the first request of a call. After a refusal, the call is the first waiter of the line.
func (a *asker) askByCall(w *waiter) (g *grant, err error) {
	qs := a.lock.queues
	err = request.ErrNoAnswer // if a hook panics: see send
	defer func() {
		qs.mu.Lock()
		defer qs.mu.Unlock()
		a.asking = false
		if g == nil && err == nil {
			a.push(w, true)
			a.turn()
			return
		}
		a.out(w)
		if a.first == nil {
			a.end()
			return
		}
		a.again, a.silent = true, 0 // they have come meanwhile
		if g != nil && g.lock.terms.shared {
			a.share(g, nil)
		}
		a.turn()
	}()
	p := w.lock.policy
	if w.answered { // most locks are free, and their calls are spared the allocation
		p.Patient = a.patient
	}
	if g, err = a.ask(w.ctx, p); err != nil {
		err = a.lock.failure(w.ctx, err)
	}
	return g, err
}

// askForLine makes a request for the waiters. An error is for the first of them.
func (a *asker) askForLine(ctx context.Context, first *waiter, p request.Policy) {
	qs := a.lock.queues
	var err error = unanswered{error: request.ErrNoAnswer} // if a hook ends the goroutine
	var g *grant
	defer func() {
		if v := recover(); v != nil {
			err = panicked{value: v}
		}
		qs.mu.Lock()
		defer qs.mu.Unlock()
		a.asking = false
		a.cancel()
		a.cancel = nil
		switch {
		case g != nil:
			a.give(g)
		case err != nil:
			a.again = true
			if first.waits() {
				a.silent = 0
				first.serve(nil, err)
			}
		}
		a.turn()
	}()
	if first.ctx.Err() != nil { // it is leaving, and perhaps the whole line is: then ctx ends
		a.lock.client.sleep(ctx, minPause)
	}
	if ctx.Err() != nil {
		err = nil
		return
	}
	g, err = a.ask(ctx, p)
}

// ask makes one request, repeated only without an answer, by the policy.
func (a *asker) ask(ctx context.Context, p request.Policy) (g *grant, err error) {
	l, q, qs := a.lock, a.queue, a.lock.queues
	answered := false
	defer func() {
		if !answered { // a panic: see send
			qs.mu.Lock()
			defer qs.mu.Unlock()
			a.withdraw()
		}
	}()
	qs.mu.Lock()
	if a.owner == nil {
		a.owner = new(candidate).init(l)
	}
	owner, name := a.owner, a.owner.name // of a quorum it is another one in each round
	a.again = false
	a.course.tries++
	o := kind.Options{Wait: true}
	if l.terms.fenced {
		o.Spare = l.spareTokens(q.waiting > 1)
	}
	if l.terms.fair || q.signal != nil && !l.terms.polls || l.terms.tickets && l.client.server.Hub.Active() {
		o.Ticket = a.ticket()
	}
	qs.mu.Unlock()
	p.Report = a.report
	r := owner.ask(ctx, p, o)
	switch {
	case r.Err != nil:
		err = a.failed(ctx, r)
	case !r.Value.Acquired:
		err = a.refused(ctx, r, o.Ticket)
	default:
		qs.mu.Lock()
		defer qs.mu.Unlock()
		delete(q.tickets, name)
		g = a.granted(r.Sent, l.terms.lease, r.Value.Token, run{began: r.Sent, spare: r.Value.Spare})
	}
	answered = true
	return g, err
}

// report is called with an error when an attempt got no answer, and with nil when a later attempt got one. Those
// who have waited in vain for as long as requests are repeated get the error.
func (a *asker) report(err error) time.Time {
	qs := a.lock.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	n := &a.queue.news
	if err == nil {
		n.answered(time.Time{})
		return n.newest
	}
	now := time.Now()
	n.fails(err, now)
	a.giveUp(now)
	return n.newest
}

// giveUp ends the waits of those who have had no answer for too long. queues.mu is held.
func (a *asker) giveUp(now time.Time) {
	n := &a.queue.news
	for w, next := a.first, (*waiter)(nil); w != nil; w = next {
		next = w.next
		since := n.silentSince(w.since, now)
		if n.trouble != nil && !since.IsZero() && now.Sub(since) >= w.lock.policy.Total {
			w.serve(nil, unanswered{error: n.trouble})
		}
	}
}

// patience is for how long a call that waits goes on after a refusal to serve it, counted from the first
// refusal since the newest answer.
const patience = 5 * time.Second

// patient reports whether the asker asks again after the server has refused to serve it: the user is being
// made anew, say, or gets another password. The ticket stays on the server, and so does the place of all who
// wait. Only those are patient who wait where the server has served before: otherwise the user's rights or the
// password are probably wrong, and the caller must know at once. The waiters give up together:
//
//	0 s   a request for the first waiter is refused, and repeated
//	3 s   the first waiter leaves; the request goes on for the second
//	5 s   the second fails; a request for the third is refused, and the third fails at once
func (a *asker) patient(err error) bool {
	lasts := stays(err) // without the mutex: methods of the error may be the application's
	qs := a.lock.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return !lasts && a.queue.news.deniedFor() < patience
}

// failed notes a request that failed, and returns its error.
func (a *asker) failed(ctx context.Context, r request.Answer[lua.Reply]) error {
	q, qs, err, end := a.queue, a.lock.queues, r.Err, ended(ctx)
	short, few := errors.AsType[*NotReplicatedError](err) // without the mutex: methods of the error may be the application's
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if few {
		q.news.notReplicated(short)
		a.owner.unwanted() // it is not released yet
		a.withdraw()
	}
	switch r.End {
	case request.Left: // late gets the answer, and the owner is not asked for again
		a.withdraw()
		if r.Cut {
			return a.lock.why(q, a.since, end, err)
		}
	case request.Exhausted:
		a.giveUp(time.Now())
	}
	return err
}

// accept returns the grant from a message, if trusted. Otherwise the asker has to ask. queues.mu is held.
func (a *asker) accept(now time.Time) *grant {
	m := a.message
	a.message = lua.Message{} // a message is looked at only once
	sent, ok := a.trusts(m, now)
	if !ok {
		a.again = true
		return nil
	}
	if !a.lock.terms.fenced { // a lock without fencing takes no token
		m.Token, m.Spare = 0, 0
	}
	return a.granted(sent, m.Claim, m.Token, run{began: now, next: m.Next, spare: m.Spare})
}

// granted makes the owner's grant, for one call to take; nil if the answer came when the lease was as good as over.
// queues.mu is held.
func (a *asker) granted(sent time.Time, lease time.Duration, token int64, r run) *grant {
	q := a.queue
	g, err := a.owner.grant(sent, lease, token, r)
	if err != nil {
		a.withdraw()
		a.again = true
		return nil
	}
	q.news.answered(g.sent)
	if n := a.lock.terms.replicas.n; n > 0 {
		q.news.replicated(n)
	}
	a.forget()
	a.again, a.silent, a.askAt = false, 0, sent.Add(keepAlive) // nothing tells who waits that the lock was removed on the server
	return g
}

// withdraw takes back what the owner may have on the server. The next request is for another owner. queues.mu is
// held.
func (a *asker) withdraw() {
	if a.owner == nil {
		return
	}
	if m := a.message; m.Granted { // the owner may hold the lock by this message
		a.owner.toldOf(m)
	}
	a.owner.withdraw()
	a.forget()
}

// forget detaches the owner. queues.mu is held.
func (a *asker) forget() {
	if a.owner != nil {
		delete(a.queue.tickets, a.owner.name)
	}
	a.owner, a.place, a.taken, a.message = nil, lua.Place{}, moment{}, lua.Message{}
}

// refused notes a refusal, and when to ask again if no event comes. An error ends the wait of the first.
func (a *asker) refused(ctx context.Context, r request.Answer[lua.Reply], asked lua.Ticket) (err error) {
	l, q, ttl := a.lock, a.queue, r.Value.TTL
	refusal := l.refusedBy(r.Value)
	l.reportWaiting(ctx, refusal)
	l.queues.mu.Lock()
	defer l.queues.mu.Unlock()
	a.listen(r.Value.Holder)
	q.news.refused(r.Sent, refusal)
	free := r.Value.Holder == "" && ttl == 0 && l.terms.tickets && asked != (lua.Ticket{})
	if free || r.Value.Place.Mute { // the first ticket is not told, or will not be
		q.cannotTell()
	}
	a.stand(r)
	pause := untilExpiry(ttl)
	a.silent++
	switch silence := 25 * time.Millisecond << min(a.silent, 6); {
	case l.terms.polls: // also while its client listens for another waiter
		pause, err = l.terms.polling.after(a.silent, pause, refusal)
	case q.signal.Live() && q.news.tells():
		if a.silent = 0; asked.Hears == lua.Deaf { // the server does not know that it can hear now, and may have skipped it
			a.again = true
		}
		pause = a.unprompted(pause, ttl)
	case a.place.First: // all other tickets wait for this one
		pause = min(pause, silence, firstPause)
	default:
		pause = min(pause, silence, longestSilence)
	}
	a.askAt = time.Now().Add(min(pause, cmp.Or(r.Value.AskIn, math.MaxInt64)))
	if a.private && q.leader() == a {
		q.news.askAt = a.askAt
	}
	return err
}

// stand notes the owner's place in the server's queue, from a refusal. queues.mu is held.
func (a *asker) stand(r request.Answer[lua.Reply]) {
	q, before, taken := a.queue, a.place.Held(), a.taken.here
	if a.place = r.Value.Place; !a.place.Held() {
		return
	}
	a.taken = moment{r.Sent, a.place.Time}
	q.news.clock = a.taken
	hub, channel := a.lock.client.server.Hub, a.lock.wire.GrantChannel()
	if a.place.Absent { // the next message would reach nobody
		hub.Absent(channel, r.Sent)
	}
	// The client has just learned how many wait, and probes accordingly.
	silence := max(time.Duration(a.place.Queue)*time.Second/probesPerSecond, minSilence)
	if a.place.Before >= near && a.leads() {
		silence = farSilence
	}
	hub.AllowSilence(channel, silence)
	if before && a.place.New && !taken.Before(q.news.forgotten) { // the server had forgotten the queue, or the tickets of this client
		q.news.forgotten = r.Sent
		q.askAll()
	}
}
