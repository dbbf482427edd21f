// Package jobs runs scheduled work once for each fire of a schedule, however many hosts have the
// schedule.
//
//	job := jobs.New(locks, "report", jobs.Every(time.Minute))
//	err := job.Run(ctx, func(ctx context.Context, fire time.Time) error { return report(ctx, fire) })
//
// A fire is a moment at which the schedule says that the job must run. A lock alone keeps two runs
// apart, but it does not keep a second host from running the same fire again when the first host has
// finished. So a host claims the fire before it runs the work: Redis notes the newest claimed fire next to
// the lock, and refuses a second claim of that fire and of all earlier ones. All hosts compute the fire
// from the schedule and the clock of the Redis server, so their own clocks may be wrong.
//
// A host that has claimed a fire runs the work under the lock with the name of the job. The lock keeps
// the runs of two fires from overlapping. Its context ends if the lock is lost.
//
// # At most once, at least once
//
// By default, no fire is begun twice. If a host dies in a run, the run is not repeated. If Redis loses
// the note of a fire, the fire may run again: use [WithReplicas] if a replica may become the master.
//
// With [AtLeastOnce] the fire counts as finished when the work has returned. If the host dies before
// that, another host runs the fire again. So the work must be safe to repeat.
//
// All hosts must use the same schedule and options for a name.
package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/rlock"
)

var (
	// ErrClaimed: another host has this fire, or there is none to run now. Do nothing.
	ErrClaimed = errors.New("jobs: another host has this fire")

	// ErrRunning: the run of an earlier fire still holds the lock, on this host or on another. This fire
	// is skipped, unless the job runs [AtLeastOnce]. The error also matches [rlock.ErrNotAcquired].
	ErrRunning = errors.New("jobs: an earlier run still holds the lock")
)

// Job is work with a schedule. Any number of goroutines may use it.
type Job struct {
	name     string
	err      error // why no method works
	lock     *rlock.Lock
	schedule Schedule
	options

	companion *companion.Companion
	clock     clock
	told      atomic.Bool // of another schedule
}

// Option is a setting of a [Job].
type Option func(*options)

type options struct {
	lock  []rlock.LockOption
	early time.Duration
	late  time.Duration // 0: no limit
	least bool
}

// WithLease sets the lease of the lock, see [rlock.WithLeaseTime]. It is the time for which a dead host
// keeps others from running. With [AtLeastOnce] it should be less than half of the time between two
// fires, or the next fire comes before another host can repeat the run of a dead one. The default is the
// lease time of the client.
func WithLease(d time.Duration) Option {
	return func(o *options) { o.lock = append(o.lock, rlock.WithLeaseTime(d)) }
}

// WithReplicas makes a claim, and the lock, count only when at least n replicas have it within timeout, as
// [rlock.WithReplicas] does. Without it, a failover to a replica that lacks the newest claim lets another
// host run that fire again. While there are too few replicas, a claim is sent again for 5 s. If the next
// fire is claimed by then, that one runs, and the fire before does not.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(o *options) { o.lock = append(o.lock, rlock.WithReplicas(n, timeout)) }
}

// WithEarly sets by how much a call of [Job.Do], [Job.Begin] or [Job.Claim] may come before its fire,
// because the clock of the caller's scheduler is ahead of the server's. The default is 10 s. It is never
// more than half of the time from one fire to the next.
func WithEarly(d time.Duration) Option { return func(o *options) { o.early = d } }

// WithLate drops a fire that no host has claimed until d after it. By default, and with 0, there is no
// limit: if all hosts were down, the first one that is back runs the newest missed fire.
func WithLate(d time.Duration) Option { return func(o *options) { o.late = d } }

// AtLeastOnce counts a fire as finished when the work has returned, with or without an error, and not
// before it begins. If the host dies or loses its lock before that, another host runs the fire again. To be
// there in that case, the other hosts wait for the lock until the next fire: a call of [Job.Do] may take
// that long.
func AtLeastOnce() Option { return func(o *options) { o.least = true } }

// New returns a job. It sends nothing. The name is that of a lock too, see [rlock.Client.NewLock]; the
// prefix of the client stands before it. A name, schedule or option that cannot work is
// [rlock.ErrInvalidOption] from every method.
//
// If hosts have different schedules for one name, a fire runs if it is later than all claimed before,
// whichever schedule it is of. The Logger of the client gets a warning, once.
func New(locks *rlock.Client, name string, schedule Schedule, opts ...Option) *Job {
	j := &Job{name: name, schedule: schedule, options: options{early: 10 * time.Second}}
	for _, o := range opts {
		if o == nil {
			j.refuse(errors.New("an option is nil"))
			return j
		}
		o(&j.options)
	}
	j.lock = locks.NewLock(name, append(j.options.lock, rlock.WithoutHandoff(), rlock.WithPurpose("job"))...)
	j.companion, j.err = companion.Of(j.lock, "fire")
	switch why := check(schedule); {
	case j.err != nil:
	case why != nil:
		j.refuse(why)
	case j.early < 0 || j.late < 0:
		j.refuse(fmt.Errorf("WithEarly(%v), WithLate(%v): a negative time", j.early, j.late))
	}
	return j
}

func (j *Job) refuse(why error) {
	j.err = fmt.Errorf("%w: job %s: %w", rlock.ErrInvalidOption, strconv.Quote(j.name), why)
}

// Run is the scheduler of the job on this host. It sleeps until each fire by the clock of the server,
// claims the fire, and calls fn if this host has it. ctx of fn owns the lock: it ends if the lock is lost,
// and fn must return then.
//
// Run returns when ctx ends, with the cause of that; when fn returns an error, with that error, unless it
// is only that of the end of ctx after the lock was lost; or when the schedule has no more fires, with nil.
// Run does not return while Redis cannot be reached: it goes on trying, and then runs the newest fire that
// no host has claimed. So does a Run that begins when fires were missed by all hosts; not if the job has
// never run. See [WithLate].
//
// Beside the calls of fn, a fire costs one round trip. A fire that this host has costs three. The clock
// costs one every ten minutes. End ctx before you close the client: Run may not notice the Close for ten
// minutes.
func (j *Job) Run(ctx context.Context, fn func(ctx context.Context, fire time.Time) error) error {
	if j.err != nil {
		return j.err
	}
	var decided time.Time // no fire up to this one needs anything any more
	var fire time.Time
	var by string // of the claim of fire, which is the same until there is a reply
	for failures := 0; ; {
		var pause time.Duration
		now, err := j.now(ctx)
		if err == nil && decided.IsZero() {
			if decided, err = j.Newest(ctx); decided.IsZero() {
				decided = now
			}
		}
		if err == nil {
			next := j.due(decided, now)
			switch {
			case next.IsZero():
				return nil
			case next.After(now):
				pause = min(next.Sub(now), fresh) // and then the clock is asked for again
			case j.late > 0 && now.Sub(next) > j.late:
				decided = next
			default:
				if !next.Equal(fire) {
					fire, by = next, rand.Text()
				}
				var failed error
				if failed, err = j.attempt(ctx, fire, by, fn); failed != nil {
					return failed
				}
				if err == nil {
					decided = fire
				}
			}
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			failures = 0
		case errors.Is(err, rlock.ErrUnavailable), errors.Is(err, rlock.ErrNotReplicated), errors.Is(err, rlock.ErrLeaseLost):
			failures++
			pause = min(time.Duration(failures)*50*time.Millisecond, time.Second)
		default:
			return err
		}
		if !sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// attempt runs fn for a fire if this host has it. failed is the error of fn that ends Run. Without an err,
// nothing is left to do for the fire.
func (j *Job) attempt(ctx context.Context, fire time.Time, by string, fn func(context.Context, time.Time) error) (failed, err error) {
	run, err := j.begin(ctx, fire, by)
	switch {
	case errors.Is(err, ErrClaimed), errors.Is(err, ErrRunning):
		return nil, nil
	case err != nil:
		return nil, err
	}
	failed, unended := run.work(fn)
	if unended != nil {
		j.companion.Log().Warn("rlock: the run of a job did not end as it should", "job", j.name, "fire", fire, "error", unended)
	}
	if cause := context.Cause(run.held); errors.Is(failed, context.Canceled) && errors.Is(cause, rlock.ErrClosed) {
		failed = cause
	}
	if run.cut(failed) || ctx.Err() != nil {
		failed = nil
	}
	if j.least { // it may be unfinished, and this host the only one
		return failed, unended
	}
	return failed, nil
}

// due returns the first fire after another. If that is over, and others as well, it returns the newest of
// them.
func (j *Job) due(after, now time.Time) time.Time {
	fire := j.schedule.Next(after)
	if next := j.schedule.Next(fire); !fire.IsZero() && !next.IsZero() && !next.After(now) {
		return last(j.schedule, now)
	}
	return fire
}

// sleep returns false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Do is for another scheduler, such as cron, gocron or a timer of systemd, that calls it at each fire on
// each host. If this host is the first to call for the fire, Do calls fn, and ran is true. ctx of fn owns
// the lock. If another host has the fire, Do returns false and no error.
//
// Do means the newest fire by the clock of the server, or the next one if that is nearer than [WithEarly].
// So a call may be early or late by a few seconds, and no fire is skipped.
//
// The error is that of fn, joined with that of [rlock.Hold.Unlock]. If ran is false, it is [ErrRunning];
// [rlock.ErrUnavailable] if Redis did not answer for up to 5 s, and then no later call may run this fire;
// [rlock.ErrNotReplicated], [rlock.ErrKeyConflict], [rlock.ErrClosed] or [rlock.ErrInvalidOption].
//
// It costs one round trip if another host has the fire, and three otherwise. [AtLeastOnce] costs one or
// five. The clock costs one more in the first call, and every ten minutes.
func (j *Job) Do(ctx context.Context, fn func(ctx context.Context, fire time.Time) error) (ran bool, err error) {
	_, run, err := j.Begin(ctx)
	switch {
	case errors.Is(err, ErrClaimed):
		return false, nil
	case err != nil:
		return false, err
	}
	failed, unended := run.work(fn)
	if errors.Is(failed, unended) { // fn has returned why the lock was lost
		unended = nil
	}
	return true, errors.Join(failed, unended)
}

// Begin is [Job.Do] for a caller that cannot pass a function, such as a Locker of gocron. The returned
// context owns the lock. The caller must call [Run.End] when the work has ended. [ErrClaimed] means that
// this host must not run. The other errors are those of Do. With an error, the context passed in comes
// back.
func (j *Job) Begin(ctx context.Context) (context.Context, *Run, error) {
	fire, err := j.meant(ctx)
	if err != nil {
		return ctx, nil, err
	}
	run, err := j.begin(ctx, fire, rand.Text())
	if err != nil {
		return ctx, nil, err
	}
	return run.held, run, nil
}

// Claim claims the fire that a call of [Job.Do] would run, and does nothing else: there is no lock that
// keeps the run of the next fire out. [ErrClaimed] means that this host must not run. It is for
// programs with a lock of their own, and takes one round trip.
func (j *Job) Claim(ctx context.Context) (fire time.Time, err error) {
	if fire, err = j.meant(ctx); err != nil {
		return time.Time{}, err
	}
	switch won, err := j.claim(ctx, fire, rand.Text()); {
	case err != nil:
		return time.Time{}, err
	case !won:
		return time.Time{}, ErrClaimed
	}
	return fire, nil
}

// Newest returns the newest fire that a host has claimed, or with [AtLeastOnce] has finished. It is the zero
// time before the first. It takes one round trip.
func (j *Job) Newest(ctx context.Context) (time.Time, error) {
	if j.err != nil {
		return time.Time{}, j.err
	}
	_, newest, err := j.send(ctx, j.companion.Run, read)
	return newest, err
}

// meant returns the fire that is meant by a call now: the newest, or the next one if that is near.
// Without the latter, of calls that come within 2 ms of the fire a quarter would mean the fire before:
//
//	clock of host A: 3 ms ahead    Do at 11:59:59.998 means 11:59, which is claimed: nothing runs
//	clock of host B: 4 ms ahead    Do at 11:59:59.997 means 11:59: nothing runs at 12:00
func (j *Job) meant(ctx context.Context) (time.Time, error) {
	if j.err != nil {
		return time.Time{}, j.err
	}
	now, err := j.now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	newest, next := last(j.schedule, now), j.schedule.Next(now)
	early := j.early
	if !newest.IsZero() {
		early = min(early, next.Sub(newest)/2)
	}
	switch {
	case !next.IsZero() && next.Sub(now) <= early:
		return next, nil
	case newest.IsZero(), j.late > 0 && now.Sub(newest) > j.late:
		return time.Time{}, ErrClaimed
	}
	return newest, nil
}

// begin makes the fire this host's, for the attempt by.
func (j *Job) begin(ctx context.Context, fire time.Time, by string) (*Run, error) {
	acquire := j.lock.TryLock
	if j.least {
		if over, err := j.finished(ctx, fire); over || err != nil {
			return nil, cmp.Or(err, ErrClaimed)
		}
		acquire = j.lock.Lock
		if next := j.schedule.Next(fire); !next.IsZero() {
			now, err := j.now(ctx)
			if err != nil {
				return nil, err
			}
			// No longer: the host that gets the lock then runs the next fire. No less: if a second host
			// dies as well, there must be a third one.
			acquire = func(ctx context.Context) (context.Context, *rlock.Hold, error) {
				return j.lock.TryLockFor(ctx, max(next.Sub(now), 0))
			}
		}
	} else if won, err := j.claim(ctx, fire, by); !won || err != nil {
		return nil, cmp.Or(err, ErrClaimed)
	}
	held, hold, err := acquire(ctx)
	if errors.Is(err, rlock.ErrNotAcquired) {
		return nil, fmt.Errorf("%w: %w", ErrRunning, err)
	}
	if err == nil && j.least { // the holder before may have finished it
		var over bool
		if over, err = j.finished(held, fire); over || err != nil {
			_ = hold.Unlock(held)
			err = cmp.Or(err, ErrClaimed)
		}
	}
	if err != nil {
		return nil, err
	}
	return &Run{j, hold, held, fire}, nil
}

// Run is the work for one fire on this host. See [Job.Begin].
type Run struct {
	job  *Job
	hold *rlock.Hold
	held context.Context
	fire time.Time
}

// Fire returns the moment at which the schedule has the job run.
func (r *Run) Fire() time.Time { return r.fire }

// End releases the lock, after the work has ended. With [AtLeastOnce] it notes first that the fire is
// finished. The error is that of [rlock.Hold.Unlock], or says that the fire could not be noted, so that it
// may run again. Only the values of ctx are used.
func (r *Run) End(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var unnoted error
	if r.job.least && !r.lost() {
		unnoted = r.job.finish(ctx, r.fire, r.hold.Owner())
	}
	return errors.Join(unnoted, r.hold.Unlock(ctx))
}

func (r *Run) lost() bool {
	return r.held.Err() != nil && errors.Is(context.Cause(r.held), rlock.ErrLeaseLost)
}

// cut reports whether the work failed because the lock was lost.
func (r *Run) cut(failed error) bool {
	return r.lost() && (errors.Is(failed, context.Canceled) || errors.Is(failed, rlock.ErrLeaseLost))
}

// work calls fn, and ends the run.
func (r *Run) work(fn func(context.Context, time.Time) error) (failed, unended error) {
	returned := false
	defer func() {
		if !returned { // fn has panicked, or ended the goroutine: the fire is not finished
			_ = r.hold.Unlock(r.held)
		}
	}()
	failed = fn(r.held, r.fire)
	returned = true
	return failed, r.End(r.held)
}
