package watchdog

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// shortest is the least time from an attempt to the next, retries with their jitter aside.
// A lease that would need a shorter one cannot be trusted anyway: drift takes longer.
const shortest = time.Millisecond

// Entry is a lease that a [Scheduler] looks after. Its methods may be called
// from any goroutine.
type Entry[K comparable] struct {
	scheduler *Scheduler[K]
	key       K
	onLost    func(error)

	// Both are written under the scheduler's mutex and read without it.
	window atomic.Pointer[window]
	ended  atomic.Bool
	first  window // what window points to before the first renewal: saves an allocation

	// All below is guarded by the scheduler's mutex. After the end err does not change, so
	// that whoever ended the entry may read it without the mutex.
	lease
	renewing
	err   error     // of the last attempt, then why the lease was lost
	at    time.Time // when the loop must look, by the monotonic clock; orders the queue
	index int       // in the queue
}

// lease is how long an entry's lease lasts, and whether it is renewed.
type lease struct {
	duration time.Duration
	renew    time.Duration // what renewals ask for, and the duration after the first; the longest, if it is looked at
	fixed    bool
	sent     time.Time // of the latest confirmed request
}

// renewing is how the renewals of an entry go.
type renewing struct {
	next     time.Time     // start of the next attempt
	attempts int           // started so far
	flying   int           // of these, not answered yet
	backoff  time.Duration // before the last retry; 0 after a success
}

// attempt is the part of one entry in a batch.
type attempt[K comparable] struct {
	entry   *Entry[K]
	number  int
	renewal Renewal[K]
	bound   time.Duration
	late    bool
}

// Stop ends the entry before its lease is given back. It reports false if the
// entry was already lost or stopped; OnLost may then still be running. After it
// has returned true OnLost is never called and no renewal counts; a renewal
// that is under way may still reach the server.
func (e *Entry[K]) Stop() bool {
	s := e.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.end(nil)
}

// Until returns the end of the trusted window. It moves with each renewal, and
// no longer after the end. It takes no mutex.
func (e *Entry[K]) Until() time.Time {
	return e.window.Load().until
}

// Check reports whether the lease can be trusted at this moment. It compares
// the clocks itself, so that in a process that was stopped it tells the truth
// before the loop has run. If the window, less the guard, is over, the lease is
// lost at once and OnLost is called before Check returns false; a stopped or
// lost entry is false as well. It takes a mutex only when the window is over.
func (e *Entry[K]) Check() bool {
	if e.ended.Load() {
		return false
	}
	s := e.scheduler
	if remaining(s.now(), e.window.Load().lapses) > 0 {
		return true
	}
	s.mu.Lock()
	lapsed := e.lapse(s.now()) // a renewal may have been faster
	held := !e.ended.Load()
	s.mu.Unlock()
	if lapsed {
		e.report()
	}
	return held
}

// Err returns why the lease was lost, with the errors that OnLost gets; nil if it
// was not. OnLost may not have been called yet.
func (e *Entry[K]) Err() error {
	if e.ended.Load() {
		return e.err
	}
	return nil
}

// Rearm says that a request other than a renewal, sent at sent, has armed the
// lease for d. From now on d, at least 0, is its length, and it is renewed unless
// fixed. The end of the window only ever moves forward. An ended entry stays so.
func (e *Entry[K]) Rearm(sent time.Time, d time.Duration, fixed bool) {
	s := e.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.ended.Load() {
		return
	}
	d = max(d, 0)
	e.duration, e.renew, e.fixed = d, d, fixed
	e.confirm(sent, d, d, d/3)
	e.reorder(s.now())
}

// Asks returns what the renewals of the lease ask for; 0 if it is fixed.
func (e *Entry[K]) Asks() time.Duration {
	s := e.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.asks()
}

// Pass ends the entry like [Entry.Stop], and returns one for another holder of the same lease:
// with its window, and renewed when this one would have been. It reports false, and changes
// nothing, if the entry has ended, if less than left remains of the window at now, if it does
// not ask for renew (see [Entry.Asks]), or while a renewal is under way, whose outcome would
// reach nobody. The caller has just read now, and whoever takes the successor calls
// [Entry.Check].
func (e *Entry[K]) Pass(key K, onLost func(error), now time.Time, left, renew time.Duration) (successor *Entry[K], ok bool) {
	s := e.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.ended.Load() || e.flying > 0 || e.asks() != renew || remaining(now, e.window.Load().until) < left {
		return nil, false
	}
	successor = &Entry[K]{
		scheduler: s, key: key, onLost: onLost, first: *e.window.Load(),
		lease: e.lease, renewing: renewing{next: e.next, backoff: e.backoff}, err: e.err, at: e.at, index: e.index,
	}
	successor.window.Store(&successor.first)
	s.queue[successor.index] = successor
	e.err = nil
	e.ended.Store(true)
	return successor, true
}

// report tells the holder why its lease was lost. It is called once, by whoever
// ended the entry, and without the mutex.
func (e *Entry[K]) report() {
	if e.onLost != nil {
		e.onLost(e.err)
	}
}

// The methods below are called with the scheduler's mutex held.

// asks is [Entry.Asks].
func (e *Entry[K]) asks() time.Duration {
	if e.fixed {
		return 0
	}
	return e.renew
}

// end takes e out of the queue, for good. It reports false if e has ended
// before, and so gives each entry exactly one end.
func (e *Entry[K]) end(cause error) bool {
	if e.ended.Load() {
		return false
	}
	e.err = cause
	e.ended.Store(true)
	e.scheduler.queue.remove(e.index)
	return true
}

// lapse ends e if its window, less the guard, is over at now.
func (e *Entry[K]) lapse(now time.Time) bool {
	if remaining(now, e.window.Load().lapses) > 0 {
		return false
	}
	if e.err != nil {
		return e.end(&lapsed{e.err})
	}
	return e.end(ErrLapsed)
}

// lapsed is [ErrLapsed] with the error of the last renewal. That may be of the application,
// so it is not asked for its text before somebody wants to read it, without the mutex.
type lapsed struct{ last error }

func (l *lapsed) Error() string   { return fmt.Sprintf("%v; last renewal: %v", ErrLapsed, l.last) }
func (l *lapsed) Unwrap() []error { return []error{ErrLapsed, l.last} }

// confirm notes that when a request sent at sent was executed, at least left remained of
// a lease of length d: all of it, if the request has armed it. It sets the next
// attempt, which is not sooner than shortest. A request overtaken by a confirmed one
// moves at most the window.
func (e *Entry[K]) confirm(sent time.Time, d, left, next time.Duration) {
	w := e.window.Load().extend(windowOf(sent, d, left))
	e.window.Store(&w)
	if sent.After(e.sent) {
		e.sent, e.next = sent, sent.Add(max(next, shortest))
		e.backoff, e.err = 0, nil
	}
}

// due reports whether an attempt must start at now or, in company, whether it
// is near enough to go along.
func (e *Entry[K]) due(now time.Time, company bool) bool {
	var ahead time.Duration
	if company {
		ahead = slack(e.duration)
	}
	return !e.fixed && remaining(now, e.next) <= ahead
}

// begin starts an attempt at now and sets the next one, as if this one were
// never answered. Its bound does not reach beyond the loss of the lease.
func (e *Entry[K]) begin(now time.Time) attempt[K] {
	limit := bound(e.duration)
	late := remaining(now, e.next) < -slack(e.duration)
	e.next = now.Add(limit)
	e.attempts++
	e.flying++
	return attempt[K]{
		entry:   e,
		number:  e.attempts,
		renewal: Renewal[K]{Key: e.key, Duration: e.renew},
		bound:   min(limit, remaining(now, e.window.Load().lapses)),
		late:    late,
	}
}

// renewed notes the success of a, sent at sent.
func (e *Entry[K]) renewed(a attempt[K], sent time.Time) {
	e.duration = e.renew
	e.confirm(sent, a.renewal.Duration, a.renewal.Duration, e.pause(a))
}

// found notes that a, sent at sent, has found the lease held, with so much left of it. Its
// length is the longest that was left so far, up to renew. If little is left, as whoever extends it is
// late, it is looked at again before that is over.
func (e *Entry[K]) found(a attempt[K], sent time.Time, left time.Duration) {
	e.duration = min(max(e.duration, left), e.renew)
	trusted := Until(sent, left).Sub(sent) - Guard(e.duration)
	e.confirm(sent, e.duration, left, min(e.pause(a), max(trusted/2, e.duration/20)))
}

// pause is the time from a to the next attempt, if a is confirmed. Whoever was late was
// so in a crowd, and is spread again.
func (e *Entry[K]) pause(a attempt[K]) time.Duration {
	if a.late {
		return spread(e.duration)
	}
	return e.duration / 3
}

// failed notes that the outcome of a, sent at sent, is unknown, and brings the
// next attempt forward. If a was overtaken, the attempt that did so decides:
// otherwise every hanging attempt would add one more when its time is up.
func (e *Entry[K]) failed(a attempt[K], sent, now time.Time, err error) {
	if !sent.After(e.sent) {
		return
	}
	e.err = err
	if a.number != e.attempts {
		return
	}
	first := max(min(e.duration/20, 50*time.Millisecond), shortest)
	e.backoff = min(max(2*e.backoff, first), bound(e.duration))
	if retry := now.Add(e.backoff - rand.N(e.backoff/2)); retry.Before(e.next) {
		e.next = retry
	}
}

// bound is the longest that an attempt for a lease of length d may take.
func bound(d time.Duration) time.Duration {
	return max(d/6, shortest)
}

// slack is how early an attempt may go along with another, and how late it may
// start without counting as late.
func slack(d time.Duration) time.Duration {
	return d / 60
}
