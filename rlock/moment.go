package rlock

import "time"

// moment is a point in time on two clocks: a request sent at here, on the local clock, was executed
// at there, in microseconds of the server's clock. So there is not earlier than here.
//
//	here = 10.000 s, there = S     an ask is sent, and executed
//	message: granted at S + 5 s    before(S + 5 s) = 10.000 s + 5 s − 50 ms − 2 ms = 14.948 s:
//	                               surely not after the grant, so the trusted window counts from there
type moment struct {
	here  time.Time
	there int64
}

// longestReckoning is how much later than a moment a derived time may be.
const longestReckoning = 30 * time.Second

// before returns a time on the local clock, not after the server's time t, and whether there is such
// a time. The clocks may run at different rates, within the allowance of a lease. As for a
// lease, the server's clock is assumed not to jump ahead.
func (m moment) before(t int64) (time.Time, bool) {
	passed := time.Duration(t-m.there) * time.Microsecond
	if m.here.IsZero() || passed < 0 || passed > longestReckoning {
		return time.Time{}, false
	}
	return m.here.Add(max(passed-passed/100-2*time.Millisecond, 0)), true
}
