package rlock

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Polling is how a lock is waited for without pub/sub: see [WithPolling]. The
// zero value of each field means its default.
type Polling struct {
	// First is the pause before the second attempt. Each further pause is twice as long, up to Longest;
	// up to half is left out at random, so that hosts started together do not try together. No pause is
	// longer than the rest of the holder's lease. Defaults: 50 ms and 1 s, or First if that is longer.
	First, Longest time.Duration

	// Tries is the number of refusals after which a waiting call gives up, with [ErrNotAcquired]. The
	// count starts when the goroutine is the first of its client that waits for the lock; a reader is
	// refused once more before. Default: only the context ends the wait.
	Tries int
}

// Defaults of [Polling].
const (
	defaultFirstPause   = 50 * time.Millisecond
	defaultLongestPause = time.Second
)

// WithPolling makes waiting calls ask again and again, for servers and proxies without pub/sub or
// permission for it. Nothing is subscribed to, and nothing is left in the queue on the server. The script
// that frees the lock announces the release all the same, because others may listen; a server's refusal
// to announce is no cause for a warning.
//
// All else is as without: grants, renewal and loss, one contender per client and lock, first come, first
// served among its goroutines. Polling gives up promptness: a freed lock is noticed after up to a pause,
// and of several clients the first to ask gets the lock. Beside queueing clients, polling clients get the
// lock only when nobody waits, as a release hands the lock to the next in the queue without a free
// moment. The exception is a hand-off in memory by a holder of the same client, see [WithHandoff]. Meanwhile a polling call keeps the calls behind it in its own client waiting, also calls that
// do not poll. Have all users of a lock poll, or none. Owners of such locks are named `<client
// id>-poll:<n>`; to queueing clients they are foreign, as Redisson's are, and their releases are heard on
// the unlock channel.
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
