package rlock

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Polling is how a lock is waited for without pub/sub: see [WithPolling]. The
// zero value of each field means its default.
type Polling struct {
	// First is the pause before the second attempt. Each further one is twice as
	// long, up to Longest; up to half of it is left out at random, so that hosts
	// which start together do not try together. None is longer than what is left
	// of the holder's lease. Defaults: 50 ms and 1 s, or First if that is longer.
	First, Longest time.Duration

	// Tries is after how many refusals a waiting call gives up, with [ErrNotAcquired]. They
	// count from when the goroutine is the first of its client that waits for the lock; a
	// reader is refused once more before. Default: only the context ends the wait.
	Tries int
}

// Defaults of [Polling].
const (
	defaultFirstPause   = 50 * time.Millisecond
	defaultLongestPause = time.Second
)

// WithPolling makes waiting calls ask again and again, for servers and proxies
// that have no pub/sub or do not allow it. Nothing is subscribed to, and nothing is left
// in the queue on the server. A release is announced all the same, by the script that
// frees the lock, because others may listen; that the server refuses to is no cause for
// a warning.
//
// All else is as without: grants, renewal and loss, one contender per client and lock, first
// come, first served among its goroutines. What polling gives up is promptness: a lock that was
// freed is noticed after up to a pause, and of several clients the first that asks gets it.
// Beside clients that queue, clients that poll get it only when nobody waits, as a release
// hands it to the next in the queue without it ever being free. Meanwhile a call that polls
// keeps those behind it in its own client waiting, also those that do not poll. Have all users
// of a lock poll, or none. Owners of such locks are named `<client id>-poll:<n>`; to those who
// queue they are foreign, as Redisson's are, and their releases are heard on the unlock
// channel.
func WithPolling(p Polling) LockOption {
	return func(o *lockOptions) error {
		p := p // an option may be used for several locks at once
		if p.First < 0 || p.Longest < 0 || p.Tries < 0 {
			return fmt.Errorf("WithPolling: %+v: nothing may be negative", p)
		}
		if p.First == 0 {
			p.First = defaultFirstPause
		}
		if p.Longest == 0 {
			p.Longest = max(p.First, defaultLongestPause)
		}
		if p.Longest < p.First {
			return fmt.Errorf("WithPolling: the longest pause, %v, is shorter than the first, %v", p.Longest, p.First)
		}
		o.terms.polls, o.terms.polling = true, p
		return nil
	}
}

// after is the pause after refusal n, counted from 1.
func (p *Polling) after(n int) time.Duration {
	d := p.First
	for ; n > 1 && d < p.Longest; n-- {
		d += min(d, p.Longest-d)
	}
	return d - rand.N(d/2+1)
}
