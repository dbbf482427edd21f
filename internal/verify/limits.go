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

// slack is what all of it may take longer on a machine with all these processes. With 200 ms, about one row in a thousand
// missed a wake-up by less than 300 ms beside other load. A waiter that is really forgotten sleeps for 5 s or more.
const slack = 500 * ms

// patience is how long a waiter may sleep although nobody has the lock.
func (f fault) patience() time.Duration { return f.cost().limit + slack }

func (f fault) cost() cost {
	if f.costs != nil {
		return *f.costs
	}
	return costOfAFault
}
