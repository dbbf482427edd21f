package rlock

import (
	"context"
	"slices"
)

// heldContext is a context that owns a lock. It is a field of its hold, which saves an
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

// Err compares the clocks itself, for every lock that the context owns: in a process that was
// stopped for longer than its lease, this call may come before the watchdog runs.
func (c *heldContext) Err() error {
	for h := c.hold; h != nil; h = h.outer {
		h.grant.check()
	}
	return c.Context.Err()
}

// holdIn returns the innermost hold of l that ctx is under, nil if there is none. A hold counts
// as long as any hold under the same first one is live; those of other readers that share the
// grant do not count. There may be another one around it: of a joined hold the holder's, say.
func holdIn(ctx context.Context, l *Lock) *Hold {
	h, _ := ctx.Value(holdKey{}).(*Hold)
	for ; h != nil; h = h.outer {
		g := h.grant
		if g.lock.client == l.client && g.lock.key == l.key && h.lasts() {
			return h
		}
	}
	return nil
}

// Detach returns ctx without the ownership of any lock. Give it to goroutines
// that contend for the lock like any others; a context that owns a lock makes all
// that use it one owner, inside together. The detached context still ends when the
// lock is lost or unlocked.
//
// Never wait for a goroutine that locks the same name under the detached context
// while you hold the lock, as errgroup's Wait does: it waits for your Unlock, and
// you wait for it. Goroutines that you join inside the lock, and that must exclude
// each other, need a [sync.Mutex] or a lock of another name.
func Detach(ctx context.Context) context.Context {
	return context.WithValue(ctx, holdKey{}, (*Hold)(nil))
}

// HoldCount returns how many live holds of the lock were taken under the same outermost hold as
// ctx, that one included; 0 if ctx does not own the lock, or no longer. It sends nothing.
func (l *Lock) HoldCount(ctx context.Context) int {
	if l.err != nil {
		return 0
	}
	if l.members != nil {
		return l.members.holdCount(ctx)
	}
	if h := holdIn(ctx, l); h != nil && h.grant.check() {
		return h.count()
	}
	return 0
}

// Token returns the fencing token of the grant that ctx owns the lock by, as [Hold.Token]
// does; 0 if ctx does not own the lock, or no longer. It sends nothing.
func (l *Lock) Token(ctx context.Context) int64 {
	if g := l.ownedIn(ctx); g != nil {
		return g.token
	}
	return 0
}

// Owner returns the name in Redis of the owner that ctx is, as [Hold.Owner] does; "" if
// ctx does not own the lock, or no longer. It sends nothing.
func (l *Lock) Owner(ctx context.Context) string {
	if g := l.ownedIn(ctx); g != nil {
		return g.owner
	}
	return ""
}

// ownedIn returns the grant by which ctx owns the lock, nil if there is none. A multi lock
// has no grant of its own.
func (l *Lock) ownedIn(ctx context.Context) *grant {
	if l.err != nil || l.members != nil {
		return nil
	}
	if h := holdIn(ctx, l); h != nil && h.grant.check() {
		return h.grant
	}
	return nil
}

// count returns the number of live holds under the same first hold.
func (h *Hold) count() (n int) {
	first := h.first()
	h.grant.mu.Lock()
	defer h.grant.mu.Unlock()
	for _, other := range h.grant.holds {
		if other.first() == first {
			n++
		}
	}
	return n
}

// lasts reports whether there is any live hold under the same first hold.
func (h *Hold) lasts() bool {
	first := h.first()
	h.grant.mu.Lock()
	defer h.grant.mu.Unlock()
	return !h.unlocked || h.grant.hasUnder(first)
}

// hasUnder reports whether first, or a hold under it, is live. mu is held.
func (g *grant) hasUnder(first *Hold) bool {
	return slices.ContainsFunc(g.holds, func(h *Hold) bool { return h.first() == first })
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
	h, _ := ctx.Value(holdKey{}).(*Hold)
	for ; h != nil; h = h.outer {
		if h.grant.owner == e.Holder {
			e = e.because(e.Err)
			e.own = true
			return e
		}
	}
	return err
}
