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

// Lock is a named lock without state of its own; see [Client.NewLock].
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

// Name returns the name the lock was made with.
func (l *Lock) Name() string { return l.name }

// Lock waits for the lock as long as ctx allows. The returned context owns the
// lock: use it for everything done under the lock, so that nested locking
// re-enters and the work stops when the lock is lost. It descends from ctx, but
// the end of ctx does not give the lock up: the lock is held, and renewed, until
// [Hold.Unlock]. To bound the waiting only, use [Lock.TryLockFor].
//
// Under a context that owns the lock, Lock re-enters: a further hold, a further
// Unlock. Under the context passed in, which does not own the lock, Lock waits for
// its own caller. After Unlock the returned context has ended; go on with the context
// passed in.
//
// On an error nothing is held and the context passed in comes back:
// [ErrNotAcquired] if ctx ended while somebody else held the lock, or before, or less
// than 5 ms after the first request was sent, because Redis may still answer it;
// [ErrUnavailable] if Redis refused to serve, or gave no answer until ctx ended, or
// none to any waiter of this client for as long as the lease lasts (at least 5 s), or cannot be reached
// at this address by this client, as the error then says. A call that already waits, and was served before,
// fails 5 s after the first refusal to serve it only;
// [ErrLeaseLost] under the context of a lost grant; [ErrUpgrade] for a writer under the
// context of a reader; [ErrNotReplicated] of a lock [WithReplicas]; [ErrKeyConflict],
// [ErrClosed] or [ErrInvalidOption]. The context's own error is matched as well. Lock
// returns soon after ctx ends, also while Redis is silent.
//
// An uncontended Lock, and a nested Lock, is one round trip; simultaneous nested calls share
// one, or two. While calls wait, the client asks after 1, 2 and 4 s and every 5 s after that,
// and when the holder's TTL ends; a message tells a waiter that it has the lock.
func (l *Lock) Lock(ctx context.Context) (context.Context, *Hold, error) {
	return l.lock(ctx, ctx, true, false)
}

// TryLockFor is [Lock.Lock] that waits no longer than wait. When the time is over
// the error matches [context.DeadlineExceeded] beside the sentinel. With a wait of zero
// or less it is [Lock.TryLock].
func (l *Lock) TryLockFor(ctx context.Context, wait time.Duration) (context.Context, *Hold, error) {
	if wait <= 0 {
		return l.TryLock(ctx)
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return l.lock(ctx, waiting, true, false)
}

// TryLock makes one attempt and does not wait: [ErrNotAcquired] says that
// somebody else holds the lock. While a goroutine of this client is known to
// hold it, nothing is sent. The attempt is repeated only while the outcome is
// unknown, or the request was not sent, and the bound of a single attempt (a third of the lease, at most 2 s)
// has not passed; then the error is [ErrUnavailable]. For the rest see
// [Lock.Lock].
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

// Do runs fn while holding the lock, with the context that owns it, and unlocks
// when fn returns, panics or exits its goroutine. If the lock could not be
// acquired, fn is not run and the error is the error of [Lock.Lock]. Otherwise the error is
// fn's, joined by the error of the Unlock: a [*LostError] if the lock was lost
// while fn ran, or [ErrUnavailable] if Redis did not answer to the Unlock. So fn
// need not return the context's cause, which is the same LostError.
//
// A time-out of ctx bounds the wait and fn. [Lock.DoFor] bounds the wait only, and
// [Lock.TryDo] does not wait.
func (l *Lock) Do(ctx context.Context, fn func(context.Context) error) error {
	held, hold, err := l.Lock(ctx)
	return hold.do(held, err, fn)
}

// DoFor is [Lock.Do] that waits for the lock no longer than wait, as [Lock.TryLockFor]
// does; fn may take as long as ctx allows.
func (l *Lock) DoFor(ctx context.Context, wait time.Duration, fn func(context.Context) error) error {
	held, hold, err := l.TryLockFor(ctx, wait)
	return hold.do(held, err, fn)
}

// TryDo is [Lock.Do] that does not wait for the lock, as [Lock.TryLock] does not.
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
