package watchdog

import "time"

// limit is a time at which an entry ends even if its lease is renewed.
type limit struct {
	at    time.Time
	cause error
}

// Limit ends the entry at the time at, even if its lease is renewed: OnLost receives cause then, or [ErrLapsed]
// if cause is nil. Take at from time.Now, because the end comes when the monotonic or the wall clock shows it.
// Each further call moves the end forward, and its cause counts from then on. Limit never moves the end
// backward. To move it forward, Limit locks no mutex. If the trusted window is over before, the entry lapses as
// it would without a limit.
//
// Pass gives no limit to the next holder.
func (e *Entry[K]) Limit(at time.Time, cause error) {
	if cause == nil {
		cause = ErrLapsed
	}
	next := &limit{at, cause}
	for {
		before := e.limit.Load()
		if before != nil && !at.After(before.at) {
			return
		}
		if !e.limit.CompareAndSwap(before, next) {
			continue
		}
		if before != nil { // the loop looks at the time before, and sets itself the new one
			return
		}
		s := e.scheduler
		s.mu.Lock()
		defer s.mu.Unlock()
		if !e.ended.Load() {
			e.reorder(s.now())
		}
		return
	}
}

// rest returns how long the entry may go on without a renewal: until the guard of its window begins, or to its limit.
func (e *Entry[K]) rest(now time.Time) time.Duration {
	rest := remaining(now, e.window.Load().lapses)
	if l := e.limit.Load(); l != nil {
		rest = min(rest, remaining(now, l.at))
	}
	return rest
}

// overLimit returns the cause of the limit if it is over at now.
func (e *Entry[K]) overLimit(now time.Time) error {
	if l := e.limit.Load(); l != nil && remaining(now, l.at) <= 0 {
		return l.cause
	}
	return nil
}
