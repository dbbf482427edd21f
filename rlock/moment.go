package rlock

import "time"

// moment is a point in time on two clocks: a request that was sent at here, on the local
// clock, was executed at there, in microseconds of the server's clock. So there is not
// earlier than here.
type moment struct {
	here  time.Time
	there int64
}

// longestReckoning is how much later than a moment a time may be that is derived from it.
const longestReckoning = 30 * time.Second

// before returns a time on the local clock that is not after the server's time t, and
// whether there is one. The clocks may run at different rates, within what a lease allows
// for. That the server's clock does not jump ahead is assumed, as it is for a lease.
func (m moment) before(t int64) (time.Time, bool) {
	passed := time.Duration(t-m.there) * time.Microsecond
	if m.here.IsZero() || passed < 0 || passed > longestReckoning {
		return time.Time{}, false
	}
	return m.here.Add(max(passed-passed/100-2*time.Millisecond, 0)), true
}
