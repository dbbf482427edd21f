package request

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// Policy says how a request is repeated.
type Policy struct {
	Attempt time.Duration   // bound of one attempt
	Total   time.Duration   // bound of all attempts together, counted from Since
	Since   time.Time       // zero: from the first attempt
	Trouble error           // of earlier attempts by another waiter, if Since counts from there
	Leaves  bool            // see [Options]
	Once    bool            // an attempt surely not executed is repeated only after ErrCrowded and ErrReplaced, and after a stale connection of Client
	Stop    <-chan struct{} // ends the request; nil for a request to finish in any case

	// Report, if set, is called with an error when an attempt got no answer, and with nil when
	// a later attempt was answered. Report returns the sending time of the newest answered request
	// of another caller: Total counts from then.
	Report func(error) time.Time

	// Patient, if set, reports whether a request is repeated after an error that would be the end
	// otherwise: a person may be about to remove the cause.
	Patient func(error) bool

	// Client, if set, makes the attempts. After a stale connection an attempt is repeated at once. A
	// request to several servers has none.
	Client redis.UniversalClient

	// Classify reads the error of an attempt. An attempt without an error was answered.
	Classify func(error) (o Outcome, final bool)
}

// End is how a repeated request ended.
type End int

// Ends.
const (
	Done      End = iota // answered
	Hopeless             // cannot succeed
	Exhausted            // Total has passed
	Left                 // the caller has left, by the context or Stop
)

// Answer is how a repeated request ended.
type Answer[T any] struct {
	End   End
	Value T
	Sent  time.Time // before the attempt that was answered went out
	Err   error     // of the answer, or of the newest failed attempt; else nil
	Cut   bool      // the context ended, and nothing had failed until then; set by package rlock
	Unsettled
}

// Unsettled tells of attempts with an unknown outcome.
type Unsettled struct {
	Doubt bool // an attempt may have been executed, or may still be, without an answer
	Lost  bool // an attempt got no answer, not even a refusal
	Open  bool // the caller left the last attempt under way; late gets the outcome
}

// Add adds the attempts of another request.
func (u *Unsettled) Add(o Unsettled) {
	u.Doubt, u.Lost, u.Open = u.Doubt || o.Doubt, u.Lost || o.Lost, u.Open || o.Open
}

// Attempt makes a request once, with options without a key. late, if set, gets the result after the
// caller has left. copied means: the request was sent more than once, see [Copies].
type Attempt[T any] func(ctx context.Context, o Options, late func(T, error)) (value T, copied bool, err error)

// Do repeats a request until an answer, until the request cannot succeed, or until ctx or the policy
// ends.
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
		if p.Report == nil { // otherwise an answer to another caller may defer the end
			opts.End = p.Since.Add(p.Total)
		}
		value, copied, err := attempt(ctx, opts, late)
		if copied { // all but one may still be executed
			a.Doubt, a.Lost = true, true
		}
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

// failed notes the error of an attempt without an answer, and reports whether the attempt was the last.
// followed means: late gets the outcome if the caller leaves. again means: the next attempt follows at
// once, as a stale connection tells nothing of the server.
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
	if final && (p.Patient == nil || !p.Patient(err)) || p.Once && o == NotExecuted && err != ErrCrowded && err != ErrReplaced {
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
