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

// WithReplicas makes a grant count only when at least n replicas have it, for
// which they have as long as timeout: from 1 ms to a tenth of the lease, at most
// half a second. Otherwise it is released in the background, and the error is
// [ErrNotReplicated], also while others would have been waited for. A call that tries again
// at once may be refused because the release is still on its way. The question (WAIT) travels
// behind the attempt, in the same round trip; what it adds is the replicas' answer. An attempt
// that is refused asks as well, and so takes up to timeout while replicas are away. The waiters of
// a client ask one after another: of many, the last learns only after as many timeouts that
// replicas are away, or when its context ends. If a grant to this client has failed so in the last
// seconds, that is the error of all its calls that give up. A call whose context ends before
// timeout may end without the replicas' answer, and then is [ErrUnavailable]. The ReadTimeout of
// the client of go-redis must be longer than timeout.
//
// Renewals, nested holds and Unlock do not ask: a renewal that only the master has
// is a renewal. This makes a grant that a failover forgets unlikely, not impossible.
// Another replica than those that answered may take over; n must be all of them, or more
// than the Sentinels or the cluster may choose wrongly from. And a replica that has had no
// link to the master for two thirds of the lease or longer may take the lease for over.
// What then remains is what [NewQuorumLock] is for.
//
// Only for [Client.NewLock]; below a grant for which fewer were asked, it is
// [ErrInvalidOption].
func WithReplicas(n int, timeout time.Duration) LockOption {
	return func(o *lockOptions) error {
		o.terms.replicas = replicas{n, timeout}
		if n < 1 || timeout < time.Millisecond {
			return fmt.Errorf("WithReplicas: %d within %v: at least one, and a millisecond", n, timeout)
		}
		return nil
	}
}

// replicaShortage is the newest grant to the waiters of a queue that too few replicas had.
// queues.mu guards it.
type replicaShortage struct {
	err *NotReplicatedError // nil: there was none since a grant that enough of them had
	at  time.Time
}

// of returns the shortage as the error of a call for the lock of that name that gives up. It is nil
// if the lock asks for no or fewer replicas than too few, or the shortage was long ago.
func (s replicaShortage) of(name string, asks int, why error) error {
	if s.err == nil || asks < s.err.Want || time.Since(s.at) >= longestFailure {
		return nil
	}
	if s.err.Err != nil {
		why = fmt.Errorf("%w; last error: %w", why, s.err.Err)
	}
	return &NotReplicatedError{Name: name, Want: s.err.Want, Got: s.err.Got, Err: why}
}

// replicas are those that must have a grant.
type replicas struct {
	n       int // 0: none
	timeout time.Duration
}
