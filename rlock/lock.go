package rlock

import (
	"context"
	"errors"
	"time"
)

// Lock is a named lock. It holds no state of its own; see [Client.NewLock].
type Lock struct {
	client   *Client
	gates    *gates // that have its gate
	name     string
	protocol protocol
	lease    time.Duration
	fixed    bool
	fenced   bool
	shared   bool // several owners may hold it at once
	apart    bool // its waiters queue on the server, not in the client
	inTurn   bool // after a release, others come first
	grouped  bool // its requests go out by client.scripts
	handoff  handoff
	polling  *Polling // nil: wake-ups are listened for
	replicas replicas // that must have a grant
	err      error    // why no method of it works
}

// Name returns the name the lock was made with.
func (l *Lock) Name() string { return l.name }

// Lock waits for the lock as long as ctx allows. The returned context owns the
// lock: use it for everything done under the lock, so that nested locking
// re-enters and the work stops when the lock is lost. It descends from ctx, but
// its end does not give the lock up: the lock is held, and renewed, until
// [Hold.Unlock]. To bound the waiting only, use [Lock.TryLockFor].
//
// Under a context that owns the lock, Lock re-enters: one more hold, one more
// Unlock.
//
// On an error nothing is held and the context passed in comes back:
// [ErrNotAcquired] if ctx ended while somebody else held the lock,
// [ErrUnavailable] if Redis refused to serve, or gave no answer until ctx ended
// or for as long as a lease lasts (at least 5 s), [ErrLeaseLost] under the
// context of a lost grant, [ErrKeyConflict], [ErrClosed] or [ErrInvalidOption].
// The context's own error is matched as well. Lock returns soon after ctx ends,
// also while Redis is silent.
//
// An uncontended Lock, and a nested one, is one round trip. A waiting one sends
// nothing between its second attempt and a wake-up or the end of the holder's
// TTL.
func (l *Lock) Lock(ctx context.Context) (context.Context, *Hold, error) {
	return l.lock(ctx, ctx)
}

// TryLockFor is [Lock.Lock] that waits no longer than wait. When that is over
// the error matches [context.DeadlineExceeded] beside the sentinel. wait of zero
// or less is over at once, without an attempt.
func (l *Lock) TryLockFor(ctx context.Context, wait time.Duration) (context.Context, *Hold, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return l.lock(ctx, waiting)
}

// TryLock makes one attempt and does not wait: [ErrNotAcquired] says that
// somebody else holds the lock. While a goroutine of this client is known to
// hold it, nothing is sent. The attempt is repeated only while its outcome is
// unknown and the bound of a single attempt (a third of the lease, at most 2 s)
// has not passed; then the error is [ErrUnavailable]. For the rest see
// [Lock.Lock].
func (l *Lock) TryLock(ctx context.Context) (context.Context, *Hold, error) {
	began := time.Now()
	if err := l.begin(); err != nil {
		return ctx, nil, err
	}
	defer l.client.done()
	if ctx.Err() != nil {
		return ctx, nil, l.tooLate(ctx)
	}
	if m, ok := l.protocol.(multi); ok {
		return m.take(ctx, ctx, true)
	}
	p := patience{attempt: l.bound(), total: l.bound(), once: true, stop: l.client.closing}
	if in := holdIn(ctx, l); in != nil {
		if held, hold, err := l.nest(ctx, ctx, in, p); err != errReleased {
			return held, hold, err
		}
	}
	if holder := l.gates.holder(l); holder != nil && holder.check() {
		return ctx, nil, &NotAcquiredError{Name: l.name, TTL: time.Until(holder.entry.Until())}
	}
	held, hold := l.join(ctx)
	if hold == nil {
		var err error
		if held, hold, err = l.try(ctx, ctx, p); err != nil {
			return held, nil, err
		}
	}
	l.reportAcquired(began)
	return held, hold, nil
}

// try makes one attempt.
func (l *Lock) try(ctx, wait context.Context, p patience) (context.Context, *Hold, error) {
	g := l.newGrant(l.client.owner())
	a := g.acquire(wait, p)
	if a.err == nil && !a.value.Acquired {
		a.err = &NotAcquiredError{Name: l.name, TTL: a.value.TTL}
	}
	if a.err != nil {
		g.abandon(false)
		return ctx, nil, a.err
	}
	held, hold, err := g.start(ctx)
	if err != nil {
		g.abandon(true)
		return ctx, nil, err
	}
	return held, hold, nil
}

// Do runs fn while holding the lock, with the context that owns it, and unlocks
// when fn returns, panics or exits its goroutine. If the lock could not be
// acquired, fn is not run and the error is that of [Lock.Lock]. Otherwise it is
// fn's error, joined by that of the Unlock: a [*LostError] if the lock was lost
// while fn ran, or [ErrUnavailable] if Redis did not answer to the Unlock.
func (l *Lock) Do(ctx context.Context, fn func(context.Context) error) (err error) {
	held, hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.unlockInto(held, &err)
	return fn(held)
}

// lock is the way of every call that may wait. Waiting ends with wait; the
// context of the hold descends from ctx. Of a crowd of waiters all but the first
// are in here, each with a stack. It stays the smallest there is, 2 KB, as long as
// the frames from here on are small, so what needs more is done before or after.
func (l *Lock) lock(ctx, wait context.Context) (context.Context, *Hold, error) {
	seat, held, hold, err := l.arrive(ctx, wait)
	if seat == nil {
		return held, hold, err
	}
	err = seat.await(wait)
	return seat.acquire(ctx, wait, err)
}

// arrive takes the lock, if that can be done without a place in the queue, or
// otherwise such a place; then client.done must follow.
func (l *Lock) arrive(ctx, wait context.Context) (*seat, context.Context, *Hold, error) {
	began := time.Now()
	if held, hold, err := l.unqueued(ctx, wait, began); err != errQueue {
		return nil, held, hold, err
	}
	return l.gates.enter(l, began), ctx, nil, nil
}

// unqueued takes the lock, if that can be done without a place in the queue.
// Otherwise the error is errQueue, and client.done must follow.
func (l *Lock) unqueued(ctx, wait context.Context, began time.Time) (held context.Context, hold *Hold, err error) {
	if err := l.begin(); err != nil {
		return ctx, nil, err
	}
	defer func() {
		if err != errQueue {
			l.client.done()
		}
	}()
	if wait.Err() != nil {
		return ctx, nil, l.tooLate(wait)
	}
	if m, ok := l.protocol.(multi); ok {
		return m.lock(ctx, wait)
	}
	if in := holdIn(ctx, l); in != nil {
		if held, hold, err = l.nest(ctx, wait, in, l.patience()); err != errReleased {
			return held, hold, err
		}
	}
	if l.shared && !l.gates.busy(l) { // those who can share do not queue
		if held, hold, err = l.share(ctx, wait, l.patience()); err == nil {
			l.reportAcquired(began)
		}
		if _, refused := err.(*NotAcquiredError); !refused {
			return held, hold, err
		}
	}
	return ctx, nil, errQueue
}

// acquire is the rest of a call that has arrived, after its time in the queue, which
// may have ended with an error.
func (s *seat) acquire(ctx, wait context.Context, err error) (context.Context, *Hold, error) {
	l := s.lock
	defer l.client.done()
	defer s.leave()
	if err != nil {
		return ctx, nil, err
	}
	for {
		g, err := l.contend(wait, s, l.patience())
		if err != nil {
			return ctx, nil, err
		}
		held, hold, err := g.start(ctx)
		if err == nil {
			s.got = g
			l.reportAcquired(s.since)
			return held, hold, nil
		}
		g.abandon(true)
		if errors.Is(err, ErrClosed) {
			return ctx, nil, err
		}
	}
}

// patience is that of a call that may wait.
func (l *Lock) patience() patience {
	return patience{attempt: l.bound(), total: max(l.lease, 5*time.Second), stop: l.client.closing}
}

// begin admits a call of a method. If it returns nil, client.done must follow.
func (l *Lock) begin() error {
	if l.err != nil {
		return l.err
	}
	if err := l.client.begin(); err != nil {
		return l.isClosed()
	}
	return nil
}

// isClosed is the error of a call after Close.
func (l *Lock) isClosed() error { return &lockError{l.name, ErrClosed, nil} }

// tooLate is the error of a call whose context was over before it: the loss, if
// that is why, as it is.
func (l *Lock) tooLate(ctx context.Context) error {
	if loss, ok := errors.AsType[*LostError](context.Cause(ctx)); ok {
		return loss
	}
	return &NotAcquiredError{Name: l.name, Err: ended(ctx)}
}

// bound is that of a single attempt.
func (l *Lock) bound() time.Duration { return min(l.lease/3, maxAttempt) }
