package once

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/rlock"
)

var (
	//go:embed peek.lua
	peekSource string
	//go:embed begin.lua
	beginSource string
	//go:embed finish.lua
	finishSource string
	//go:embed fail.lua
	failSource string
	//go:embed forget.lua
	forgetSource string
	//go:embed wake.lua
	wakeSource string

	peek   = companion.NewScript(peekSource)
	begin  = companion.NewScript(beginSource)
	finish = companion.NewScript(finishSource)
	fail   = companion.NewScript(failSource)
	forget = companion.NewScript(forgetSource)
	wake   = companion.NewScript(wakeSource)
)

// record is the lock of a name, and what its companion says of the newest run.
type record struct {
	g         *Group
	name      string
	lock      *rlock.Lock
	companion *companion.Companion
}

// record returns that of a name. The error is [rlock.ErrInvalidOption].
func (g *Group) record(ctx context.Context, name string) (*record, error) {
	if g.opts.TTL < time.Millisecond {
		return nil, fmt.Errorf("%w: once: a TTL of %v, and it must be at least 1ms", rlock.ErrInvalidOption, g.opts.TTL)
	}
	l := g.locks.NewLock(name, g.lock...)
	c, err := companion.Of(l, "result")
	if err != nil {
		return nil, err
	}
	if l.Owner(ctx) != "" {
		return nil, fmt.Errorf("%w: once: the context belongs to the run of %q, and a call under it would wait for itself", rlock.ErrInvalidOption, name)
	}
	return &record{g, name, l, c}, nil
}

func (r *record) ttl() int64 { return r.g.opts.TTL.Milliseconds() }

// begin is [Group.Begin].
//
// Two scripts read the state. Peek does so without the lock, because most calls find a result, or a
// run in progress. What it says may be over when TryLock returns: so begin looks again, under the lock.
func (r *record) begin(ctx context.Context, fingerprint string) (*Run, []byte, error) {
	state, err := r.companion.RunHeld(ctx, peek)
	if err != nil {
		return nil, nil, err
	}
	if result, err := r.read(state, fingerprint); err != errFree {
		return nil, result, err
	}
	held, hold, err := r.lock.TryLock(ctx)
	if busy, ok := errors.AsType[*rlock.NotAcquiredError](err); ok && ctx.Err() == nil {
		return nil, nil, &InFlightError{r.name, busy.TTL}
	} else if err != nil {
		return nil, nil, err
	}
	run := &Run{r, fingerprint, hold, held}
	strict := 0
	if r.g.opts.Strict {
		strict = 1
	}
	state, err = r.companion.RunHeld(ctx, begin, hold.Owner(), r.ttl(), fingerprint, strict)
	if err != nil {
		go run.retract()
		return nil, nil, err
	}
	result, err := r.read(state, fingerprint)
	switch {
	case err == errFree:
		return run, nil, nil
	case errors.Is(err, rlock.ErrLeaseLost): // an earlier execution may have begun the run
		go run.retract()
	default:
		go func() { _ = run.Abandon(held) }() // Close waits for the unlock, the caller need not
	}
	return nil, result, err
}

// retract ends a run of which it is not known whether Redis has begun it. The caller has done nothing, so no
// trace must stay: with Strict, one would mean that the outcome is unknown. The lock may be lost by then.
//
// A late copy of the request that begins the run may be executed between the first removal and the unlock. The
// second removal takes its trace away. Redis refuses a copy after the unlock.
func (r *Run) retract() {
	ctx := context.WithoutCancel(r.held)
	_, _ = r.r.companion.RunHeld(ctx, fail, r.hold.Owner(), 0)
	_ = r.Abandon(ctx)
	_, _ = r.r.companion.RunHeld(ctx, fail, r.hold.Owner(), 0)
}

var errFree = errors.New("no result, and no run")

// read reads the reply of peek or begin: what is there, the fingerprint if it is known, and the result or
// the rest of the lease. The error is errFree if a run may begin, or has begun.
func (r *record) read(state any, fingerprint string) ([]byte, error) {
	s := state.([]any)
	if found, known := s[1].(string); known && found != fingerprint && (s[0] != "ended" || r.g.opts.Strict) {
		return nil, fmt.Errorf("%w: %q", ErrMismatch, r.name)
	}
	switch s[0] {
	case "done":
		return []byte(s[2].(string)), nil
	case "busy":
		return nil, &InFlightError{r.name, time.Duration(s[2].(int64)) * time.Millisecond}
	case "lost":
		return nil, fmt.Errorf("%w: %q", rlock.ErrLeaseLost, r.name)
	case "ended":
		if r.g.opts.Strict {
			return nil, fmt.Errorf("%w: %q", ErrUnknown, r.name)
		}
	}
	return nil, errFree
}
