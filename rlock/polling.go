package rlock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Polling configures [WithPolling]. The zero value of a field means its default.
type Polling struct {
	// First is the pause before the second attempt. Each further pause is twice as long as the one
	// before, up to Longest. A random part of up to half of each pause is left out, so that hosts that
	// started together do not try at the same time. No pause is longer than the rest of the holder's
	// lease. The default of First is 50 ms. The default of Longest is 1 s, or First if that is longer.
	First, Longest time.Duration

	// Tries is the number of failed attempts after which a waiting call returns [ErrNotAcquired]. Of
	// the goroutines of a client that wait for the lock, only the first makes attempts, so the count
	// starts when the goroutine is the first. A reader makes one attempt more than Tries. By default,
	// and with 0, only the context ends the wait.
	Tries int
}

// Defaults of [Polling].
const (
	defaultFirstPause   = 50 * time.Millisecond
	defaultLongestPause = time.Second
)

// WithPolling makes waiting calls repeat their request after pauses, instead of waiting for a message.
// Use it for servers and proxies without pub/sub, or if the Redis user has no permission for pub/sub.
// The client does not subscribe to a channel, and waiting calls do not join the queue in Redis. When a
// polling client releases the lock, it still publishes a message for clients that do not poll. If the
// server refuses this message, nothing is logged.
//
// Acquiring, renewing and losing a lock work as without polling. The goroutines of a client still form
// a local queue, and only the first of them sends requests. Polling has two disadvantages. A waiter
// notices a released lock only when its pause ends. If several clients wait, the first one to send its
// request acquires the lock.
//
// Use polling for all users of a lock or for none. If other clients join the queue in Redis, a release
// passes the lock directly to the first of them, so a client that polls acquires the lock only when no
// other client waits. The exception is a lock that a goroutine of the same client holds, because this
// goroutine can pass the lock on in memory, see [WithHandoff]. While a call polls, it blocks the calls
// behind it in the local queue, even those that do not poll.
//
// The owners of such locks are named `<client id>-poll:<n>`. Other clients treat them like owners of
// Redisson, and listen for their releases on the unlock channel.
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

var errTries = errors.New("no more tries")

// after is the pause after refusal n, counted from 1, and no longer than until the holder's lease expires. An error ends
// the wait.
func (p *Polling) after(n int, expiry time.Duration, refusal *NotAcquiredError) (time.Duration, error) {
	if p.Tries > 0 && n >= p.Tries {
		return 0, refusal.because(fmt.Errorf("%w: %d were made", errTries, n))
	}
	d := p.First
	for ; n > 1 && d < p.Longest; n-- {
		d += min(d, p.Longest-d)
	}
	return min(d-rand.N(d/2+1), expiry), nil
}
