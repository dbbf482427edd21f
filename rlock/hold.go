package rlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// Hold is one successful acquisition of a lock. Its methods are safe for
// concurrent use, and may be called by any goroutine. It must not be copied.
type Hold struct {
	_      noCopy
	grant  *grant
	lock   *Lock // whose options the hold has; waiters take over each other's grants
	outer  *Hold // innermost hold, of any lock, that this one was taken under
	parent *Hold // hold of the same grant that this one was taken under
	scope  heldContext
	cancel context.CancelCauseFunc

	// Guarded by grant.mu.
	counts   bool // it is an acquisition of its own: see Lock.ends
	unlocked bool
	children int // holds with this parent that are not over
}

// noCopy lets go vet find copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Unlock gives the hold back. The last one of a grant releases the lock, in one
// round trip; an earlier one corrects the hold count. The hold's context ends,
// with [ErrUnlocked], as soon as every hold taken under it is unlocked as well.
//
// Unlock ignores the end of ctx, of which only the values are used, and returns
// within the client's UnlockTimeout. The error says what became of the lock:
//
//   - nil: it is free, or held by the holds that remain.
//   - [ErrLeaseLost]: it was lost before; what was left of it is released, and
//     nobody else's lock is touched.
//   - [ErrUnavailable]: Redis did not answer. Renewal has stopped and the
//     release goes on in the background; the lock is free after one lease at the
//     latest.
//   - [ErrNotHeld]: this hold was unlocked before, or is nil. Nothing was sent.
//
// A deferred Unlock should keep the error, as only that says that the lock was lost:
//
//	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
func (h *Hold) Unlock(ctx context.Context) error {
	if h == nil { // the acquisition has failed
		return ErrNotHeld
	}
	if ctx == nil { // a panic would leave a lock that is renewed and that nobody can unlock
		ctx = context.Background()
	}
	g := h.grant
	g.check()
	left, ended, err := g.remove(h)
	switch {
	case err != nil:
		if left == 0 && errors.Is(err, ErrLeaseLost) {
			g.releaseRest(context.WithoutCancel(ctx))
		}
		return err
	case left > 0:
		err := h.uncount(ctx)
		if ended > 0 {
			g.countReleased(ctx, ended, time.Now(), nil)
		}
		return err
	case g.handOff():
		end := time.Now()
		if g.run.count == 0 { // later hand-offs of a run follow each other too quickly for it
			runtime.Gosched() // let the new holder run at once: others wait for it, not for this goroutine
		}
		g.countReleased(ctx, ended, end, nil)
		return nil
	case g.lock.terms.retention > 0:
		return g.keepOrRelease(ctx, ended)
	}
	return g.release(context.WithoutCancel(ctx), ended)
}

// uncount tells the server that the grant has one hold less.
func (h *Hold) uncount(ctx context.Context) error {
	g := h.grant
	if h.parent == nil && h.covered() { // the server does not count readers that join others
		return nil
	}
	// The count is only shown: that it could not be corrected keeps nobody out,
	// and the next request corrects it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.lock.client.opts.UnlockTimeout)
	defer cancel()
	err := g.setCount(ctx, g.retry(g.lock.terms.lease))
	switch {
	case errors.Is(err, ErrLeaseLost):
		return err
	case err != nil && !g.Exclusive(): // but a writer that has become a reader must be told as one
		g.correct()
	}
	return nil
}

// do runs fn with the context of the hold, and unlocks. If there is no hold, it returns failed.
func (h *Hold) do(held context.Context, failed error, fn func(context.Context) error) (err error) {
	if failed != nil {
		return failed
	}
	defer func() { err = withUnlock(err, h.Unlock(held)) }()
	return fn(held)
}

// withUnlock joins the errors of an Unlock to the error of the work under the hold, unless the
// work has returned them as the cause of its context.
func withUnlock(work error, unlock ...error) error {
	for _, err := range unlock {
		if err != nil && !contains(work, err) {
			work = errors.Join(work, err)
		}
	}
	return work
}

// contains reports whether part is in the tree of err. Unlike errors.Is it asks no error
// for its opinion: one that says yes to everything must not hide a loss.
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

// Owner returns the name of the owner in Redis, `<client id>:<n>`. All holds of
// a grant have the same.
func (h *Hold) Owner() string { return h.grant.owner }

// Token returns the fencing token: greater than that of every earlier grant of
// the name, equal for nested holds. Send it along with every write to a resource
// that refuses smaller ones, and a holder that was stopped for longer than its
// lease can do no harm there. 0 without [WithFencing].
func (h *Hold) Token() int64 { return h.grant.token }

// Until returns the end of the trusted window as it stands. Renewals move it.
func (h *Hold) Until() time.Time { return h.grant.entry.Until() }

// unlocked is the cause of the context of a hold that was unlocked. It is that hold.
type unlocked Hold

func (u *unlocked) Error() string {
	return fmt.Sprintf("rlock: lock %s was unlocked: go on with the context that was passed to Lock", quote(u.grant.lock.name))
}

// Is makes it match [ErrUnlocked].
func (u *unlocked) Is(target error) bool { return target == ErrUnlocked }
