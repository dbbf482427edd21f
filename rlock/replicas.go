package rlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/kind"
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
// is a renewal. This makes a grant that a failover forgets unlikely, not
// impossible, as another replica than those that answered may take over; n must be
// all of them, or more than the Sentinels or the cluster may choose wrongly from.
// What then remains is what [NewQuorumLock] is for.
//
// Only for [Client.NewLock]; below a grant for which fewer were asked, it is
// [ErrInvalidOption].
func WithReplicas(n int, timeout time.Duration) LockOption {
	return func(l *Lock) {
		l.replicas = replicas{n, timeout}
		if n < 1 || timeout < time.Millisecond {
			l.refuse(fmt.Errorf("WithReplicas: %d within %v: at least one, and a millisecond", n, timeout))
		}
	}
}

// replicaShortage is the newest grant to the waiters of a queue that too few replicas had.
// queues.mu guards it.
type replicaShortage struct {
	err *NotReplicatedError // nil: there was none since a grant that enough of them had
	at  time.Time
}

// of returns the shortage as the error of a call for l that gives up; nil if l asks for no or fewer
// replicas, or it was long ago.
func (s replicaShortage) of(l *Lock, why error) error {
	if s.err == nil || l.replicas.n < s.err.Want || time.Since(s.at) >= longestFailure {
		return nil
	}
	if s.err.Err != nil {
		why = fmt.Errorf("%w; last error: %w", why, s.err.Err)
	}
	return &NotReplicatedError{Name: l.name, Want: s.err.Want, Got: s.err.Got, Err: why}
}

// granted notes that l was granted: as many replicas as it asks for are there.
func (s *replicaShortage) granted(l *Lock) {
	if s.err != nil && l.replicas.n >= s.err.Want {
		*s = replicaShortage{}
	}
}

// replicas are those that must have a grant.
type replicas struct {
	n       int // 0: none
	timeout time.Duration
}

// replicated adds what l.replicas asks for to its plain lock.
func (l *Lock) replicated(p *kind.Plain) kind.Kind {
	// An attempt may ask twice, if the server has to learn the script.
	if most := min(l.lease/10, 500*time.Millisecond); l.replicas.timeout > most && l.err == nil {
		l.refuse(fmt.Errorf("WithReplicas: %v is too long for this lease: at most %v", l.replicas.timeout, most))
	}
	if most := readTimeout(l.client.server.RDB); most > 0 && l.replicas.timeout >= most && l.err == nil {
		l.refuse(fmt.Errorf("WithReplicas: %v is too long for the ReadTimeout of the client, which is %v: go-redis would give the answer up", l.replicas.timeout, most))
	}
	return &kind.Replicated{Plain: p, Want: l.replicas.n, Timeout: l.replicas.timeout}
}

// readTimeout is how long a client waits for an answer; 0 if that is not bounded, or not known.
func readTimeout(rdb redis.UniversalClient) time.Duration {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return max(rdb.Options().ReadTimeout, 0)
	case *redis.ClusterClient:
		return max(rdb.Options().ReadTimeout, 0)
	}
	return 0
}
