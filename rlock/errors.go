package rlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Errors of this package, to be matched with [errors.Is]; the text of a returned error also
// names the lock and the cause.
var (
	// ErrNotAcquired: somebody else holds the lock and the wait, if any, is over; or the
	// context had ended before any request. The error is a [*NotAcquiredError] and matches
	// the error of the ended context as well.
	ErrNotAcquired = errors.New("rlock: not acquired")

	// ErrLeaseLost: the grant ended against the holder's will. Stop the work under the
	// lock. The error is a [*LostError]. Ask for it before [context.Canceled]: if a function
	// under Do returns the error of its context, the error of Do matches both.
	ErrLeaseLost = errors.New("rlock: lease lost")

	// ErrNotHeld: this hold was unlocked before; of [Lock.Join], the owner of the proof
	// does not hold the lock any more.
	ErrNotHeld = errors.New("rlock: not held")

	// ErrUnlocked is matched by the cause of a held context that ended by the Unlock of the
	// hold.
	ErrUnlocked = errors.New("rlock: unlocked")

	// ErrClosed: the client is closed.
	ErrClosed = errors.New("rlock: client closed")

	// ErrUnavailable: Redis did not answer, or refused to serve. After an acquisition: nothing is
	// held. After an Unlock: the outcome is unknown, and the lock is free after one lease at the
	// latest.
	ErrUnavailable = errors.New("rlock: redis unavailable")

	// ErrKeyConflict: the lock's key holds no lock, or a lock of another kind, as the text
	// says. The key was not touched; use another name or prefix, or the other kind.
	ErrKeyConflict = errors.New("rlock: key conflict")

	// ErrUpgrade: the context holds the lock for reading only, and a writer would wait for this
	// reader. Unlock first, or lock for writing from the start.
	ErrUpgrade = errors.New("rlock: a reader cannot become a writer: unlock first, or lock for writing from the start")

	// ErrInvalidOption: a name, an option or an argument cannot work. No request
	// was sent, unless the clients of a quorum lock turned out to be of one server.
	ErrInvalidOption = errors.New("rlock: invalid option")
)

// LostError is the cause of a held context after the loss of the grant.
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

// NotAcquiredError says that somebody else held a lock, or that the context had ended before any
// request.
type NotAcquiredError struct {
	Name   string        // of the lock; of a multi lock, of the member that somebody else held
	Holder string        // the owner by the newest answer, as in [State]; one of several readers; "" if the server did not tell
	Local  bool          // the owner is of the same client: a goroutine of this process, perhaps the caller itself
	TTL    time.Duration // the rest of the holder's lease by the newest answer; negative without an end, 0 without an answer. A living holder renews the lease: the TTL is not the time until the lock is free
	Err    error         // the end of the wait: the context's error and cause; nil without a wait

	writer bool // readers hold the lock, and a writer waits for it
	own    bool // the context of the call owns the lock, by another client
}

// Error names the lock, the owner, the rest of the lease, and the end of the wait.
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

// shown is an owner unchanged, or quoted if a log or a terminal would not show the bytes as they are:
// anybody may have written the name to the server.
func shown(owner string) string {
	if quoted := strconv.Quote(owner); quoted[1:len(quoted)-1] != owner {
		return quoted
	}
	return owner
}

// Is makes it match [ErrNotAcquired].
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

// Unwrap returns the end of the wait.
func (e *NotAcquiredError) Unwrap() error { return e.Err }

// because is the same refusal, with the end of the wait.
func (e *NotAcquiredError) because(err error) *NotAcquiredError {
	last := *e
	last.Err = err
	return &last
}

// inform returns this refusal, with the reason of err, if err is a refusal without a holder;
// otherwise err. e is nil if no refusal has named a holder.
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

// ended returns why ctx is over, as an error that matches both ctx.Err() and the cause of ctx.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
