package rlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Errors of this package. Match them with [errors.Is]. The text of a returned error also contains the
// name of the lock and the reason.
var (
	// ErrNotAcquired means that another holder has the lock and that the wait, if any, is over. It can
	// also mean that the context had ended before any request was sent. The error is a
	// [*NotAcquiredError], or a [*DeadlockError] for a lock made [WithDeadlockError]. If a context
	// ended, it also matches the error of that context.
	ErrNotAcquired = errors.New("rlock: not acquired")

	// ErrLeaseLost means that the lock was lost: it ended before the holder unlocked it. Stop the work
	// under the lock. The error is a [*LostError]. Check for it before [context.Canceled], because the
	// error of Do matches both if your function returns the error of its context.
	ErrLeaseLost = errors.New("rlock: lease lost")

	// ErrNotHeld means that this hold was already unlocked. From [Lock.Join] it means that the owner in
	// the proof no longer holds the lock.
	ErrNotHeld = errors.New("rlock: not held")

	// ErrUnlocked is matched by the cause of the context of a hold, after this hold was unlocked.
	ErrUnlocked = errors.New("rlock: unlocked")

	// ErrClosed means that the client is closed.
	ErrClosed = errors.New("rlock: client closed")

	// ErrUnavailable means that Redis did not answer, or refused the request. If a lock call returns
	// it, you do not hold the lock. If Unlock returns it, it is not known whether the lock was
	// released, and the lock is released when its lease ends, or earlier.
	ErrUnavailable = errors.New("rlock: redis unavailable")

	// ErrRefused means that the request cannot succeed until somebody corrects the configuration: the user lacks a
	// right, the password is wrong, the address is not that of a Redis server, a client for a single server is
	// connected to a cluster, or the keys of the lock are in different cluster slots. Report it, and do not repeat the
	// call as after other errors. Each such error also matches [ErrUnavailable]. A call that has waited for a while
	// repeats a request refused for want of rights or for the password for 5 s before it returns this error, because the
	// user may be in the process of being changed.
	ErrRefused = errors.New("rlock: refused by redis")

	// ErrKeyConflict means that the key of the lock holds other data, or a lock of another kind. The
	// text of the error says which. The key was not changed. Use another name or prefix, or the kind of
	// lock that the key holds.
	ErrKeyConflict = errors.New("rlock: key conflict")

	// ErrUpgrade means that the context holds a read/write lock for reading only, and that a write lock
	// would wait for this reader. Unlock first, or lock for writing from the start.
	ErrUpgrade = errors.New("rlock: a reader cannot become a writer: unlock first, or lock for writing from the start")

	// ErrInvalidOption means that a name, an option or an argument is invalid. No request was sent, with two
	// exceptions: the clients of a quorum lock turn out to be connected to the same server, or a multi lock
	// has acquired some members before another member turns out to be invalid. Those members are unlocked.
	ErrInvalidOption = errors.New("rlock: invalid option")
)

// LostError says why a lock was lost. When a lock is lost, a *LostError becomes the cause of the
// context that the lock call returned.
type LostError struct {
	Name  string // of the lock
	Owner string // of the lost hold, as [Hold.Owner]
	Token int64  // of the lost hold; 0 without [WithFencing]
	Err   error  // the reason of the loss, with the error of the last failed renewal
}

// Error returns a text with the name of the lock and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("rlock: lock %s: lease lost: %v", quote(e.Name), e.Err)
}

// Is reports whether target is [ErrLeaseLost].
func (e *LostError) Is(target error) bool { return target == ErrLeaseLost }

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.Err }

// NotAcquiredError says that another holder has the lock, or that the context had ended before any
// request was sent.
type NotAcquiredError struct {
	Name   string        // of the lock; for a multi lock, of the member that is held by another holder
	Holder string        // the owner according to the latest answer, as in [State]; for several readers, one of them; "" if it is not known
	Local  bool          // true if the owner belongs to the same client: it is a goroutine of this process, perhaps the caller itself
	TTL    time.Duration // the rest of the holder's lease according to the latest answer; negative if the lease has no end, 0 if there was no answer. Holders renew their leases, so TTL does not predict when the lock will be free
	Err    error         // why the wait ended: the error of the context and its cause; nil if the call did not wait

	writer bool // readers hold the lock, and a writer waits for it
	own    bool // the context of the call owns the lock, by another client
}

// Error returns a text with the name of the lock, the owner, the rest of its lease, and the reason why
// the wait ended.
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

// Is reports whether target is [ErrNotAcquired].
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

// Unwrap returns the reason why the wait ended.
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

// refusedError is an error that also matches [ErrRefused].
type refusedError struct{ error }

func (e refusedError) Is(target error) bool { return target == ErrRefused }
func (e refusedError) Unwrap() error        { return e.error }

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
