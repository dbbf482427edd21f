// Package once computes a result once, on one host, and shares it with all callers that want it at
// the same time or later.
//
//	rates := once.New(locks, once.Options{TTL: time.Minute})
//	value, err := rates.Do(ctx, "rate:EUR", func(ctx context.Context) ([]byte, error) { return fetch(ctx, "EUR") })
//
// While a result is computed, the computing client holds the lock of that name. The lock is renewed for as
// long as the computation takes, and it ends one lease after its host has died. Then the next caller
// computes the result, or, with [Options].Strict, is told that the outcome is unknown. Only the holder of
// the lock can store a result, so the late request of a former holder has no effect. Callers that wait do
// not queue for the lock: each client gets one message, and reads the result once.
//
// A result is in the companion of the lock: a hash in the cluster slot of the lock, under the key
// rlock_companion:{name}. All users of a name must use this package with the same [Options].
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

// MaxResult is the greatest length of a result in bytes. A result is sent to every client that waits for
// it. Store a longer one elsewhere, and its address here.
const MaxResult = 64 << 10

var (
	// ErrMismatch says that the name belongs to another fingerprint. Nothing was run.
	ErrMismatch = errors.New("once: the name was used with another fingerprint")

	// ErrUnknown says that an earlier run ended without a result, because its host has died or has lost the
	// lock. It is unknown whether that run had an effect. Nothing was run. Find out what the run did, and
	// then call [Group.Forget] to permit another one.
	ErrUnknown = errors.New("once: an earlier run ended without a result")

	// ErrTooLong says that a result has more than [MaxResult] bytes. It is not stored.
	ErrTooLong = errors.New("once: the result is too long")

	errEnded = errors.New("once: the function has ended its goroutine")
)

// InFlightError says that another caller computes the result. Try again later, or use [Group.Do], which
// waits.
type InFlightError struct {
	Name string
	// TTL is the rest of the lease of the run. A run that is alive renews its lease, so TTL is not the time
	// until there is a result. It is negative if the lock has no end, and 0 if it is not known.
	TTL time.Duration
}

// Error has the name.
func (e *InFlightError) Error() string {
	return "once: " + strconv.Quote(e.Name) + ": another caller computes the result"
}

// Options are the settings of a [Group].
type Options struct {
	// TTL is how long a result is stored, from 1 ms on. Default: a minute.
	TTL time.Duration

	// Lease is the lease of a run. The other callers wait for so long if the host of the run has died.
	// Default: that of the client.
	Lease time.Duration

	// Strict is for work that must not be repeated. If a run ends without a result, the calls for this name
	// get [ErrUnknown] until TTL has passed since the run began. TTL must therefore be longer than the longest
	// run. By default the next caller runs its function.
	Strict bool
}

// Group shares results by name. Its methods are safe for concurrent use.
type Group struct {
	locks *rlock.Client
	opts  Options
	lock  []rlock.LockOption

	mu      sync.Mutex // guards flights, and the calls of each
	flights map[string]*flight
}

// New returns a group. It sends nothing. If an option cannot work, every call of the group returns
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

// Do returns the result of a name: the stored one, or else that of fn. Only one fn at a time runs for
// a name, on one host. Do waits for it until ctx ends.
//
// If fn returns an error, nothing is stored. The error is returned to all calls of this group that wait.
// Calls of other groups and hosts then run their own fn, one after the other. If fn panics, so do these
// calls, with the same value.
//
// fn runs in a goroutine of its own. Its context owns the lock, and has the values of the context of the first call. It is
// canceled when the lock is lost, and when no call waits for fn any longer. Because fn runs on behalf of
// other callers as well, it must not lock what one of them may hold: the two would wait for each other.
//
// A stored result takes one round trip. The first call takes four, and each waiting group reads the
// result in one.
//
//   - the error of fn, joined with [rlock.ErrLeaseLost] if the lock was lost during fn.
//   - [rlock.ErrLeaseLost]: fn returned a result, but the lock had been lost. Nothing was stored. Call Do
//     again for the result of another run.
//   - [ErrTooLong]: fn returned more than [MaxResult] bytes. Nothing was stored.
//   - [ErrMismatch], [ErrUnknown]: fn was not called.
//   - [rlock.ErrUnavailable]: Redis did not answer, or refused. If fn was called, it is unknown whether its
//     result is stored. Call Do again to find out.
//   - [rlock.ErrKeyConflict], [rlock.ErrInvalidOption], [rlock.ErrClosed]: as from [rlock.Lock.Lock].
//   - the cause of the end of ctx.
//
// Do under the context of an fn of the same name is [rlock.ErrInvalidOption], as it would wait for itself.
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

// Begin is for callers that cannot wait, or that do not compute the result in a function. It returns a run,
// which the caller must end by [Run.Finish], [Run.Fail] or [Run.Abandon], or the stored result, or an error:
//
//   - [*InFlightError]: another caller computes the result.
//   - [ErrMismatch]: there is a run or a result of this name with another fingerprint. The fingerprint
//     tells apart what must not have the same result. Do has "".
//   - [ErrUnknown], and the errors of package rlock, as from [Group.Do].
//
// Begin takes one round trip, and three if it returns a run. After [rlock.ErrUnavailable] nothing of this
// process runs.
func (g *Group) Begin(ctx context.Context, name, fingerprint string) (run *Run, result []byte, err error) {
	r, err := g.record(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	return r.begin(ctx, fingerprint)
}

// Forget removes a stored result, and the trace of a run that has ended without one. A run that is in
// progress stays, and stores its result. It takes one round trip. The errors are those of package rlock.
func (g *Group) Forget(ctx context.Context, name string) error {
	r, err := g.record(ctx, name)
	if err == nil {
		_, err = r.companion.RunHeld(ctx, forget)
	}
	return err
}

// Run is a run of this process, which holds the lock. One of Finish, Fail and Abandon ends it. They work
// although their context has ended, of which they use the values only.
type Run struct {
	r           *record
	fingerprint string
	hold        *rlock.Hold
	held        context.Context
}

// Context returns the context of the run. It owns the lock. It is canceled with a [*rlock.LostError] when
// the lock is lost, and with the context of Begin.
func (r *Run) Context() context.Context { return r.held }

// Finish stores the result and wakes all waiters. It takes one round trip, and releases the lock in the
// background. [rlock.Client.Close] waits for that.
//
//   - [ErrTooLong]: the result has more than [MaxResult] bytes. Nothing was sent, and the run goes on.
//   - [rlock.ErrLeaseLost]: the lock was lost. Nothing was stored, and a result of another run stays.
//   - [rlock.ErrNotHeld]: the run had ended before without this result.
//   - [rlock.ErrUnavailable]: it is unknown whether the result is stored.
//
// A repeated Finish has no effect.
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
	case err != nil:
		return errors.Join(err, r.Abandon(ctx))
	}
	if err := r.Abandon(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: %q", rlock.ErrLeaseLost, r.r.name)
}

// Fail ends the run without a result, and wakes all waiters. The next caller runs again, also with
// [Options].Strict: a run that fails is known to have had no effect, or one that can be repeated. It takes
// three round trips. The errors are those of Finish.
func (r *Run) Fail(ctx context.Context) error {
	_, err := r.r.companion.RunHeld(context.WithoutCancel(ctx), fail, r.hold.Owner())
	return errors.Join(err, r.Abandon(ctx))
}

// Abandon ends the run, and leaves open what it has done: with [Options].Strict later calls get
// [ErrUnknown], otherwise the next caller runs again. It takes two round trips. The errors are those of
// [rlock.Hold.Unlock].
func (r *Run) Abandon(ctx context.Context) error {
	err := r.hold.Unlock(ctx)
	if errors.Is(err, rlock.ErrNotHeld) {
		return err // the run has ended before
	}
	c := r.r.companion
	_, _ = c.Run(context.WithoutCancel(ctx), wake, c.Channel(), c.Publish()) // a waiter that is not woken looks after the lease
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
	case errors.Is(err, ErrTooLong):
		return nil, errors.Join(err, r.Fail(r.held))
	case err != nil:
		return nil, err
	}
	return value, nil
}
