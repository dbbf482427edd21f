package verify

import (
	"fmt"
	"sync/atomic"
	"time"
)

// counts is what a party compares with what its lock clients have counted.
type counts struct {
	called  atomic.Int64 // calls of Lock and its like
	retired []*lockers   // clients that others have replaced
}

// settle requires of clients that were closed that each call has one outcome, each
// acquisition one end, and that nothing is left.
func (c *counts) settle(all []*lockers) (err error) {
	called := c.called.Swap(0)
	for range 500 { // a call is counted a little after Close need not wait for it
		if err = balance(all, called); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

func balance(all []*lockers, called int64) error {
	var ended int64
	for _, l := range all {
		for _, c := range l.clients {
			for _, k := range c.Stats().Kinds {
				if k.Held != 0 || k.Waiting != 0 || k.Acquired() != k.Released+k.Lost {
					return fmt.Errorf("what was counted does not add up: %+v", k)
				}
				for _, n := range k.Calls {
					ended += n
				}
			}
		}
	}
	if ended != called {
		return fmt.Errorf("%d calls, %d outcomes", called, ended)
	}
	return nil
}
