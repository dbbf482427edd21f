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

// Hold is one successful acquisition of a lock. Its methods are safe for
// concurrent use, and may be called by any goroutine. It must not be copied.
//
// A failed acquisition returns a nil Hold. Its methods may be called as well: Unlock returns
// [ErrNotHeld], the others return the zero value.
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

// Unlock gives the hold back. The last Unlock of a grant releases the lock, in a single
// round trip; an earlier Unlock corrects the hold count. The hold's context ends,
// with [ErrUnlocked], as soon as every hold taken under it is unlocked as well.
//
// Unlock ignores the end of ctx, uses the values only, and returns within the client's
// UnlockTimeout. The error tells the state of the lock:
//
//   - nil: the lock is free, or held by the remaining holds.
//   - [ErrLeaseLost]: the lock was lost before; the rest on the server is released, and
//     nobody else's lock is touched.
//   - [ErrUnavailable]: Redis did not answer. Renewal has stopped and the
//     release goes on in the background; the lock is free after a lease at the
//     latest.
//   - [ErrNotHeld]: this hold was unlocked before, or is nil. Nothing was sent.
//
// A deferred Unlock should keep the error, as only the error tells the loss:
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

// Leave is [Hold.Unlock] without the release: the last hold of a grant leaves the lock on the server until its
// lease ends. It is for a lock made [WithoutRenewal] that is to keep others out for the whole lease, however
// soon the work is done. [Client.Close] does not wait for a lease that was left, but for one that was simply
// not unlocked. For the last hold nothing is sent.
//
// The errors are those of Unlock, and [ErrInvalidOption] if the lock is renewed: then the hold goes on, and
// must be unlocked.
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
		g.tell(ctx)
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

// Owner returns the name of the owner in Redis, `<client id>:<n>`. All holds of a grant have the same
// owner. A goroutine to which the lock is passed on in memory has the owner of the goroutine before. So
// whoever guards a write by the owner needs a [Script], or a lock [WithoutHandoff], or must have called
// [Hold.Proof].
func (h *Hold) Owner() string {
	if h == nil {
		return ""
	}
	return h.grant.owner
}

// Token returns the fencing token: greater than the tokens of all earlier grants of
// the name, equal for nested holds. Send the token along with every write to a resource
// refusing smaller tokens, and a holder stopped for longer than the
// lease can do no harm there. 0 without [WithFencing].
func (h *Hold) Token() int64 {
	if h == nil {
		return 0
	}
	return h.grant.token
}

// Until returns the present end of the trusted window. Renewals move the end.
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
