package rlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Reasons why a lock was lost whose lease could have been renewed. The error is a [*LostError], which
// matches [ErrLeaseLost] as well.
var (
	// ErrHeldTooLong means that the lock was held for as long as [WithMaxHold] allows.
	ErrHeldTooLong = errors.New("rlock: held too long")

	// ErrNoProgress means that [Progress] was not called for as long as [WithProgress] allows.
	ErrNoProgress = errors.New("rlock: no progress")
)

// shortestLimit is the least that an option accepts: like the shortest lease, it leaves time for a request.
const shortestLimit = minLeaseTime

// WithMaxHold limits how long the lock can be held. A job that hangs then does not keep the lock for as
// long as its process runs. The lease is renewed for at most d after Lock has returned. When d is over,
// the lock is lost: the context of the hold ends, with a [*LostError] as its cause that matches
// [ErrHeldTooLong] and [ErrLeaseLost], and the client sends no more renewals.
//
// The lease in Redis is not over then. No other client can acquire the lock before you unlock, or
// before the rest of the lease is over, which is at least a tenth of the lease and at most the whole
// lease. Use this time to stop. Unlock then releases the lock at once, and returns the same error. If
// you never call Unlock, the lock is free at the latest d and one lease after Lock has returned.
//
// d can be shorter than the lease. If d is 0, which is the default, there is no limit. If d is negative
// or less than 10 ms, every method of the lock returns [ErrInvalidOption]. As for a lease, both the
// monotonic and the wall clock count, so the time in which a machine is suspended counts too.
//
// WithMaxHold is for all kinds of lock:
//
//   - Nested holds end with the outermost hold, because the limit belongs to the outermost lock call.
//     The option has no effect in a nested call, so give all locks of a name the same limit.
//   - If you hold a write lock and a nested read lock, and unlock the write lock first, the limit still
//     counts from the write lock.
//   - A hold that [Lock.Join] returns has no limit of its own. If the limit of the holder is over, the
//     joined context ends as if the holder had died, or had unlocked.
//   - If a lock is passed on in memory, or kept by [WithRetention], each Lock begins a new limit. A
//     lock is passed on in memory only to calls with the same limits.
//   - Readers with a limit do not share the hold of another reader. Each has a limit of its own, and
//     takes a round trip.
//   - In a multi lock, each member has its own limit, which counts from the time when this member was
//     acquired. If it is over while Lock waits for another member, Lock starts again from the beginning.
//   - A lock made [WithoutRenewal] ends with its lease or with the limit, whichever is earlier.
func WithMaxHold(d time.Duration) LockOption {
	return func(o *lockOptions) error { o.terms.limits.hold = d; return checkLimit("WithMaxHold", d) }
}

// WithProgress makes a lock that is lost if its holder makes no progress: if [Progress] is not called
// for d, the lock is lost as by [WithMaxHold], and the error matches [ErrNoProgress]. The first d
// begins when Lock has returned. A job that calls Progress at least once in each d keeps the lock for
// as long as it needs. Choose d to be several times as long as the longest pause between two calls of
// Progress.
//
// What is said of d, of Unlock and of the kinds of lock at WithMaxHold holds for WithProgress too. If a
// lock has both options, the limit that is over first ends the hold, and Progress does not move the
// limit of WithMaxHold.
func WithProgress(d time.Duration) LockOption {
	return func(o *lockOptions) error { o.terms.limits.progress = d; return checkLimit("WithProgress", d) }
}

func checkLimit(option string, d time.Duration) error {
	switch {
	case d < 0:
		return fmt.Errorf("%s: %v is negative", option, d)
	case d > 0 && d < shortestLimit:
		return fmt.Errorf("%s: %v is too short: at least %v", option, d, shortestLimit)
	}
	return nil
}

// Progress reports that the work under ctx makes progress. Every lock that ctx owns and that is made
// [WithProgress] can then be held for the time d of its option from now on: the innermost lock, the
// locks around it, and all members of a multi lock.
//
// Progress sends nothing to Redis and is safe for concurrent use, so you can call it in a loop. It has
// no effect on locks without WithProgress, or if ctx owns no lock, for example because [Detach] has
// returned it. It also has no effect if ctx has ended, or after a limit is over: a lost lock stays lost.
// Use [context.WithoutCancel] if the work must go on after the end of ctx.
//
// Call Progress when a step of the work is done. Do not call it on a timer, because the timer goes on
// when the work hangs.
func Progress(ctx context.Context) {
	h, _ := ctx.Value(holdKey{}).(*Hold)
	if h == nil || ctx.Err() != nil {
		return
	}
	for now := time.Now(); h != nil; h = h.outer {
		if g := h.grant; g.lock.terms.limits.progress > 0 && g.check() {
			g.limit(now)
		}
	}
}

// limit sets the end of the grant that its options demand, if progress was made at now.
//
// The watchdog watches this end, as it watches the end of the lease, so that both are found by the same two clocks, and
// both are over with the entry: the successor of a hand-off begins without a limit.
func (g *grant) limit(now time.Time) {
	t := g.lock.terms.limits
	end, until := g.began.Add(t.hold), now.Add(t.progress)
	switch {
	case t.progress > 0 && (t.hold == 0 || until.Before(end)):
		g.entry.Limit(until, ErrNoProgress)
	case t.hold > 0:
		g.entry.Limit(end, ErrHeldTooLong)
	}
}

// overLimit is the reason of a loss by a limit of l: kind says which.
type overLimit struct {
	kind error
	of   limits
}

func (e *overLimit) Error() string {
	text := fmt.Sprintf("it was held for %v, which is as long as WithMaxHold allows", e.of.hold)
	if e.kind == ErrNoProgress {
		text = fmt.Sprintf("Progress was not called for %v, which is as long as WithProgress allows", e.of.progress)
	}
	return text + ": stop the work and unlock, and lock again before you continue"
}

func (e *overLimit) Unwrap() error { return e.kind }
