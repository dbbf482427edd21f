package rlock

import "time"

// moment is a point in time on two clocks: a request sent at here was executed at
// there, in microseconds of the server's clock. So there is not before here.
type moment struct {
	here  time.Time
	there int64
}

// longestReckoning is how much later than a moment another may be that is reckoned
// from it.
const longestReckoning = 30 * time.Second

// before returns a point on the clock here that is not after the server's time t, and
// whether there is one. The clocks may differ in their rates by as much as a lease
// allows for; the server's is taken not to jump ahead, as it is for a lease.
func (m moment) before(t int64) (time.Time, bool) {
	passed := time.Duration(t-m.there) * time.Microsecond
	if m.here.IsZero() || passed < 0 || passed > longestReckoning {
		return time.Time{}, false
	}
	return m.here.Add(max(passed-passed/100-2*time.Millisecond, 0)), true
}
