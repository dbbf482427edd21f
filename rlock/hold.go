package rlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/go-rlock/rlock/internal/request"
)

// Hold is one successful acquisition of a lock. Its methods are safe for concurrent use. A Hold must
// not be copied.
//
// A lock call that fails returns a nil Hold. You can call the methods of a nil Hold: Unlock returns
// [ErrNotHeld], and the other methods return the zero value.
type Hold struct {
	_      noCopy
	grant  *grant
	lock   *Lock // with the options of the hold; waiters take over each other's grants
	outer  *Hold // innermost hold around this hold, of any lock
	parent *Hold // innermost hold around this hold, of the same grant
	scope  heldContext
	cancel context.CancelCauseFunc

	// Guarded by grant.mu.
	counts   bool // an acquisition that is not over: see waiter.ends
	ends     bool // the acquisition has ended with this hold: see Hold.ended
	unlocked bool
	children int // holds with this parent, and not over
	at       int // index in grant.holds
	under    int // of an outermost hold: how many holds under it are live, with itself
}

// noCopy lets go vet find copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Unlock ends the hold. If holds are nested, the last Unlock releases the lock, and each earlier Unlock
// only updates the hold count in Redis. Each Unlock takes one round trip, except a last Unlock that
// passes the lock on in memory, which takes none. The context of the hold ends, with the cause
// [ErrUnlocked], when this hold and all holds that were taken under its context are unlocked.
//
// Unlock works even if ctx has ended, because it uses only the values of ctx. It returns within the
// client's UnlockTimeout. Its error says what happened to the lock:
//
//   - nil means that the lock was released, or that other holds still hold it.
//   - [ErrLeaseLost] means that the lock was lost before. If another owner holds the lock now, that
//     owner is not affected.
//   - [ErrUnavailable] means that Redis did not answer. The lease is no longer renewed, and the client
//     repeats the release in the background. The lock is released when its lease ends, or earlier.
//   - [ErrNotHeld] means that this hold was already unlocked, or that it is nil. Nothing was sent.
//
// Do not discard the error of a deferred Unlock, because it is the only error that reports a lost lock:
//
//	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
func (h *Hold) Unlock(ctx context.Context) error {
	if h == nil { // the acquisition has failed
		return ErrNotHeld
	}
	if ctx == nil { // a panic would leave a renewed lock, and nobody to unlock
		ctx = context.Background()
	}
	g := h.grant
	g.check()
	left, err := g.remove(h)
	if err != nil {
		if left == 0 && errors.Is(err, ErrLeaseLost) {
			g.releaseRest(context.WithoutCancel(ctx))
		}
		return err
	}
	end, failed := time.Time{}, error(nil)
	defer func() { h.ended(ctx, end, failed) }() // last, as nobody may wait for the user's functions
	switch {
	case left > 0:
		return h.uncount(ctx)
	case g.handOff():
		end = time.Now()
		if g.run.count == 0 { // later hand-offs of a run follow too quickly for a pause
			runtime.Gosched() // let the new holder run at once: waiters need the new holder, not this goroutine
		}
		return nil
	case g.lock.terms.retention > 0:
		failed = g.keepOrRelease(ctx)
	default:
		failed = g.release(context.WithoutCancel(ctx))
	}
	return failed
}

// Leave ends the hold like [Hold.Unlock], but does not release the lock: it stays in Redis until its
// lease ends. Use it with a lock made [WithoutRenewal] that must keep other clients out for the whole
// lease, even if the work ends sooner. Leave of the last hold sends nothing to Redis. [Client.Close]
// does not wait for a lock that was left.
//
// The errors are the errors of Unlock. If the lock is made with renewal, the error is
// [ErrInvalidOption], and you still have to unlock the hold.
func (h *Hold) Leave(ctx context.Context) error {
	switch {
	case h == nil:
		return ErrNotHeld
	case !h.grant.lock.terms.fixed:
		return &lockError{h.grant.lock.name, ErrInvalidOption, errors.New("only a lock WithoutRenewal can be left: unlock it")}
	case ctx == nil: // see Unlock
		ctx = context.Background()
	}
	g := h.grant
	g.check()
	left, err := g.remove(h)
	switch {
	case err != nil:
		return err
	case left > 0:
		err = h.uncount(ctx)
	default:
		g.entry.Stop()
		g.finish()
	}
	h.ended(ctx, time.Now(), nil)
	return err
}

// uncount tells the server: the grant has a hold less.
func (h *Hold) uncount(ctx context.Context) error {
	g := h.grant
	if h.parent == nil && h.covered() { // the server does not count readers joined in memory
		return nil
	}
	// The count is only shown: a wrong count keeps nobody out, and the next request corrects the count.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.lock.client.opts.UnlockTimeout)
	defer cancel()
	err := g.recount(ctx, request.Policy{})
	switch {
	case errors.Is(err, ErrLeaseLost):
		return err
	case err != nil && !g.Exclusive(): // but the server must learn of a writer's downgrade
		g.tell(ctx, false)
	}
	return nil
}

// do runs fn with the context of the hold, and unlocks. Without a hold, do returns failed.
func (h *Hold) do(held context.Context, failed error, fn func(context.Context) error) (err error) {
	if failed != nil {
		return failed
	}
	defer func() { err = withUnlock(err, h.Unlock(held)) }()
	return fn(held)
}

// withUnlock joins the errors of an Unlock to the error of the work under the hold, unless the work has
// returned the same error, as the cause of the context.
func withUnlock(work error, unlock ...error) error {
	for _, err := range unlock {
		if err != nil && !contains(work, err) {
			work = errors.Join(work, err)
		}
	}
	return work
}

// contains reports whether part is in the tree of err. Unlike errors.Is, contains asks no error
// for an opinion: an error equal to everything must not hide a loss.
func contains(err, part error) bool {
	if err == part {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return contains(e.Unwrap(), part)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return contains(err, part) })
	}
	return false
}

// Owner returns the name of the owner in Redis, `<client id>:<n>`. Nested holds have the same owner. If
// the lock is passed on in memory, the next goroutine also has the same owner. So the owner alone
// cannot protect a write from an earlier holder. To protect a write by the owner, use a [Script], make
// the lock [WithoutHandoff], or call [Hold.Proof].
func (h *Hold) Owner() string {
	if h == nil {
		return ""
	}
	return h.grant.owner
}

// Token returns the fencing token of the hold. It is greater than the tokens of all earlier
// acquisitions of the name, and nested holds have the same token. A reader of a read/write lock gets the
// token of the latest writer instead. Send the token along with every write
// to a resource that rejects smaller tokens. A holder that was suspended for longer than its lease can
// then do no harm to that resource. Token returns 0 if the lock is made without [WithFencing].
func (h *Hold) Token() int64 {
	if h == nil {
		return 0
	}
	return h.grant.token
}

// Until returns the time until which no other client can acquire the lock, even if the lease is not
// renewed again. Each renewal moves this time forward. The context of the hold ends a tenth of the
// lease before it.
func (h *Hold) Until() time.Time {
	if h == nil {
		return time.Time{}
	}
	return h.grant.entry.Until()
}

// unlocked is the cause of the context of an unlocked hold: the hold itself.
type unlocked Hold

func (u *unlocked) Error() string {
	return fmt.Sprintf("rlock: lock %s was unlocked: go on with the context that was passed to Lock", quote(u.grant.lock.name))
}

// Is makes the cause match [ErrUnlocked].
func (u *unlocked) Is(target error) bool { return target == ErrUnlocked }
