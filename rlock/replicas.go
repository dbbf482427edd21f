package rlock

import (
	"errors"
	"fmt"
	"time"
)

// ErrNotReplicated: too few replicas have acknowledged the grant in time, and it
// is released in the background. The error is a [*NotReplicatedError].
var ErrNotReplicated = errors.New("rlock: not replicated")

// NotReplicatedError says how many replicas have acknowledged a grant.
type NotReplicatedError struct {
	Name      string // of the lock
	Want, Got int
	Err       error // why it is not known, if so, and Got is 0 then; or how the wait for another grant has ended
}

// Error names the lock and both numbers.
func (e *NotReplicatedError) Error() string {
	text := fmt.Sprintf("rlock: lock %s: not replicated: %d of %d replicas have acknowledged", quote(e.Name), e.Got, e.Want)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is makes it match [ErrNotReplicated].
func (e *NotReplicatedError) Is(target error) bool { return target == ErrNotReplicated }

// Unwrap returns why the number is not known.
func (e *NotReplicatedError) Unwrap() error { return e.Err }

// WithReplicas makes a grant count only when at least n replicas have it, within timeout: from 1 ms to a
// tenth of the lease, at most half a second. Otherwise the grant is released in the background, and the
// error is [ErrNotReplicated], also while others would have been waited for. A new call at once may be
// refused because the release is still on its way. The question (WAIT) travels behind the attempt, in the
// same round trip; the added time is the replicas' answer. A refused attempt asks as well, and so takes
// up to timeout while replicas are away. The waiters of a client ask in turn: of many, the last learns
// only after as many timeouts that replicas are away, or when its context ends. If a grant to this client
// has failed so in the last seconds, that is the error of all its calls that give up. A call whose
// context ends before timeout may end without the replicas' answer, and then is [ErrUnavailable]. The
// ReadTimeout of the client of go-redis must be longer than timeout.
//
// Renewals, nested holds and Unlock do not ask: a renewal on the master alone is a renewal. WithReplicas
// makes a grant forgotten in a failover unlikely, not impossible. Another replica than the answering ones
// may take over; n must be all of them, or more than the Sentinels or the cluster may choose wrongly
// from. And a replica without a link to the master for two thirds of the lease or longer may take the
// lease for over. [NewQuorumLock] is for these cases.
//
// Only for [Client.NewLock]; below a grant with fewer replicas asked, it is [ErrInvalidOption].
func WithReplicas(n int, timeout time.Duration) LockOption {
	return func(o *lockOptions) error {
		o.terms.replicas = replicas{n, timeout}
		if n < 1 || timeout < time.Millisecond {
			return fmt.Errorf("WithReplicas: %d within %v: at least one, and a millisecond", n, timeout)
		}
		return nil
	}
}

// replicaShortage is the newest grant to the waiters of a queue with too few replicas. queues.mu guards
// it.
type replicaShortage struct {
	err *NotReplicatedError // nil: no shortage since a grant with enough replicas
	at  time.Time
}

// of returns the shortage as the error of a call that gives up on the lock with that name. It is nil if
// the lock asks for no or fewer replicas than too few, or the shortage was long ago.
func (s replicaShortage) of(name string, asks int, why error) error {
	if s.err == nil || asks < s.err.Want || time.Since(s.at) >= longestFailure {
		return nil
	}
	if s.err.Err != nil {
		why = fmt.Errorf("%w; last error: %w", why, s.err.Err)
	}
	return &NotReplicatedError{Name: name, Want: s.err.Want, Got: s.err.Got, Err: why}
}

// notReplicated notes a grant with too few replicas.
func (n *news) notReplicated(err *NotReplicatedError) { n.short = replicaShortage{err, time.Now()} }

// replicated notes a grant with that many replicas.
func (n *news) replicated(by int) {
	if n.short.err != nil && by >= n.short.err.Want {
		n.short = replicaShortage{}
	}
}

// replicas are the replicas required for a grant.
type replicas struct {
	n       int // 0: none
	timeout time.Duration
}
