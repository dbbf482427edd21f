package watchdog

import "time"

// window says how long a lease may be trusted. A window is immutable, and so read without a
// mutex.
type window struct {
	until  time.Time // end of the trusted window
	lapses time.Time // the guard before it: unless moved by then, the lease is lost
}

// windowOf returns the window of a lease of length d with left remaining at the execution of a
// request sent at sent: the whole length, if the request has armed the lease. If less is left,
// the lease was armed earlier, and the clocks have drifted apart since.
func windowOf(sent time.Time, d, left time.Duration) window {
	drift := max(d, left)/100 + 2*time.Millisecond
	until := sent.Add(left - drift)
	return window{until, until.Add(-Guard(d))}
}

// extend returns w, moved forward to the ends of by, the window of a newer answer. Neither end ever
// moves back, not even for a shortened lease.
func (w window) extend(by window) window {
	if by.until.After(w.until) {
		w.until = by.until
	}
	if by.lapses.After(w.lapses) {
		w.lapses = by.lapses
	}
	return w
}

// Until returns the end of the trusted window of a lease of length d. sent is the time just before the request
// was sent that acquired or renewed the lease. The result is sent plus d, minus an allowance of d/100 + 2 ms
// for clock drift, as in Redlock.
func Until(sent time.Time, d time.Duration) time.Time { return windowOf(sent, d, d).until }

// Guard returns how long before [Until] a lease of length d counts as lost if it is not renewed, so that the
// holder has time to stop. It is d/10, but at least 2 ms.
func Guard(d time.Duration) time.Duration {
	return max(d/10, 2*time.Millisecond)
}

// remaining returns the time from now to t by the clock further on, the monotonic or the wall
// clock.
func remaining(now, t time.Time) time.Duration {
	return min(t.Sub(now), t.Round(0).Sub(now.Round(0)))
}

// parted reports whether the clocks have moved on unequally between a and b. A millisecond is
// within the drift allowed by windows: a slewed clock costs a few reorderings of the queue
// per minute, not one per tick.
func parted(a, b time.Time) bool {
	skew := b.Round(0).Sub(a.Round(0)) - b.Sub(a)
	return skew.Abs() > time.Millisecond
}
