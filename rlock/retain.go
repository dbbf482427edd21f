package rlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/lua"
)

// WithRetention makes the client keep the lock in Redis after the last Unlock, for up to d. While the
// lock is kept, the next Lock of the same client needs no round trip. Use it for a process that takes
// the same lock again and again while other clients rarely want it, for example the owner of a
// partition. The default, 0, keeps nothing.
//
// The time d is measured from the first Unlock after which the client keeps the lock, and using the
// lock again does not extend it. When d is over, the client releases the lock in Redis as soon as it is
// not held, and the next Lock acquires it again. Hand-offs in memory can extend the time by the limits
// of [WithHandoff].
//
// Another client of this library does not have to wait for the end of d. The other client recalls the
// lock, which means that it asks for the lock by a message. If the lock is held, the other client
// acquires it at the next Unlock. If the lock is kept but not held, the other client acquires it
// after two to three round trips. A TryLock of the other client also recalls the lock, but returns
// [ErrNotAcquired]. A later TryLock succeeds if the lock has not been taken again in the meantime.
// Clients of Redisson cannot recall the lock, so they wait for up to d, and then until the holder at
// that time unlocks. A client whose message is lost waits equally long.
//
// The client renews a kept lock like a held one. If the process dies, the lock is released when its
// lease ends. [Client.Close] releases it at once. In Redis, the hold count of such a lock is 0, even
// while a goroutine of the client holds it again.
//
// A kept lock has no context that could end. If a kept lock is removed in Redis, for example by DEL,
// FLUSHALL or a failover, the client notices this at the next renewal. Until then, the client continues
// to use the lock in memory, and another client can hold it at the same time. If a hold ends before
// that renewal, its context and its Unlock do not report the loss. The loss is then reported only to
// the Logger, to Losses in [Stats] and to Lost in [Trace]. The next Lock acquires the lock again. If
// the lock has fencing tokens, each Lock gets a token of its own.
//
// The first Lock of a client subscribes to the channel on which other clients ask for the lock. If
// subscribing takes longer than the first hold, the lock is not kept after its Unlock. All goroutines of
// a client should use the same d and the same options for a name. A call with another d or other options
// waits until the lock is released in Redis. A TryLock with another d or other options returns
// ErrNotAcquired, and the client then releases the lock in Redis.
//
// WithRetention is for [Client.NewLock] only. WithRetention cannot be combined with [WithoutRenewal],
// [WithReplicas] or [WithPolling]. A kept lock is passed on in memory even if it is made
// [WithoutHandoff].
func WithRetention(d time.Duration) LockOption {
	return func(o *lockOptions) error {
		if o.terms.retention = d; d < 0 {
			return fmt.Errorf("WithRetention: %v is negative", d)
		}
		return nil
	}
}

// retain refuses WithRetention for locks that cannot be kept.
func (l *Lock) retain() {
	switch {
	case l.terms.retention == 0:
	case l.terms.fair:
		l.refuse(errors.New("WithRetention does not apply to fair locks: they always go to the next in the queue, in whatever process"))
	case l.kind != plainKind:
		l.refuse(errors.New("WithRetention: only plain locks are kept"))
	case l.terms.fixed:
		l.refuse(errors.New("WithRetention: a lock that is kept has to be renewed, WithoutRenewal says not to"))
	case l.terms.replicas.n > 0:
		l.refuse(errors.New("WithRetention: a lock that is kept is taken again without asking replicas, WithReplicas says to"))
	case l.terms.polls:
		l.refuse(errors.New("WithRetention: a lock that is kept is recalled by a message, WithPolling listens to none"))
	}
}

// kept is the state of a lock that its client may keep while none of its goroutines holds the lock: between two holds,
// the grant is parked. A kept lasts for one owner's grants, handed off in memory. queues.mu guards it.
//
//	          the last Unlock                 the server agrees, nobody waits
//	listening ───────────────► the server is asked ───────────────► agreed: each last Unlock parks the
//	                                ▲                               grant, and the next Lock takes it
//	                                └──── a nested hold was counted there ────┘
//	each of them ── recalled, the time is over, a call with other terms, Close ──► over: a parked grant
//	                is released, otherwise the next Unlock releases the lock
type kept struct {
	owner  string
	signal kind.Subscription // brings recalls
	state  keptState
	parked *grant      // the grant while nobody holds it, else nil
	since  time.Time   // when the newest grant was parked
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

// keep listens to recalls if the new grant may be kept, and gives back the grant parked before. queues.mu is held.
func (q *queue) keep(g *grant) {
	switch k := q.kept; {
	case k != nil && k.parked != nil:
		q.giveBack()
	case k == nil:
		q.kept = &kept{owner: g.owner, signal: g.lock.wire.Subscribe(kind.Events{Message: g.lock.hearRecall, Changed: g.lock.missRecall})}
	}
}

// keeps reports whether a grant may be handed off in memory, or parked. queues.mu is held.
func (q *queue) keeps(g *grant) bool {
	return q.kept != nil && q.kept.owner == g.owner && q.kept.state == keptAgreed
}

// park keeps the grant for the next call of this client. queues.mu is held.
func (q *queue) park(g *grant) bool {
	if !q.keeps(g) || !g.passable() {
		return false
	}
	now := time.Now()
	successor := g.passOn(q, g.lock, g.run, now)
	if successor == nil {
		return false
	}
	q.kept.parked, q.kept.since = successor, now
	return true
}

// takeParked returns the parked grant if l can use it, and gives it back otherwise. A kept grant that is held, and
// unusable for l, is recalled: otherwise its holders could go on handing the grant to each other. queues.mu is held.
func (q *queue) takeParked(l *Lock) *grant {
	switch k := q.kept; {
	case k.parked == nil:
		unlike := func(g *grant) bool { return g.owner == k.owner && !l.takes(g.lock) }
		if slices.ContainsFunc(q.grants, unlike) { // also if its last hold was just unlocked
			k.state = keptOver
		}
	case l.takes(k.parked.lock):
		g := k.parked
		k.parked = nil
		return g
	default:
		q.giveBack()
	}
	return nil
}

var errKeptOtherwise = errors.New("this client keeps it for calls with other options than this one, and releases it now: try again")

// keptOtherwise says in the refusal of a TryLock if it is because of g, which was parked and is being given back.
func (g *grant) keptOtherwise(refusal *NotAcquiredError) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lock.terms.retention == 0 || g.state == owned || !g.began.IsZero() {
		return refusal
	}
	refusal.Local = false
	return refusal.because(errKeptOtherwise)
}

// giveBack ends the keeping. A parked grant is released, whoever waits. queues.mu is held.
func (q *queue) giveBack() {
	k := q.kept
	if k == nil {
		return
	}
	g := k.parked
	if k.parked, k.state = nil, keptOver; g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state != owned { // lost before
		return
	}
	g.state, g.followers = released, 0
	g.lock.client.background(func() {
		if err := g.release(context.Background()); errors.Is(err, ErrLeaseLost) {
			k.reportUnseen(g)
		}
	})
}

// keepsNoLonger ends the keeping for the owner of a grant that is over. queues.mu is held.
func (q *queue) keepsNoLonger(g *grant) {
	k := q.kept
	if k == nil || k.owner != g.owner {
		return
	}
	if k.timer != nil {
		k.timer.Stop()
	}
	k.signal.Close()
	q.kept = nil
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.began.IsZero() && g.loss != nil && g.loss.Err == errGone {
		g.lock.client.background(func() { k.reportUnseen(g) })
	}
}

var errGoneKept = fmt.Errorf("%w while it was kept: holds since the renewal before may have run beside another holder's", errGone)

// reportUnseen reports the loss of a grant that nobody held, if a hold has ended since the server was last known to
// have the lock. Whoever had that hold was not told. The keeping is over.
func (k *kept) reportUnseen(g *grant) {
	if confirmed := g.entry.Until().Add(-g.lock.terms.lease); k.since.After(confirmed) { // or a little earlier
		g.reportLost(&LostError{g.lock.name, g.owner, g.token, errGoneKept}, 0)
	}
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
func (g *grant) askAnew() {
	if g.lock.terms.retention == 0 {
		return
	}
	g.lock.withQueue(func(q *queue) {
		if q.keeps(g) {
			q.kept.state = keptAsked
		}
	})
}

// expire is the end of the retention.
func (l *Lock) expire(k *kept) {
	if l.client.begin() != nil { // Close releases the lock
		return
	}
	defer l.client.done()
	l.recall(func(other *kept) bool { return other == k })
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
	l.withQueue(func(q *queue) {
		if q.kept != nil && meant(q.kept) {
			q.giveBack()
		}
	})
}

// showParked adds a parked grant to the record of the client.
func (q *queue) showParked(v *view) {
	if k := q.kept; k != nil && k.parked != nil {
		v.grant(k.parked, record.Keeps, k.since)
	}
}
