package rlock

import (
	"errors"
	"fmt"
	"time"
)

// ErrNotReplicated means that too few replicas have acknowledged the lock in time, see [WithReplicas].
// You do not hold the lock, and the client releases it in the background. The error is a
// [*NotReplicatedError].
var ErrNotReplicated = errors.New("rlock: not replicated")

// NotReplicatedError says how many replicas have acknowledged the lock.
type NotReplicatedError struct {
	Name      string // of the lock
	Want, Got int
	Err       error // why the number of replicas is not known, and Got is then 0; or why the wait for a later attempt ended
}

// Error returns a text with the name of the lock, Want and Got, and Err if it is not nil.
func (e *NotReplicatedError) Error() string {
	text := fmt.Sprintf("rlock: lock %s: not replicated: %d of %d replicas have acknowledged", quote(e.Name), e.Got, e.Want)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is reports whether target is [ErrNotReplicated].
func (e *NotReplicatedError) Is(target error) bool { return target == ErrNotReplicated }

// Unwrap returns the reason why the number is not known.
func (e *NotReplicatedError) Unwrap() error { return e.Err }

// WithReplicas makes a lock call succeed only if at least n replicas have acknowledged the lock within
// timeout. If fewer have, the client releases the lock in the background, and the call returns
// [ErrNotReplicated] at once, even if it could wait longer. A new call that follows at once can find
// the lock held, because the release is still in progress. timeout must be from 1 ms to a tenth of the
// lease, and no more than 0.5 s. The ReadTimeout of the go-redis client must be longer than timeout.
//
// The client sends the command WAIT together with the request for the lock, so the call takes only the
// additional time that the replicas need to answer. If the lock is held, WAIT is sent as well, so an
// attempt can take up to timeout while replicas are down. The waiting calls of a client do not send
// their requests at the same time, but one after the other. So while replicas are down, the last of
// several waiting calls learns this only after as many timeouts as there are calls, or when its context
// ends. If an acquisition of this client has failed in this way in the last seconds, all calls that
// give up return that error. If the context of a call ends before timeout, the call can end without the
// answer of the replicas. The error of such a call is [ErrUnavailable].
//
// Only acquiring the lock waits for replicas. Renewals, nested lock calls and Unlock do not wait for them.
//
// WithReplicas makes it unlikely that a failover loses a lock, but not impossible. In one case, a
// failover promotes a replica that has not acknowledged the lock. To prevent this, n must be the number
// of all replicas, or so large that no failover promotes a replica without the lock. In the other case,
// if a replica had no link to its master for two thirds of the lease or longer, the lock may have
// expired on this replica. If these cases matter to you, use [NewQuorumLock].
//
// WithReplicas is for [Client.NewLock] only. If a nested lock call asks for more replicas than the
// outermost call, it returns [ErrInvalidOption].
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
