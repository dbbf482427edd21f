package verify

import "time"

// cost is how long a fault may keep a lock from those who wait for it. That is counted
// from the end of the fault or from when nobody had the lock any more, whichever is later.
type cost struct {
	limit time.Duration
	why   string
}

// The costs are what docs/guarantees.md promises, for default settings.
var (
	costOfAFault = cost{
		time.Second,
		"a round trip by a connection that works, which may be a second attempt; a waiter that cannot hear asks once a second at least, and one that hears nothing after a second, if few wait (rlock: notify.go)",
	}
	costOfTwo = cost{
		2 * costOfAFault.limit,
		"a request of a waiter that has found out is lost as well",
	}
)

// slack is how much longer all of it can take on a busy machine with all these processes. With 200 ms, three of about 1,000
// rows failed, in which a waiter slept 25 to 145 ms longer. A waiter that no message wakes sleeps until its timer, for up
// to 5.5 s.
const slack = 500 * ms

// patience is how long a waiter may sleep although nobody has the lock.
func (f fault) patience() time.Duration { return f.cost().limit + slack }

func (f fault) cost() cost {
	if f.costs != nil {
		return *f.costs
	}
	return costOfAFault
}
