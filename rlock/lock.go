package rlock

import (
	"context"
	"errors"
	"runtime/trace"
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

	wire  kind.Kind // makes the requests
	key   string    // of wire
	slot  string    // a key in the cluster slot of all keys of the lock
	peers []*Client // the further clients of a quorum lock

	queues *queues // with the queue of key
}

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
	return l.lock(ctx, ctx, true, false)
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
	return l.lock(ctx, waiting, true, false)
}

// TryLock is [Lock.Lock] without waiting. [ErrNotAcquired] means that another holder has the lock.
// While another goroutine of this client holds the lock, TryLock returns ErrNotAcquired without a
// request to Redis. TryLock repeats its request only if the request could not be sent or its outcome is
// unknown. After a third of the lease, or after 2 s if that is shorter, it gives up and returns
// [ErrUnavailable].
func (l *Lock) TryLock(ctx context.Context) (context.Context, *Hold, error) {
	return l.tryLock(ctx, ctx, true)
}

// tryLock makes one attempt; counted as in lock. Its requests have the context wait.
func (l *Lock) tryLock(ctx, wait context.Context, counted bool) (held context.Context, hold *Hold, err error) {
	if counted {
		wait = l.starts(wait)
	}
	began := time.Now()
	defer func() {
		err = ownHolder(ctx, err)
		if counted {
			l.ends(wait, began, hold, err, nil)
		}
	}()
	if err := l.begin(); err != nil {
		return ctx, nil, err
	}
	defer l.client.done()
	if ctx.Err() != nil {
		return ctx, nil, tooLate(l.name, ctx)
	}
	p := request.Policy{Attempt: l.bound(), Total: l.bound(), Once: true, Stop: l.client.closing}
	if in := holdIn(ctx, l); in != nil {
		if held, hold, err := l.nest(ctx, wait, in, p); err != errReleased {
			return held, hold, err
		}
	}
	if holder := l.queues.holder(l); holder != nil && holder.check() {
		held, hold, givenBack := l.retake(ctx)
		if hold != nil {
			return held, hold, nil
		}
		refusal := l.refusal(holder.owner, time.Until(holder.entry.Until()))
		if givenBack {
			refusal.Local = false
			return ctx, nil, refusal.because(errKeptOtherwise)
		}
		return ctx, nil, refusal
	}
	if held, hold := l.shareGrant(ctx); hold != nil {
		return held, hold, nil
	}
	return l.try(ctx, wait, p)
}

// try makes one attempt.
func (l *Lock) try(ctx, wait context.Context, p request.Policy) (held context.Context, hold *Hold, err error) {
	g, acquired := l.newAttempt(), false
	defer func() {
		if hold == nil { // also after a panic: see send
			g.abandon(acquired)
		}
	}()
	a := g.acquire(wait, p, kind.Options{Spare: l.spareTokens(false)})
	switch {
	case a.Err != nil:
		return ctx, nil, a.Err
	case !a.Value.Acquired:
		return ctx, nil, l.refusedBy(a.Value)
	}
	acquired = true
	return g.start(ctx, l)
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

// lock is what every call that may wait comes to; counted is false for a member of a multi lock, and
// served says that another member was asked for with success: see waiter.patient. The wait ends with the
// context wait; the context of the hold descends from ctx.
//
// All waiters of a client but the first, unless the lock is fair, sleep in await, each on a stack of its
// own. A stack stays at its first size, 2 KB, as long as the frames from Lock to await are small, so
// whatever needs more, and every defer, is in a function that is called before or after await.
// TestStackOfAWaiter measures that.
func (l *Lock) lock(ctx, wait context.Context, counted, served bool) (held context.Context, hold *Hold, err error) {
	region := trace.StartRegion(wait, "rlock.acquire") // for package runtime/trace
	if counted {
		wait = l.starts(wait)
	}
	began := time.Now()
	held, hold, err = l.unqueued(ctx, wait, began, counted)
	if err == errQueue {
		w, asks := l.queues.enter(l, began)
		w.served = served // only this goroutine reads it
		if err = nil; !asks {
			err = w.await(wait)
		}
		held, hold, err = w.acquire(ctx, wait, err, counted)
	}
	region.End()
	return held, hold, err
}

// unqueued takes the lock if that is possible without a place in the queue: nested, kept, or shared with
// another reader. Otherwise the error is errQueue, the call goes on, and client.done must follow.
func (l *Lock) unqueued(ctx, wait context.Context, began time.Time, counted bool) (held context.Context, hold *Hold, err error) {
	defer func() {
		if counted && err != errQueue {
			l.ends(wait, began, hold, err, nil)
		}
	}()
	if err := l.begin(); err != nil {
		return ctx, nil, err
	}
	defer func() {
		if err != errQueue {
			l.client.done()
		}
	}()
	if wait.Err() != nil {
		return ctx, nil, tooLate(l.name, wait)
	}
	if in := holdIn(ctx, l); in != nil {
		if held, hold, err = l.nest(ctx, wait, in, l.retries()); err != errReleased {
			return held, hold, err
		}
	}
	switch {
	case l.terms.retention > 0:
		if held, hold, _ := l.retake(ctx); hold != nil {
			return held, hold, nil
		}
	case l.terms.shared:
		if held, hold := l.shareGrant(ctx); hold != nil {
			return held, hold, nil
		}
	}
	return ctx, nil, errQueue
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

// joined reports whether the grant belongs to another process: see Join.
func (l *Lock) joined() bool { return l.queues == &l.client.joins }

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

// bound is how long a single attempt may take.
func (l *Lock) bound() time.Duration { return min(l.terms.lease/3, kind.MaxAttempt) }

// use makes k the kind of the lock.
func (l *Lock) use(k kind.Kind) {
	l.wire, l.key, l.slot = k, k.Key(), l.client.opts.Prefix+l.name
	l.queues = l.client.queues.of(l.key)
}

// retries is the policy of a waiting call's requests.
func (l *Lock) retries() request.Policy {
	return request.Policy{Attempt: l.bound(), Total: max(l.terms.lease, 5*time.Second), Stop: l.client.closing}
}

// gathers reports whether requests are sent together with those for other locks: requests to acquire, or
// all the rest.
func (l *Lock) gathers(acquire bool) bool {
	switch l.client.server.RDB.(type) { // a client of another type may spread a pipeline over several servers
	case *redis.Client, *redis.ClusterClient:
		return l.wire.Gathers(acquire)
	}
	return false
}
