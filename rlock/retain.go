package rlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/lua"
)

// WithRetention has the client keep the lock on the server after the last Unlock, for its own next Lock,
// which then needs no round trip. It is for a process that takes the same lock again and again, with
// nobody else asking most of the time: the owner of a partition, say. Zero, the default, keeps nothing.
//
// After d, however often the lock was used meanwhile, the client releases the lock on the server, and the
// next Lock acquires it again. Another client of this library need not wait for that. The other client
// recalls the lock by a message, and gets the lock at the Unlock, or in two to three round trips if
// nobody holds the lock; a TryLock is refused, and a later TryLock succeeds if the lock was not taken
// again by then. Redisson's clients cannot recall the lock: they wait for up to d, and for the hold that
// is live at its end, and so does a client that loses the message.
//
// A kept lock is renewed like a held lock, but no context depends on the lock: after a loss, the next
// Lock acquires it again. If the process dies, the lock is free after its lease. Close releases the lock.
// On the server the hold count is 0, also while somebody holds the lock again. A lock removed on the
// server (DEL, FLUSHALL, a failover that forgets the lock) is noticed at the next renewal, as under a
// hold; until then the client goes on to take the lock in memory, perhaps beside another holder. A hold
// that ends before that renewal is not told, so the loss is then reported to the log, [Stats].Losses and
// [Trace].Lost, and ends no context. Each Lock has a fencing token of its own, if the lock has tokens.
//
// The first Lock starts to listen for recalls, and its Unlock keeps nothing yet if the hold was shorter
// than that takes. All users of a name in a client should agree on d. A call with another d or other
// options waits until the lock is released on the server; such a TryLock is refused, and has the lock
// released. WithRetention is for locks from [Client.NewLock],
// not together with [WithoutRenewal], [WithReplicas] and [WithPolling]. A kept lock is passed on in
// memory, also [WithoutHandoff]. After d the lock may still be passed on until the budget of
// [WithHandoff] is used up.
func WithRetention(d time.Duration) LockOption {
	return func(o *lockOptions) error {
		if o.terms.retention = d; d < 0 {
			return fmt.Errorf("WithRetention: %v is negative", d)
		}
		return nil
	}
}

// retain makes l a kept lock, if its options say so.
func (l *Lock) retain() {
	switch {
	case l.terms.retention == 0:
	case l.terms.fixed:
		l.refuse(errors.New("WithRetention: a lock that is kept has to be renewed, WithoutRenewal says not to"))
	case l.terms.replicas.n > 0:
		l.refuse(errors.New("WithRetention: a lock that is kept is taken again without asking replicas, WithReplicas says to"))
	case l.terms.polls:
		l.refuse(errors.New("WithRetention: a lock that is kept is recalled by a message, WithPolling listens to none"))
	}
}

// kept is the state of a lock that its client may keep while none of its goroutines holds the lock. A
// kept lasts for one owner's grants, handed off in memory. queues.mu guards it.
type kept struct {
	owner  string
	signal kind.Subscription // brings recalls
	state  keptState
	parked *grant      // the grant while nobody holds it, else nil
	since  time.Time   // when the grant was parked
	timer  *time.Timer // ends the keeping; nil before the server has agreed
}

// keptState is the progress of keeping a lock.
type keptState int

const (
	keptListening keptState = iota // the client listens for recalls; the server was not asked yet
	keptAsked                      // the server is asked: for the first time, or again after a nested hold was counted there
	keptAgreed                     // the hold count on the server is 0: a grant may be passed on in memory, or parked
	keptOver                       // recalled, or its time is over: the next Unlock releases the lock
)

// allows reports whether a grant may be handed off in memory, or parked. queues.mu is held.
func (k *kept) allows(g *grant) bool {
	return k != nil && k.owner == g.owner && k.state == keptAgreed
}

// keepOrRelease keeps or releases a grant whose last hold was unlocked and for which handOff has failed.
func (g *grant) keepOrRelease(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.lock.client.opts.UnlockTimeout) // of both requests
	defer cancel()
	kept := false
	defer func() {
		if !kept { // also after a panic: see send
			err = g.release(ctx)
		}
	}()
	kept = g.keepOnServer(ctx) && g.handOff()
	return nil
}

// keepOnServer asks the server whether the lock may be kept.
//
// The outcome must be certain. Otherwise the lock is released: nobody recalls a lock from a client that,
// for all the server knows, does not keep the lock.
func (g *grant) keepOnServer(ctx context.Context) bool {
	l := g.lock
	if !g.passable() || g.entry.Asks() != l.terms.lease || l.client.closed.Load() {
		return false
	}
	k := l.queues.mayKeep(g)
	if k == nil {
		return false
	}
	p := g.retry(min(l.bound, l.client.opts.UnlockTimeout/2)) // the release must have its time as well
	p.Attempt, p.Once = p.Total, true
	a := send(ctx, l, p, func(ctx context.Context, r lua.Runner) (bool, error) {
		return l.wire.(*kind.Plain).Retain(ctx, r, g.owner)
	}, nil)
	if a.Err != nil || !a.Value || a.Doubt || a.Open {
		return false
	}
	return l.queues.agreed(l, k, a.Sent)
}

// mayKeep returns the grant's kept if the server may be asked to agree: a recall would be received, and
// no goroutine of this client waits.
func (qs *queues) mayKeep(g *grant) *kept {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[g.lock.key]
	if q == nil || q.waiting > 0 || q.kept == nil {
		return nil
	}
	k := q.kept
	if k.owner != g.owner || k.state == keptOver || !k.signal.Live() {
		return nil
	}
	k.state = keptAsked
	return k
}

// agreed notes that the server has agreed. The lock is released on the server at the end of the
// retention, counted from the first agreement, however much the lock is used meanwhile: Redisson's
// clients, perhaps waiting, cannot recall the lock. agreed returns false if the lock was recalled or lost
// by now.
func (qs *queues) agreed(l *Lock, k *kept, sent time.Time) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[l.key]; q == nil || q.kept != k || k.state != keptAsked {
		return false
	}
	k.state = keptAgreed
	if k.timer == nil {
		k.timer = time.AfterFunc(time.Until(sent.Add(l.terms.retention)), func() { l.expire(k) })
	}
	return true
}

// askAnew has the last Unlock ask the server again whether the lock may be kept, as the hold
// count there is not 0 any more.
func (qs *queues) askAnew(g *grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[g.lock.key]; q != nil && q.kept.allows(g) {
		q.kept.state = keptAsked
	}
}

// keep listens to recalls if the new grant may be kept, and gives back the grant parked before. queues.mu is held.
func (q *queue) keep(g *grant) {
	switch k := q.kept; {
	case k != nil && k.parked != nil: // without a hold, nothing is told
		g.lock.client.background(k.stop().drop)
	case k == nil:
		q.kept = &kept{owner: g.owner, signal: g.lock.wire.Subscribe(kind.Events{Message: g.lock.hearRecall, Changed: g.lock.missRecall})}
	}
}

// stop ends the keeping, and returns the parked grant, for release. queues.mu is held.
func (k *kept) stop() *grant {
	g := k.parked
	k.parked, k.state = nil, keptOver
	return g
}

var errGoneKept = fmt.Errorf("%w while it was kept: holds since the renewal before may have run beside another holder's", errGone)

// reportUnseen reports the loss of a parked grant, if a hold has ended since the server was last known to
// have the lock. Whoever had that hold was not told.
func (g *grant) reportUnseen() {
	confirmed, used := g.entry.Until().Add(-g.lock.terms.lease), false // or a little earlier
	g.lock.withQueue(func(q *queue) {
		used = q.kept != nil && q.kept.owner == g.owner && q.kept.since.After(confirmed)
	})
	if used {
		g.reportLost(&LostError{g.lock.name, g.owner, g.token, errGoneKept}, 0)
	}
}

// expire is the end of the retention.
func (l *Lock) expire(k *kept) {
	if l.client.begin() != nil { // Close releases the lock
		return
	}
	defer l.client.done()
	l.recall(func(other *kept) bool { return other == k })
}

// takeParked returns the parked grant if l can use it, and gives it back otherwise. A kept grant that is held, and
// unusable for l, is recalled: otherwise its holders could go on handing the grant to each other. queues.mu is held.
func (q *queue) takeParked(l *Lock) (mine *grant, givenBack bool) {
	k := q.kept
	if k.parked == nil {
		unlike := func(g *grant) bool { return g.owner == k.owner && !l.takes(g.lock) }
		if slices.ContainsFunc(q.grants, unlike) { // also if its last hold was just unlocked
			k.state = keptOver
		}
		return nil, false
	}
	if g := k.parked; l.takes(g.lock) {
		k.parked = nil
		return g, false
	}
	l.client.background(k.stop().forgo)
	return nil, true
}

var errKeptOtherwise = errors.New("this client keeps it for calls with other options than this one, and releases it now: try again")

// keepsNoLonger ends the keeping for the owner of a grant that is over. queues.mu is held.
func (q *queue) keepsNoLonger(g *grant) {
	k := q.kept
	if k.owner != g.owner {
		return
	}
	if k.timer != nil {
		k.timer.Stop()
	}
	k.signal.Close()
	q.kept = nil
}

// hearRecall gets the messages on the channel of the client. A granting message is for a waiter, all
// others are recalls.
func (l *Lock) hearRecall(payload string) {
	if m := lua.ReadMessage(payload); !m.Granted {
		l.recall(func(k *kept) bool { return k.owner == m.Owner })
	}
}

// missRecall is called when a recall may have been missed.
func (l *Lock) missRecall() {
	l.recall(func(k *kept) bool { return k.state != keptListening })
}

// recall makes the client release the lock, now or with the next Unlock.
func (l *Lock) recall(meant func(*kept) bool) {
	var g *grant
	l.withQueue(func(q *queue) {
		if k := q.kept; k != nil && meant(k) {
			g = k.stop()
		}
	})
	if g != nil {
		g.forgo()
	}
}

// park keeps the grant for the next call of this client. queues.mu is held.
func (g *grant) park(q *queue, now time.Time) bool {
	successor := g.passOn(q, g.lock, g.run, now)
	if successor == nil {
		return false
	}
	q.kept.parked, q.kept.since = successor, now
	return true
}
