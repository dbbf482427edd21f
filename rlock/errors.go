package rlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Errors of this package. Match them with [errors.Is]; the text of what is
// returned also names the lock and the cause.
var (
	// ErrNotAcquired: somebody else holds the lock and the wait, if there was
	// one, is over; or the context had ended before anything was asked. The error
	// is a [*NotAcquiredError] and matches the error of the context that ended the
	// wait as well.
	ErrNotAcquired = errors.New("rlock: not acquired")

	// ErrLeaseLost: the grant ended against the holder's will. Stop working on
	// what it protects. The error is a [*LostError].
	ErrLeaseLost = errors.New("rlock: lease lost")

	// ErrNotHeld: this hold was unlocked before; of [Lock.Join], the owner of the proof
	// does not hold the lock any more.
	ErrNotHeld = errors.New("rlock: not held")

	// ErrUnlocked is matched by the cause of a held context that ended because its
	// hold was unlocked.
	ErrUnlocked = errors.New("rlock: unlocked")

	// ErrClosed: the client is closed.
	ErrClosed = errors.New("rlock: client closed")

	// ErrUnavailable: Redis did not answer, or refused to serve. Of an
	// acquisition it says that nothing is held; of an Unlock, that the outcome
	// is unknown and the lock is free after one lease at the latest.
	ErrUnavailable = errors.New("rlock: redis unavailable")

	// ErrKeyConflict: the lock's key holds something that is not a lock, or a lock of
	// another kind, as the text says. It was not touched; use another name or prefix,
	// or that kind.
	ErrKeyConflict = errors.New("rlock: key conflict")

	// ErrUpgrade: the context holds the lock for reading only, and would wait for
	// itself. Unlock it first, or lock for writing from the start.
	ErrUpgrade = errors.New("rlock: a reader cannot become a writer: unlock first, or lock for writing from the start")

	// ErrInvalidOption: a name, an option or an argument cannot work. No request
	// was sent, unless the clients of a quorum lock turned out to be of one server.
	ErrInvalidOption = errors.New("rlock: invalid option")
)

// LostError is the cause of a held context whose grant was lost.
type LostError struct {
	Name  string // of the lock
	Owner string // of the lost grant, as [Hold.Owner]
	Token int64  // of the lost grant, 0 without fencing
	Err   error  // why: the watchdog's reason and the last failed renewal
}

// Error names the lock and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("rlock: lock %s: lease lost: %v", quote(e.Name), e.Err)
}

// Is makes it match [ErrLeaseLost].
func (e *LostError) Is(target error) bool { return target == ErrLeaseLost }

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.Err }

// NotAcquiredError says that a lock was held by somebody else, or that nobody asked for it
// because the context had ended.
type NotAcquiredError struct {
	Name   string        // of the lock; of a multi lock, of the member that somebody else held
	Holder string        // the owner that held it when it was last seen, as in [State]; one of several readers; "" if the server did not tell
	Local  bool          // that owner is of the same client: a goroutine of this process, perhaps the caller itself
	TTL    time.Duration // what was left of the holder's lease when it was last seen; negative if it had no end, 0 if it was not seen. A living holder renews it: it is not when the lock will be free
	Err    error         // what ended the wait: the context's error and cause; nil if there was no wait

	writer bool // readers hold the lock, and a writer waits for it
	own    bool // the context of the call owns the lock, by another client
}

// Error names the lock, its owner, what is left of its lease, and what ended the wait.
func (e *NotAcquiredError) Error() string {
	text := fmt.Sprintf("rlock: lock %s: not acquired", quote(e.Name))
	by := ""
	if e.Holder != "" {
		by = " by " + shown(e.Holder)
	}
	switch {
	case e.TTL > 0:
		text += fmt.Sprintf(": held%s, with %v of the lease left", by, e.TTL.Round(time.Millisecond))
	case e.TTL < 0:
		text += fmt.Sprintf(": held%s without a TTL, so it does not end by itself: force-unlock it", by)
	case by != "":
		text += ": held" + by
	}
	if e.writer {
		text += ": a writer waits for it, before new readers"
	}
	if e.own {
		text += ", which the context of this call owns by another client: nested calls need locks of one client"
	}
	if e.Local {
		text += ", another call of this client"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// shown is an owner as it is, or quoted if a log or a terminal would not show it so: anybody may
// have put it on the server.
func shown(owner string) string {
	if quoted := strconv.Quote(owner); quoted[1:len(quoted)-1] != owner {
		return quoted
	}
	return owner
}

// Is makes it match [ErrNotAcquired].
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

// Unwrap returns what ended the wait.
func (e *NotAcquiredError) Unwrap() error { return e.Err }

// because is the same refusal, with what ended the wait.
func (e *NotAcquiredError) because(err error) *NotAcquiredError {
	last := *e
	last.Err = err
	return &last
}

// inform returns this refusal, with the reason of err, if err is a refusal that names no
// holder; otherwise err. e is nil if no refusal has named one.
func (e *NotAcquiredError) inform(err error) error {
	if later, ok := err.(*NotAcquiredError); ok && e != nil && later.Holder == "" {
		return e.because(later.Err)
	}
	return err
}

// lockError is any other failure of an operation on a lock.
type lockError struct {
	name string
	kind error // a sentinel of this package
	err  error // may be nil
}

func (e *lockError) Error() string {
	text := fmt.Sprintf("rlock: lock %s: %s", quote(e.name), strings.TrimPrefix(e.kind.Error(), "rlock: "))
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

func (e *lockError) Unwrap() []error {
	if e.err == nil {
		return []error{e.kind}
	}
	return []error{e.kind, e.err}
}

// quote shows a name, which may be 64 KiB long or binary, in an error.
func quote(name string) string {
	const most = 100
	if len(name) > most {
		return strconv.Quote(name[:most]) + "…"
	}
	return strconv.Quote(name)
}

// ended returns why ctx is over, as an error that matches both ctx.Err() and
// its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
