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
	OutcomeAcquired    Outcome = "acquired"    // Redis granted the lock, or a reader shares the hold of another reader
	OutcomeNested      Outcome = "nested"      // the context owned the lock already
	OutcomeHandedOff   Outcome = "handed_off"  // a goroutine of the same client passed the lock on in memory, or the client had kept it
	OutcomeBusy        Outcome = "busy"        // another holder had the lock, and the call did not wait or the time of its wait was over
	OutcomeCanceled    Outcome = "canceled"    // the context of the caller was canceled
	OutcomeUnavailable Outcome = "unavailable" // Redis did not answer, refused the request, or had too few replicas; a hold ends with it if this happens to its release
	OutcomeError       Outcome = "error"       // any other error
)

// Outcomes of holds. A hold can also end with [OutcomeUnavailable].
const (
	OutcomeReleased Outcome = "released" // the lock was unlocked: it was released or passed on
	OutcomeLost     Outcome = "lost"     // the lock was lost before it was unlocked; in a [Release], only for multi locks, because Lost in [Trace] reports the others
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
	LossGone   LossCause = "gone"   // Redis no longer has this holder, because the lock was removed or taken over, or was lost in a failover
	LossLapsed LossCause = "lapsed" // the lease was not renewed in time, because Redis did not respond or this process was suspended
	LossFixed  LossCause = "fixed"  // the lease of a lock without renewal has ended
	LossLimit  LossCause = "limit"  // the hold was over a limit of [WithMaxHold] or [WithProgress]
	LossClosed LossCause = "closed" // the client was closed before the lock was unlocked
)

// lossNumber is a number for each cause.
type lossNumber uint8

const (
	gone lossNumber = iota
	lapsed
	fixedOver
	limitOver
	closedUnder
	lossCauses // how many there are
)

func (n lossNumber) name() LossCause {
	return [...]LossCause{LossGone, LossLapsed, LossFixed, LossLimit, LossClosed}[n]
}
