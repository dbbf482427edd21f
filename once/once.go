// Package once computes a result once, on one host, and shares it with all callers that want it at
// the same time or later.
//
//	rates := once.New(locks, once.Options{TTL: time.Minute})
//	value, err := rates.Do(ctx, "rate:EUR", func(ctx context.Context) ([]byte, error) { return fetch(ctx, "EUR") })
//
// The client that computes a result holds the lock with the name of the result, and renews the lock until the
// computation ends. If the host of that client dies, the lock is released when its lease ends. The next caller
// after that computes the result, or gets [ErrUnknown] if Strict is set in [Options]. Each such computation is
// called a run. Only the holder of the lock can store a result, so a late request of a former holder has no
// effect. Callers that wait for a result do not queue for the lock. When the result is stored, each waiting
// client receives one message and reads the result once.
//
// Redis stores the result in a hash under the key rlock_companion:{name}, in the cluster slot of the lock. The
// braces are part of the key. All users of a name must use this package with the same [Options].
package once

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

// MaxResult is the maximum length of a result in bytes. Redis sends a result to every client that waits for it,
// so store a longer one elsewhere, and share its address with this package.
const MaxResult = 64 << 10

var (
	// ErrMismatch means that the name already has a result or a run (a computation of the result) with another
	// fingerprint, see [Group.Begin]. This call has computed nothing.
	ErrMismatch = errors.New("once: the name was used with another fingerprint")

	// ErrUnknown means that an earlier run (a computation of the result) ended without a result. Its host died
	// or lost the lock, its function panicked or returned a result that is too long, or it was ended by
	// [Run.Abandon] or by a Finish that failed. It is not known whether that run had an effect, and no new run has
	// begun. Find out what the earlier run did, and then call [Group.Forget] to permit a new run.
	ErrUnknown = errors.New("once: an earlier run ended without a result")

	// ErrTooLong means that a result has more than [MaxResult] bytes. The result is not stored. After a call of
	// [Group.Do] that returns it, later calls return [ErrUnknown] if Strict in [Options] is set, because the
	// function has done its work.
	ErrTooLong = errors.New("once: the result is too long")

	errEnded = errors.New("once: the function has ended its goroutine")
)

// InFlightError means that another caller computes the result now. Try again later, or use [Group.Do], which
// waits for the result.
type InFlightError struct {
	Name string
	// TTL is the rest of the lease of the lock that the other caller holds. A client renews its lease while it
	// computes, so TTL does not say when the result will be stored. TTL is negative if the lock never expires,
	// and 0 if the rest of the lease is not known.
	TTL time.Duration
}

// Error returns a text with the name of the result.
func (e *InFlightError) Error() string {
	return "once: " + strconv.Quote(e.Name) + ": another caller computes the result"
}

// Options are the settings of a [Group].
type Options struct {
	// TTL is how long Redis stores a result. It must be at least 1 ms. The default, for 0, is one minute.
	TTL time.Duration

	// Lease is the lease of the lock while a caller computes a result. If the host of that caller dies, the
	// other callers wait until this lease ends. The default, for 0, is the lease time of the client.
	Lease time.Duration

	// Strict is for work that must not be repeated. If a host dies or loses the lock while it computes a
	// result, all calls for this name return [ErrUnknown] until TTL has passed since the computation began. The
	// same applies if the function panics or returns a result that is too long. So if Strict is set, TTL must
	// be longer than the longest computation. If Strict is not set, the next caller after such a failure
	// computes the result again.
	Strict bool
}

// Group computes and shares results by name. Its methods are safe for concurrent use.
type Group struct {
	locks *rlock.Client
	opts  Options
	lock  []rlock.LockOption

	mu      sync.Mutex // guards flights, and the calls of each
	flights map[string]*flight
}

// New returns a group. It sends nothing to Redis. If an option is invalid, every method of the group returns
// [rlock.ErrInvalidOption].
func New(locks *rlock.Client, opts Options) *Group {
	if opts.TTL == 0 {
		opts.TTL = time.Minute
	}
	g := &Group{locks: locks, opts: opts, flights: make(map[string]*flight)}
	g.lock = []rlock.LockOption{rlock.WithoutHandoff(), rlock.WithPurpose("once")} // a hand-off would keep the owner
	if opts.Lease != 0 {
		g.lock = append(g.lock, rlock.WithLeaseTime(opts.Lease))
	}
	return g
}

// flight is the common call of all goroutines of this group that want one result.
type flight struct {
	done   chan struct{} // closed when value, err and panicked are there
	cancel context.CancelFunc
	calls  int // that wait for it; guarded by Group.mu

	value    []byte
	err      error
	panicked any
}

// Do returns the stored result of a name. If there is none, Do calls fn and stores its result. On all hosts
// together, only one fn runs for a name at a time. While another fn runs for the name, Do waits for its result
// until ctx ends.
//
// If fn returns an error, nothing is stored, and all waiting calls of this group return that error. The waiting
// calls of other groups and hosts then run their own fn, one after the other, until one of them returns a
// result. If fn panics, the waiting calls of this group panic with the same value. However, if no call waits any
// longer, a panic of fn ends the process, because there is no call to panic in.
//
// fn runs in a goroutine of its own. The context that fn receives owns the lock, and has the values of the
// context of the first waiting call. This context is canceled when the lock is lost, and when no call waits for
// the result any longer. Because fn runs on behalf of several callers, fn must not acquire a lock that one of
// these callers may hold, because that caller would wait for fn while fn waits for that caller.
//
// A call that finds a stored result takes one round trip, and a call that runs fn takes four. While fn runs on
// another host, the waiting calls of a group share their requests: two round trips at the beginning, one every
// 5 s, and one when the result is stored. If less than 5 s of the lease are left when such a request is answered,
// the next request is sent when this rest of the lease has passed.
//
// Do returns one of these errors:
//
//   - The error of fn, joined with [rlock.ErrLeaseLost] if the lock was lost while fn ran.
//   - [rlock.ErrLeaseLost] alone means that fn returned a result after the lock was lost. The result was not
//     stored. Call Do again to get the result of another run.
//   - [ErrTooLong] means that fn returned more than [MaxResult] bytes. The result was not stored. With Strict in
//     [Options], later calls return [ErrUnknown].
//   - [ErrMismatch] and [ErrUnknown] mean that fn was not called.
//   - [rlock.ErrUnavailable] means that Redis did not answer, or refused a request. If fn was called, it is not
//     known whether its result is stored. Call Do again to find out.
//   - [rlock.ErrKeyConflict], [rlock.ErrInvalidOption] and [rlock.ErrClosed] mean the same as for
//     [rlock.Lock.Lock].
//   - The cause of ctx, if ctx ends before there is a result.
//
// If ctx is the context of an fn of the same name, Do returns [rlock.ErrInvalidOption], because Do would wait
// for its own caller.
func (g *Group) Do(ctx context.Context, name string, fn func(context.Context) ([]byte, error)) ([]byte, error) {
	r, err := g.record(ctx, name)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	f := g.flights[name]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		var flying context.Context
		flying, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		g.flights[name] = f
		go g.fly(flying, f, r, fn)
	}
	f.calls++
	g.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		g.leave(name, f)
		return nil, context.Cause(ctx)
	}
	if f.panicked != nil {
		panic(f.panicked)
	}
	return bytes.Clone(f.value), f.err // a caller may change what it has got
}

// leave ends the wait of one call. The last one cancels the flight, and the next call makes a new one.
func (g *Group) leave(name string, f *flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.calls--; f.calls == 0 {
		f.cancel()
		g.remove(name, f)
	}
}

// remove takes a flight out of the map. The caller holds mu.
func (g *Group) remove(name string, f *flight) {
	if g.flights[name] == f {
		delete(g.flights, name)
	}
}

// fly is the goroutine of a flight. It ends with fn, whose context is canceled when no call waits.
func (g *Group) fly(ctx context.Context, f *flight, r *record, fn func(context.Context) ([]byte, error)) {
	f.err = errEnded
	defer func() {
		g.mu.Lock()
		g.remove(r.name, f)
		alone := f.calls == 0
		g.mu.Unlock()
		f.cancel()
		if v := recover(); v != nil {
			if alone {
				panic(v) // no call is there to panic
			}
			f.panicked = v
		}
		close(f.done)
	}()
	f.value, f.err = r.result(ctx, fn)
}

// result waits for the result of another run, or computes it.
func (r *record) result(ctx context.Context, fn func(context.Context) ([]byte, error)) ([]byte, error) {
	var w waiter
	defer w.close()
	for {
		run, value, err := r.begin(ctx, "")
		busy, inFlight := errors.AsType[*InFlightError](err)
		switch {
		case run != nil:
			return run.do(fn)
		case !inFlight:
			return value, err
		}
		if err := w.wait(ctx, r.companion, busy.TTL); err != nil {
			return nil, err
		}
	}
}

// Begin is [Group.Do] for callers that cannot wait, or that do not compute the result in a function. It has
// three possible results:
//
//   - A non-nil run means that this caller must compute the result, and must end the run by [Run.Finish],
//     [Run.Fail] or [Run.Abandon].
//   - If run and err are nil, result is the stored result.
//   - A non-nil error means that there is no result, and that this caller must not compute it.
//
// The fingerprint identifies the request whose result is stored. If a name already has a run or a result with
// another fingerprint, the error is [ErrMismatch]. [Group.Do] uses the fingerprint "". If another caller
// computes the result now, the error is an [*InFlightError]. The other errors are [ErrUnknown], and those of
// package rlock that [Group.Do] can return. After [rlock.ErrUnavailable], this process has begun no run. Begin
// then removes in the background what it may have written, so that another call can begin a run.
//
// Begin takes three round trips if it begins a run, and one if it finds a stored result or a run in progress.
func (g *Group) Begin(ctx context.Context, name, fingerprint string) (run *Run, result []byte, err error) {
	r, err := g.record(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	return r.begin(ctx, fingerprint)
}

// Forget removes the stored result of a name. If a run (a computation of the result) ended without a result,
// Forget removes the record of that run, so that another run can begin. Forget does not affect a run in
// progress. It takes one round trip. Forget returns errors of package rlock.
func (g *Group) Forget(ctx context.Context, name string) error {
	r, err := g.record(ctx, name)
	if err == nil {
		_, err = r.companion.RunHeld(ctx, forget)
	}
	return err
}

// Run is one computation of a result in this process, which holds the lock with the name of the result. You
// must call one of Finish, Fail and Abandon to end it. These three methods work even if the context that you
// pass has ended, because they use only its values.
type Run struct {
	r           *record
	fingerprint string
	hold        *rlock.Hold
	held        context.Context
}

// Context returns the context of the run, which owns the lock. It is canceled with a [*rlock.LostError] as its
// cause when the lock is lost. It is also canceled when the context that was passed to [Group.Begin] ends.
func (r *Run) Context() context.Context { return r.held }

// Finish stores the result, ends the run and notifies all waiters. It takes one round trip. The lock is
// released in the background, and [rlock.Client.Close] waits for this release.
//
//   - [ErrTooLong] means that the result has more than [MaxResult] bytes. Finish has sent nothing, and the run
//     continues.
//   - [rlock.ErrLeaseLost] means that the lock was lost. The result was not stored. If another run has stored
//     its result, that result stays.
//   - [rlock.ErrNotHeld] means that the run had already ended without a result, or with another result, which
//     stays.
//   - [rlock.ErrUnavailable] means that it is not known whether the result is stored. Finish has tried for the
//     time of the lease, but at least 5 s.
//
// Calling Finish again with the same result has no effect.
func (r *Run) Finish(ctx context.Context, result []byte) error {
	if len(result) > MaxResult {
		return fmt.Errorf("%w: %q: %d bytes, and at most %d can be stored", ErrTooLong, r.r.name, len(result), MaxResult)
	}
	c := r.r.companion
	ctx = context.WithoutCancel(ctx)
	reply, err := c.RunHeld(ctx, finish, r.hold.Owner(), r.r.ttl(), r.fingerprint, result, c.Channel(), c.Publish())
	switch {
	case err == nil && reply == int64(1):
		go func() { _ = r.hold.Unlock(ctx) }() // the result is there, so nobody waits for the lock
		return nil
	case err == nil && reply == int64(2):
		return fmt.Errorf("%w: %q: the run has ended with another result", rlock.ErrNotHeld, r.r.name)
	case err != nil:
		return errors.Join(err, r.Abandon(ctx))
	}
	if err := r.Abandon(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: %q", rlock.ErrLeaseLost, r.r.name)
}

// Fail ends the run without a result, and notifies all waiters. The next caller can begin a new run, even with
// Strict in [Options]. So call Fail only if the run had no effect, or an effect that can be repeated. Fail
// takes three round trips. Its errors are those of [Run.Finish].
func (r *Run) Fail(ctx context.Context) error {
	_, err := r.r.companion.RunHeld(context.WithoutCancel(ctx), fail, r.hold.Owner(), 1)
	return errors.Join(err, r.Abandon(ctx))
}

// wakeTimeout is how long an end of a run tries to wake the waiters.
const wakeTimeout = time.Second

// Abandon ends the run without saying whether it had an effect. With Strict in [Options], later calls for this
// name return [ErrUnknown]. If Strict is not set, the next caller begins a new run. Abandon takes two round
// trips, and returns within the client's UnlockTimeout plus 1 s. Its errors are those of [rlock.Hold.Unlock].
func (r *Run) Abandon(ctx context.Context) error {
	err := r.hold.Unlock(ctx)
	if errors.Is(err, rlock.ErrNotHeld) {
		return err // the run has ended before
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
	defer cancel()
	c := r.r.companion
	_, _ = c.Run(ctx, wake, c.Channel(), c.Publish()) // a waiter that is not woken looks after the lease
	return err
}

// do ends a run by what fn does.
func (r *Run) do(fn func(context.Context) ([]byte, error)) ([]byte, error) {
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			_ = r.Abandon(r.held)
		}
	}()
	value, err := fn(r.held)
	returned = true
	if err != nil {
		return nil, errors.Join(err, r.Fail(r.held))
	}
	switch err := r.Finish(r.held, value); {
	case errors.Is(err, ErrTooLong): // fn has succeeded, so its work must not be repeated with Strict
		return nil, errors.Join(err, r.Abandon(r.held))
	case err != nil:
		return nil, err
	}
	return value, nil
}
