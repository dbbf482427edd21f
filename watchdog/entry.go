package watchdog

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// shortest is the least time from an attempt to the next, retries with jitter aside. A lease
// short enough for less cannot be trusted anyway: the drift takes longer.
const shortest = time.Millisecond

// Entry is a lease that a [Scheduler] renews. Its methods are safe for concurrent use.
type Entry[K comparable] struct {
	scheduler *Scheduler[K]
	key       K
	onLost    func(error)
	limit     atomic.Pointer[limit] // set and read without the scheduler's mutex; nil: none

	// Both are written under the scheduler's mutex and read without the mutex.
	window atomic.Pointer[window]
	ended  atomic.Bool
	first  window // the target of window before the first renewal: saves an allocation

	// The scheduler's mutex guards the fields below. After the end err does not change, so the
	// goroutine that ended the entry may read err without the mutex.
	lease
	renewing
	err   error     // of the last attempt, then why the lease was lost
	at    time.Time // when the loop must look, by the monotonic clock; orders the queue
	index int       // in the queue
}

// lease is how long an entry's lease lasts, and whether the lease is renewed.
type lease struct {
	duration time.Duration
	renew    time.Duration // the length that renewals ask for, and the duration after the first renewal; for a lease extended by others, the longest
	fixed    bool
	sent     time.Time // of the latest confirmed request
}

// renewing is the state of the renewals of an entry.
type renewing struct {
	next     time.Time     // start of the next attempt
	attempts int           // started so far
	flying   int           // of these attempts, not answered yet
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

// Stop ends the entry. Call it before you release the lease on the server. It returns false if the entry has
// already ended, and OnLost may still be running then. After Stop has returned true, OnLost is never called,
// and no result of a renewal has an effect. However, a renewal in progress may still reach the server.
func (e *Entry[K]) Stop() bool {
	s := e.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.end(nil)
}

// Until returns the end of the trusted window. Each renewal moves this time forward until the entry ends. Until
// locks no mutex.
func (e *Entry[K]) Until() time.Time {
	return e.window.Load().until
}

// Check reports whether the lease can be trusted now. It reads the clocks itself, so its result is also right
// if the process was suspended and the loop of the scheduler has not run since. If the rest of the trusted
// window is no longer than [Guard], Check ends the entry: it calls OnLost, and then returns false. Check also
// returns false for an entry that has already ended, and ends one whose time of [Entry.Limit] has come. While
// more than Guard is left of the window, and the limit is not over, Check locks no mutex.
func (e *Entry[K]) Check() bool {
	if e.ended.Load() {
		return false
	}
	s := e.scheduler
	if e.rest(s.now()) > 0 {
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

// Err returns the reason of the loss, which is the error that OnLost receives. It returns nil if the lease is
// not lost. Err can return the reason before OnLost is called.
func (e *Entry[K]) Err() error {
	if e.ended.Load() {
		return e.err
	}
	return nil
}

// Rearm records that a request other than a renewal has set the length of the lease to d. sent is the time just
// before that request was sent. From then on, renewals request the length d, or if fixed is true, the lease is
// not renewed. A negative d counts as 0. Rearm never moves the end of the window backward, and has no effect on
// an entry that has ended.
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

// Asks returns the length of lease that each renewal requests, or 0 if the lease is not renewed.
func (e *Entry[K]) Asks() time.Duration {
	s := e.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.asks()
}

// Pass gives the lease to another holder without a request to the server. It ends the entry as [Entry.Stop]
// does, and returns a new entry with the same window and the same time of the next renewal. now is the current
// time, which the caller has just read. After Pass, the new holder must call [Entry.Check].
//
// Pass returns false and changes nothing in these cases:
//
//   - The entry has ended.
//   - Less than left remains of the window at now.
//   - Renewals of the entry do not request the length renew, see [Entry.Asks].
//   - A renewal is in progress.
//
// If Pass were allowed while a renewal is in progress, the result of the renewal would reach neither holder:
//
//	renew a:1 is sent             the key has been deleted meanwhile
//	Pass to the next holder       (if this were allowed)
//	answer: refused               the old entry has ended: no loss is reported, and the new holder
//	                              goes on without a lock until the next renewal
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

// report tells the holder why the lease was lost. The goroutine that ended the entry calls
// report, once, and without the mutex.
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

// end takes e out of the queue, for good. end reports false if e has ended before: each entry has
// exactly one end.
func (e *Entry[K]) end(cause error) bool {
	if e.ended.Load() {
		return false
	}
	e.err = cause
	e.ended.Store(true)
	e.scheduler.queue.remove(e.index)
	return true
}

// lapse ends e if the window, less the guard, is over at now, or else if its limit is.
func (e *Entry[K]) lapse(now time.Time) bool {
	if remaining(now, e.window.Load().lapses) > 0 {
		cause := e.overLimit(now)
		return cause != nil && e.end(cause)
	}
	if e.err != nil {
		return e.end(&lapsed{e.err})
	}
	return e.end(ErrLapsed)
}

// lapsed is [ErrLapsed] with the error of the last renewal. The error may be the application's,
// so its text is made only for a reader, without the mutex.
type lapsed struct{ last error }

func (l *lapsed) Error() string   { return fmt.Sprintf("%v; last renewal: %v", ErrLapsed, l.last) }
func (l *lapsed) Unwrap() []error { return []error{ErrLapsed, l.last} }

// confirm notes that at least left of a lease of length d remained at the execution of a
// request sent at sent: the whole length, if the request has armed the lease. confirm sets the
// next attempt, not sooner than shortest. A request overtaken by a confirmed request moves
// at most the window.
func (e *Entry[K]) confirm(sent time.Time, d, left, next time.Duration) {
	w := e.window.Load().extend(windowOf(sent, d, left))
	e.window.Store(&w)
	if sent.After(e.sent) {
		e.sent, e.next = sent, sent.Add(max(next, shortest))
		e.backoff, e.err = 0, nil
	}
}

// due reports whether an attempt must start at now or, in company, is near enough to go along.
func (e *Entry[K]) due(now time.Time, company bool) bool {
	var ahead time.Duration
	if company {
		ahead = slack(e.duration)
	}
	return !e.fixed && remaining(now, e.next) <= ahead
}

// begin starts an attempt at now and sets the next attempt, as for an attempt without an answer.
// The bound does not reach beyond the loss of the lease.
func (e *Entry[K]) begin(now time.Time) attempt[K] {
	limit := bound(e.duration)
	late := remaining(now, e.next) < -slack(e.duration)
	e.next = now.Add(limit)
	e.attempts++
	e.flying++
	return attempt[K]{
		entry:   e,
		number:  e.attempts,
		renewal: Renewal[K]{Key: e.key, Duration: e.renew, Before: e.duration},
		bound:   min(limit, remaining(now, e.window.Load().lapses)),
		late:    late,
	}
}

// renewed notes the success of a, sent at sent.
func (e *Entry[K]) renewed(a attempt[K], sent time.Time) {
	e.duration = e.renew
	e.confirm(sent, a.renewal.Duration, a.renewal.Duration, e.pause(a))
}

// found notes that a, sent at sent, has found the lease held, with left remaining. The length is the
// longest remainder so far, up to renew. If little is left, because the extension by others is
// late, the next look comes before the remainder is over.
func (e *Entry[K]) found(a attempt[K], sent time.Time, left time.Duration) {
	e.duration = min(max(e.duration, left), e.renew)
	trusted := Until(sent, left).Sub(sent) - Guard(e.duration)
	e.confirm(sent, e.duration, left, min(e.pause(a), max(trusted/2, e.duration/20)))
}

// pause is the time from a to the next attempt, if a is confirmed. A late attempt was one of a
// crowd, and is spread again.
func (e *Entry[K]) pause(a attempt[K]) time.Duration {
	if a.late {
		return spread(e.duration)
	}
	return e.duration / 3
}

// failed notes that the outcome of a, sent at sent, is unknown, and brings the next attempt
// forward. If a was overtaken, the overtaking attempt decides: otherwise every hanging attempt
// would add a further attempt at its time-out.
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
