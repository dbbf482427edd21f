package rlock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// Lock is a lock with a name, made by [Client.NewLock] or the constructor of another kind. It has no
// state of its own. Its methods are safe for concurrent use.
type Lock struct {
	client *Client
	name   string
	err    error // why no method works

	terms   terms
	purpose string     // shown by inspect and top
	kind    kindNumber // for counting calls
	joined  bool       // by Join: the grant belongs to another process

	endsDeadlock bool // see WithDeadlockError

	wire  kind.Kind // makes the requests
	key   string    // of wire
	slot  string    // a key in the cluster slot of all keys of the lock
	peers []*Client // the further clients of a quorum lock

	queues   *queues   // with the queue of key
	group    *group    // of the name
	counters *counters // of the group, for the shard of queues

	// What follows from the above. See use.
	bound    time.Duration  // how long a single attempt may take
	claim    time.Duration  // with which the server may grant the lock to a ticket
	policy   request.Policy // of a waiting call's requests
	gathers  gathers
	ownPlace bool // calls wait in the server's queue also while their client has a grant
	private  bool // each call has a place of its own there
	recorded bool // a hold may have to be recorded before the first renewal tells
}

// gathers says which requests are sent together with those for other locks.
type gathers struct{ acquire, rest bool }

// Name returns the name of the lock, without the client's prefix.
func (l *Lock) Name() string { return l.name }

// Lock acquires the lock, and waits for it as long as ctx allows. The returned context owns the lock.
// Use this context for everything that you do under the lock, so that nested lock calls do not wait and
// the work stops when the lock is lost. The context descends from ctx. However, the lock stays held,
// and its lease is renewed, until you call [Hold.Unlock], even if ctx ends. To limit only the wait, use
// [Lock.TryLockFor].
//
// If ctx already owns the lock, Lock does not wait. The lock is released when every hold, nested or
// not, is unlocked. If ctx does not own the lock, it does not own the lock after the call either,
// because only the returned context does. If you use ctx to lock the same name again, that call waits
// for its own caller. After Unlock the returned context has ended, so continue with the context that
// you passed to Lock.
//
// If Lock returns an error, you do not hold the lock, and the returned context is ctx. If ctx has
// ended, the error also matches the error of ctx. The errors are:
//
//   - [ErrNotAcquired] means that ctx ended while another holder had the lock. ErrNotAcquired also
//     means that ctx had ended before the call, or ended less than 5 ms after the first request was
//     sent, because Redis may still answer such a request.
//   - [ErrUnavailable] means that Redis refused the request or did not answer before ctx ended.
//     ErrUnavailable also means that no waiting call of this client got an answer for as long as the
//     lease lasts (at least 5 s), or that the client cannot connect to the address, as the text of the
//     error then says. If Redis begins to refuse requests while a call waits, the call fails 5 s after
//     the first refusal.
//   - [ErrLeaseLost] means that ctx belongs to a hold of this lock that was lost.
//   - [ErrUpgrade] means that ctx holds a read/write lock for reading, and that the call is for
//     writing.
//   - [ErrNotReplicated] means that too few replicas have acknowledged the lock, see [WithReplicas].
//   - [ErrKeyConflict], [ErrClosed] and [ErrInvalidOption] are explained at their definitions.
//
// Lock returns soon after ctx ends, even while Redis does not respond. If the lock is free, Lock takes
// one round trip. A nested call takes one as well, and nested calls at the same time share one or two.
// While calls of this client wait, the client sends a request after 1, 2 and 4 s, then every 5 s, and
// when the lease of the holder ends. When a waiting call gets the lock, a message informs it, without
// another request.
func (l *Lock) Lock(ctx context.Context) (context.Context, *Hold, error) {
	return l.starts(ctx).lockFor(ctx)
}

// TryLockFor is [Lock.Lock] with a limit for the wait. If the lock is not free after wait, the error is
// [ErrNotAcquired], and also matches [context.DeadlineExceeded]. If wait is zero or less, TryLockFor is
// [Lock.TryLock].
func (l *Lock) TryLockFor(ctx context.Context, wait time.Duration) (context.Context, *Hold, error) {
	if wait <= 0 {
		return l.TryLock(ctx)
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return l.starts(waiting).lockFor(ctx)
}

// TryLock is [Lock.Lock] without waiting. [ErrNotAcquired] means that another holder has the lock.
// While another goroutine of this client holds the lock, TryLock returns ErrNotAcquired without a
// request to Redis. TryLock repeats its request only if the request could not be sent or its outcome is
// unknown. After a third of the lease, or after 2 s if that is shorter, it gives up and returns
// [ErrUnavailable].
func (l *Lock) TryLock(ctx context.Context) (context.Context, *Hold, error) {
	w := l.starts(ctx)
	w.once = true
	return w.lockFor(ctx)
}

// lockFor is what every call comes to: the hold of w for ctx. Statistics and the trace are told of it, by starts and
// ends, but not of the calls that a multi lock makes for its members.
//
// A call that waits has a stack of its own, which stays small as long as the frames from Lock to waiter.wait are small,
// so whatever needs more is in a function that is called before or after. TestStackOfAWaiter measures that.
func (w *waiter) lockFor(ctx context.Context) (held context.Context, hold *Hold, err error) {
	l := w.lock
	defer func() { // last
		err = w.ends(ctx, hold, err)
		w.free()
	}()
	if err := l.begin(); err != nil {
		return ctx, nil, err
	}
	defer l.client.done()
	if w.ctx.Err() != nil {
		return ctx, nil, tooLate(l.name, w.ctx)
	}
	w.under = innermost(ctx)
	if in := w.under.of(l); in != nil {
		if held, hold, err = w.nest(ctx, in); err != errReleased {
			return held, hold, err
		}
	}
	for {
		g, err := w.acquire()
		if err != nil {
			return ctx, nil, err
		}
		if held, hold, err = g.take(ctx, l, w.region != nil); err == nil {
			return held, hold, nil
		}
		if g.forgo(); w.once { // lost before it was taken
			return ctx, nil, err
		}
	}
}

// acquire returns a grant: the server's, or that of a goroutine of this client. Most locks are free, and nobody waits: then
// the call asks the server itself. Otherwise it waits in the line, for which an asker asks.
func (w *waiter) acquire() (g *grant, err error) {
	if w.once {
		return w.try()
	}
	g, a, err := w.lock.queues.enter(w)
	if a != nil {
		g, err = a.askByCall(w)
	}
	if g != nil || err != nil {
		return g, err
	}
	return w.wait()
}

// try makes one attempt, without a place in the line.
func (w *waiter) try() (*grant, error) {
	l := w.lock
	var mine, holder *grant
	l.withQueue(func(q *queue) { mine, holder = q.atHand(l), q.holder() })
	if mine != nil {
		return mine, nil
	}
	if holder != nil && holder.check() {
		return nil, holder.keptOtherwise(l.refusal(holder.owner, time.Until(holder.entry.Until())))
	}
	o := new(candidate).init(l)
	withdrawn := true // also after a panic: see send
	defer func() {
		if withdrawn {
			o.withdraw()
		}
	}()
	opts := kind.Options{}
	if l.terms.fenced {
		opts.Spare = l.spareTokens(false)
	}
	a := o.ask(w.ctx, w.retries(), opts)
	switch {
	case a.Err != nil:
		return nil, a.Err
	case !a.Value.Acquired:
		return nil, l.refusedBy(a.Value)
	}
	g, err := l.enlist(o, a.Sent, a.Value.Token, a.Value.Spare)
	withdrawn = err != nil
	return g, err
}

// enlist makes the grant of an owner that has asked beside the lines. After an error, the owner has the lock and is to
// be withdrawn.
func (l *Lock) enlist(o *candidate, sent time.Time, token, spare int64) (*grant, error) {
	l.queues.mu.Lock()
	defer l.queues.mu.Unlock()
	g, err := o.grant(sent, l.terms.lease, token, run{began: sent, spare: spare})
	if err != nil {
		return nil, l.tooLate(err)
	}
	return g, nil
}

// Do acquires the lock, calls fn with the context that owns the lock, and unlocks when fn returns,
// panics or ends its goroutine. It waits for the lock as long as ctx allows.
//
// If the lock cannot be acquired, Do does not call fn and returns the error of [Lock.Lock]. If fn was
// called, the error of Do is the error of fn, joined with the error of the Unlock: a [*LostError] if
// the lock was lost while fn ran, or [ErrUnavailable] if Redis did not answer the Unlock. So fn need
// not return the cause of its context.
//
// A deadline of ctx limits both the wait and fn. [Lock.DoFor] limits only the wait, and [Lock.TryDo]
// does not wait.
func (l *Lock) Do(ctx context.Context, fn func(context.Context) error) error {
	held, hold, err := l.Lock(ctx)
	return hold.do(held, err, fn)
}

// DoFor is [Lock.Do] with a limit for the wait, as in [Lock.TryLockFor]. The limit does not apply to
// fn, which can take as long as ctx allows.
func (l *Lock) DoFor(ctx context.Context, wait time.Duration, fn func(context.Context) error) error {
	held, hold, err := l.TryLockFor(ctx, wait)
	return hold.do(held, err, fn)
}

// TryDo is [Lock.Do] without waiting for the lock, as in [Lock.TryLock].
func (l *Lock) TryDo(ctx context.Context, fn func(context.Context) error) error {
	held, hold, err := l.TryLock(ctx)
	return hold.do(held, err, fn)
}

// begin admits a call. After nil, client.done must follow.
func (l *Lock) begin() error {
	if l.err != nil {
		return l.err
	}
	if err := l.client.begin(); err != nil {
		return l.isClosed()
	}
	return nil
}

// refusal is the error of a held lock, with the owner as far as the server tells.
func (l *Lock) refusal(owner string, ttl time.Duration) *NotAcquiredError {
	return &NotAcquiredError{Name: l.name, Holder: owner, Local: owner != "" && strings.HasPrefix(owner, l.client.id), TTL: ttl}
}

// refusedBy is the error of a refused attempt.
func (l *Lock) refusedBy(r lua.Reply) *NotAcquiredError {
	if r.Writer {
		return &NotAcquiredError{Name: l.name, writer: true}
	}
	return l.refusal(r.Holder, r.TTL)
}

// isClosed is the error of a call after Close.
func (l *Lock) isClosed() error { return &lockError{l.name, ErrClosed, nil} }

// tooLate is the error of a call under an ended context. After the loss of a lock, the error is the
// LostError itself.
func tooLate(name string, ctx context.Context) error {
	if loss, ok := errors.AsType[*LostError](context.Cause(ctx)); ok {
		return loss
	}
	return &NotAcquiredError{Name: name, Err: ended(ctx)}
}

// use makes k the kind of the lock, and decides what is the same for all its calls.
func (l *Lock) use(k kind.Kind) {
	l.wire, l.key, l.slot = k, k.Key(), l.client.opts.Prefix+l.name
	if l.queues == nil { // otherwise those of what was joined
		n := l.client.queues.shard(l.key)
		l.queues, l.group = &l.client.queues.shards[n], l.client.group(l.name)
		l.counters = &l.group.counters[n]
	}
	l.bound, l.claim = min(l.terms.lease/3, kind.MaxAttempt), min(longestClaim, l.terms.lease)
	l.policy = request.Policy{Attempt: l.bound, Total: max(l.terms.lease, 5*time.Second), Stop: l.client.closing, Classify: l.client.classify}
	if l.kind != quorumKind { // otherwise each server's client makes attempts
		l.policy.Client = l.client.server.RDB
	}
	l.ownPlace = l.terms.fair || l.terms.shared
	l.private = l.ownPlace && !l.shares(l)
	l.retain()
	l.recorded = l.longUnnoticed() || l.client.opts.Identity.Prompt
	switch l.client.server.RDB.(type) { // a client of another type may spread a pipeline over several servers
	case *redis.Client, *redis.ClusterClient:
		l.gathers = gathers{k.Gathers(true), k.Gathers(false)}
	}
}

// retries is the policy of the call's requests.
func (w *waiter) retries() request.Policy {
	p := w.lock.policy
	if w.once {
		p.Total, p.Once = p.Attempt, true
	}
	return p
}
