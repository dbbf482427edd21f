package verify

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// counts is what a party compares with what its lock clients have counted.
type counts struct {
	called  atomic.Int64 // calls of Lock and its like
	retired []*lockers   // clients that others have replaced
	ended   int64        // outcomes of those that were forgotten
}

// retire keeps clients that others have replaced. It forgets those that were replaced long
// ago, so that nobody calls them any more, as soon as what they have counted adds up.
func (c *counts) retire(l *lockers) {
	const keep = 30
	c.retired = append(c.retired, l)
	if len(c.retired) <= keep {
		return
	}
	if n, err := c.retired[0].outcomes(); err == nil {
		c.ended += n
		c.retired = slices.Delete(c.retired, 0, 1)
	}
}

// settle requires of clients that were closed that each call has one outcome, each
// acquisition one end, and that nothing is left.
func (c *counts) settle(all []*lockers) (err error) {
	called := c.called.Swap(0) - c.ended
	c.ended = 0
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
		n, err := l.outcomes()
		if err != nil {
			return err
		}
		ended += n
	}
	if ended != called {
		return fmt.Errorf("%d calls, %d outcomes", called, ended)
	}
	return nil
}

// outcomes are how many calls have ended, with an error if one has not, or something is
// still held.
func (l *lockers) outcomes() (ended int64, err error) {
	for _, c := range l.clients {
		for _, k := range c.Stats().Kinds {
			if k.Held != 0 || k.Waiting != 0 || k.Acquired() != k.Released+k.Lost {
				return 0, fmt.Errorf("what was counted does not add up: %+v", k)
			}
			for _, n := range k.Calls {
				ended += n
			}
		}
	}
	return ended, nil
}
