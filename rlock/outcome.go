package rlock

// Kind is a kind of lock, as used in [Trace] and [Stats].
type Kind string

// Kinds of lock. An option such as [WithFencing] does not change the kind.
const (
	KindPlain  Kind = "plain"
	KindFair   Kind = "fair"
	KindRead   Kind = "read"
	KindWrite  Kind = "write"
	KindQuorum Kind = "quorum"
	KindMulti  Kind = "multi"
)

// kindNumber is a number for each kind.
type kindNumber uint8

const (
	plainKind kindNumber = iota
	fairKind
	readKind
	writeKind
	quorumKind
	multiKind
	kinds // how many there are
)

func (n kindNumber) name() Kind {
	return [...]Kind{KindPlain, KindFair, KindRead, KindWrite, KindQuorum, KindMulti}[n]
}

// Outcome says how a lock call, or a hold, has ended.
type Outcome string

// Outcomes of lock calls. Each call of Lock, TryLock or TryLockFor has one of these outcomes, and so
// has each call of the functions that use them, such as Do.
const (
	OutcomeAcquired    Outcome = "acquired"    // the server granted the lock, or a reader joined another one
	OutcomeNested      Outcome = "nested"      // the context owned the lock already
	OutcomeHandedOff   Outcome = "handed_off"  // a goroutine of the same client passed the lock on in memory, or the client had kept it
	OutcomeBusy        Outcome = "busy"        // somebody else held it, and there was no wait, or its time was over
	OutcomeCanceled    Outcome = "canceled"    // the caller's context was cancelled
	OutcomeUnavailable Outcome = "unavailable" // Redis did not answer, refused to serve, or had too few replicas; also how a hold ends if that happens to its release
	OutcomeError       Outcome = "error"       // any other error
)

// Outcomes of holds. A hold can also end with [OutcomeUnavailable].
const (
	OutcomeReleased Outcome = "released" // unlocked: free, or passed on
	OutcomeLost     Outcome = "lost"     // it was lost before; in a [Release] that is told of a multi lock only, of others by Lost
)

// outcomeNumber is a number for each outcome of calls.
type outcomeNumber uint8

const (
	acquiredOutcome outcomeNumber = iota
	nestedOutcome
	handedOffOutcome
	busyOutcome
	canceledOutcome
	unavailableOutcome
	errorOutcome
	outcomes // how many there are
)

func (n outcomeNumber) name() Outcome {
	return [...]Outcome{
		OutcomeAcquired, OutcomeNested, OutcomeHandedOff, OutcomeBusy, OutcomeCanceled, OutcomeUnavailable, OutcomeError,
	}[n]
}

// LossCause says why a lock was lost.
type LossCause string

// Causes of losses.
const (
	LossGone   LossCause = "gone"   // the server knows of no such holder: the lock was removed or taken over, or a failover forgot it
	LossLapsed LossCause = "lapsed" // it was not renewed in time: Redis was silent, or this process stood still
	LossFixed  LossCause = "fixed"  // a lease without renewal was over
	LossClosed LossCause = "closed" // the client was closed before the lock was unlocked
)

// lossNumber is a number for each cause.
type lossNumber uint8

const (
	gone lossNumber = iota
	lapsed
	fixedOver
	closedUnder
	lossCauses // how many there are
)

func (n lossNumber) name() LossCause {
	return [...]LossCause{LossGone, LossLapsed, LossFixed, LossClosed}[n]
}
