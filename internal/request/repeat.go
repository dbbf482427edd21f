package request

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// Policy is how a request is repeated.
type Policy struct {
	Attempt time.Duration   // bound of one attempt
	Total   time.Duration   // bound of all together, counted from Since
	Since   time.Time       // zero: from the first attempt
	Trouble error           // the error of others' attempts, if Since is earlier because of them
	Leaves  bool            // see [Options]
	Once    bool            // an attempt that was surely not executed is repeated only after ErrCrowded and ErrReplaced, and if Client's connection was stale
	Stop    <-chan struct{} // ends it; nil for a request that has to be finished

	// Report, if set, is called with an error when an attempt got no answer, and with nil when
	// a later one got one. It returns when the newest request of others that was answered was
	// sent: Total counts from then.
	Report func(error) time.Time

	// Client, if set, makes the attempts. One that fails on a stale connection is repeated at once.
	Client redis.UniversalClient

	// Classify reads the error of an attempt. One without an error was answered.
	Classify func(error) (o Outcome, final bool)
}

// End is how a repeated request ended.
type End int

// Ends.
const (
	Done      End = iota // answered
	Hopeless             // it cannot succeed
	Exhausted            // Total has passed
	Left                 // its caller has left: the context or Stop has ended it
)

// Answer is how a repeated request ended.
type Answer[T any] struct {
	End   End
	Value T
	Sent  time.Time // before the attempt that was answered went out
	Err   error     // of the answer, or of the newest attempt that failed; nil if there was none
	Cut   bool      // the context ended, and nothing had failed until then; set by package rlock
	Unsettled
}

// Unsettled is what is not known of the attempts of a request, or of several.
type Unsettled struct {
	Doubt bool // one may have been executed, or may still be, without an answer
	Lost  bool // one got no answer, not even a refusal
	Open  bool // the caller left the last one under way; late gets its outcome
}

// Add adds those of another request.
func (u *Unsettled) Add(o Unsettled) {
	u.Doubt, u.Lost, u.Open = u.Doubt || o.Doubt, u.Lost || o.Lost, u.Open || o.Open
}

// Attempt makes a request once, with options that have no key yet. late, if set, gets what it
// returned after its caller had left.
type Attempt[T any] func(ctx context.Context, o Options, late func(T, error)) (T, error)

// Do repeats a request until it is answered, cannot succeed, ctx is over or the policy
// ends it.
func Do[T any](ctx context.Context, p Policy, attempt Attempt[T], late func(T, error)) (a Answer[T]) {
	a.Err = p.Trouble
	var stale Stale
	pauses := 0
	for n := 0; ; n++ {
		a.Sent = time.Now()
		if p.Since.IsZero() {
			p.Since = a.Sent
		}
		remains := p.Total - a.Sent.Sub(p.Since)
		switch {
		case remains <= 0:
			a.End = Exhausted
			return a
		case ctx.Err() != nil:
			a.End = Left
			return a
		}
		opts := Options{Bound: min(p.Attempt, remains), Stop: p.Stop, Repeat: n > 0, Leaves: p.Leaves}
		if p.Report == nil { // otherwise the answers to others may defer the end
			opts.End = p.Since.Add(p.Total)
		}
		value, err := attempt(ctx, opts, late)
		o, final := Answered, true
		if err != nil {
			o, final = p.Classify(err)
		}
		if o == Answered {
			if a.Err != nil {
				p.report(nil)
			}
			a.Value, a.Err = value, err
			return a
		}
		again := stale.Again(p.Client, err)
		if a.failed(&p, err, o, final, late != nil, again) {
			return a
		}
		if again {
			continue
		}
		if !Sleep(ctx, p.Stop, min(BackOff(pauses), remains-time.Since(a.Sent))) {
			a.End = Left
			return a
		}
		pauses++
	}
}

// failed notes the error of an attempt that was not answered, and what is known of that. It
// reports whether it was the last attempt. followed says that an attempt whose caller leaves
// is followed up, again that the next attempt follows at once, as this one tells nothing of the server.
func (a *Answer[T]) failed(p *Policy, err error, o Outcome, final, followed, again bool) (over bool) {
	switch err {
	case ErrAbandoned:
		a.End, a.Open = Left, followed
		a.Doubt, a.Lost = a.Doubt || !followed, a.Lost || !followed
		return true
	case ErrNotSent:
		a.End = Left
		return true
	}
	a.Err = err
	if o == Unknown {
		a.Doubt, a.Lost = true, a.Lost || !final
	}
	if again {
		return false
	}
	p.report(err)
	if final || p.Once && o == NotExecuted && err != ErrCrowded && err != ErrReplaced {
		a.End = Hopeless
	}
	return a.End == Hopeless
}

func (p *Policy) report(err error) {
	if p.Report == nil {
		return
	}
	if newest := p.Report(err); newest.After(p.Since) {
		p.Since = newest
	}
}

// BackOff is the pause after failed attempt n, counted from 0: 1 ms doubling to
// half a second, the upper half of it random.
func BackOff(n int) time.Duration {
	d := min(time.Millisecond<<min(n, 10), 500*time.Millisecond)
	return d/2 + rand.N(d/2)
}

// Sleep returns false if ctx is over or stop is closed first.
func Sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	}
}
