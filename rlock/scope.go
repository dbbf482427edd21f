package rlock

import (
	"context"
)

// heldContext is a context that owns a lock. The context is a field of the hold: this saves an
// allocation.
type heldContext struct {
	context.Context
	hold *Hold
}

// holdKey is the key of a context's innermost hold, of any lock.
type holdKey struct{}

// Value returns the innermost hold for holdKey.
func (c *heldContext) Value(key any) any {
	if key == (holdKey{}) {
		return c.hold
	}
	return c.Context.Value(key)
}

// Err compares the clocks for every lock that the context owns: in a process back from standing
// still for longer than a lease, this call may come before the watchdog runs.
func (c *heldContext) Err() error {
	for h := c.hold; h != nil; h = h.outer {
		h.grant.check()
	}
	return c.Context.Err()
}

// holdIn returns the innermost hold of l around ctx, or nil. A hold counts as long as any hold under
// the same first hold is live; holds of readers in the same grant do not count. There may be
// a further hold around: the holder's around a joined hold, say.
func holdIn(ctx context.Context, l *Lock) *Hold { return innermost(ctx).of(l) }

// innermost returns the innermost hold around ctx, of any lock, or nil.
func innermost(ctx context.Context) *Hold {
	h, _ := ctx.Value(holdKey{}).(*Hold)
	return h
}

// of is holdIn for a context whose innermost hold is h.
func (h *Hold) of(l *Lock) *Hold {
	for ; h != nil; h = h.outer {
		g := h.grant
		if g.lock.client == l.client && g.lock.key == l.key && h.count() > 0 {
			return h
		}
	}
	return nil
}

// Detach returns a context that has the values and the end of ctx, but does not own any lock.
// Goroutines that share a context that owns a lock are one owner, and can hold the lock together. A
// goroutine with a detached context waits for the lock like any other caller. The detached context
// still ends when the lock is lost or unlocked.
//
// Do not wait for such a goroutine while you hold the lock, for example with errgroup's Wait. The
// goroutine waits for your Unlock while you wait for the goroutine. If goroutines that you wait for
// must exclude each other, use a [sync.Mutex] or a lock of another name.
func Detach(ctx context.Context) context.Context {
	return context.WithValue(ctx, holdKey{}, (*Hold)(nil))
}

// HoldCount returns the number of nested holds of the lock that are not unlocked, including the
// outermost hold. It returns 0 if ctx does not own the lock, or if the lock has ended. HoldCount sends
// nothing to Redis.
func (l *Lock) HoldCount(ctx context.Context) int {
	if l.err != nil {
		return 0
	}
	if h := holdIn(ctx, l); h != nil && h.grant.check() {
		return h.count()
	}
	return 0
}

// Token returns the fencing token of the lock that ctx owns, see [Hold.Token]. It returns 0 if ctx does
// not own the lock, or if the lock has ended. Token sends nothing to Redis.
func (l *Lock) Token(ctx context.Context) int64 {
	if g := l.ownedIn(ctx); g != nil {
		return g.token
	}
	return 0
}

// Owner returns the name of the owner in Redis if ctx owns the lock, see [Hold.Owner]. It returns "" if
// ctx does not own the lock, or if the lock has ended. Owner sends nothing to Redis.
func (l *Lock) Owner(ctx context.Context) string {
	if g := l.ownedIn(ctx); g != nil {
		return g.owner
	}
	return ""
}

// ownedIn returns ctx's grant of the lock, or nil.
func (l *Lock) ownedIn(ctx context.Context) *grant {
	if l.err != nil {
		return nil
	}
	if h := holdIn(ctx, l); h != nil && h.grant.check() {
		return h.grant
	}
	return nil
}

// count returns the number of live holds under the same first hold.
func (h *Hold) count() int {
	h.grant.mu.Lock()
	defer h.grant.mu.Unlock()
	return h.first().under
}

// count returns the number of live holds of the grant.
func (g *grant) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.holds)
}

// ownHolder adds to a refusal that the context of the call owns the lock, by another client.
func ownHolder(ctx context.Context, err error) error {
	e, ok := err.(*NotAcquiredError)
	if !ok || e.Holder == "" || e.Local {
		return err
	}
	for h := innermost(ctx); h != nil; h = h.outer {
		if h.grant.owner == e.Holder {
			e = e.because(e.Err)
			e.own = true
			return e
		}
	}
	return err
}
