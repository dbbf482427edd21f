// Package jobs runs work once at each time of a schedule, even if several hosts have the same schedule.
//
//	job := jobs.New(locks, "report", jobs.Every(time.Minute))
//	err := job.Run(ctx, func(ctx context.Context, fire time.Time) error { return report(ctx, fire) })
//
// A fire is a time at which the schedule says that the job must run. A lock prevents two runs at the same time,
// but it does not prevent a second host from running the job for the same fire after the first host has
// finished. So a host claims the fire before it runs the work. Redis stores the newest claimed fire next to the
// lock, and refuses a second claim of that fire and claims of all earlier fires. All hosts compute the fires
// from the schedule and the clock of the Redis server, so the clocks of the hosts can be wrong.
//
// A host that has claimed a fire acquires the lock with the name of the job, and runs the work while it holds
// the lock. So the runs of two fires do not overlap. If the lock is lost, the context of the work is canceled.
//
// # At most once, at least once
//
// By default, the work for a fire begins at most once. If a host dies during a run, the run is not repeated.
// However, if Redis loses its record of the newest claimed fire, a host may run that fire again. Use
// [WithReplicas] if a replica can become the master.
//
// With [AtLeastOnce] a fire counts as finished when the work has returned. If the host dies before its work has
// returned, or if a shutdown interrupts the work, another host runs the fire again. So with AtLeastOnce the work
// must be safe to repeat.
//
// All hosts must use the same schedule and the same options for a job name.
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
	// ErrClaimed means that this host must not run the job now, because another host has claimed this fire
	// (scheduled time), or because no fire is due. Do nothing.
	ErrClaimed = errors.New("jobs: another host has this fire")

	// ErrRunning means that an earlier run of the job still holds the lock, on this host or on another. By
	// default, the job then does not run for the fire (scheduled time) of this call. With [AtLeastOnce], the
	// call has waited for the lock until the next fire or until its ctx ended, and the run that holds the lock
	// may be a run of the same fire. The error also matches [rlock.ErrNotAcquired].
	ErrRunning = errors.New("jobs: an earlier run still holds the lock")
)

// Job is work with a schedule. Its methods are safe for concurrent use.
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

// Option is a setting for [New].
type Option func(*options)

type options struct {
	lock  []rlock.LockOption
	early time.Duration
	late  time.Duration // 0: no limit
	least bool
}

// WithLease sets the lease of the lock, see [rlock.WithLeaseTime]. If a host dies during a run, the other hosts
// cannot run the job until the lease ends. With [AtLeastOnce], use a lease of less than half of the time
// between two fires (scheduled times). With a longer lease, the next fire can come before another host has
// repeated the run of a dead host, and then only the next fire runs. The default is the lease time of the
// client.
func WithLease(d time.Duration) Option {
	return func(o *options) { o.lock = append(o.lock, rlock.WithLeaseTime(d)) }
}

// WithReplicas lets a host run a fire (scheduled time) only if at least n replicas have acknowledged its claim,
// and then the lock, within timeout. See [rlock.WithReplicas]. Without this option, a failover to a replica
// that lacks the newest claim lets another host run that fire again. While there are too few replicas, the host
// repeats the claim for up to 5 s. If another host claims the next fire during these 5 s, only the next fire
// runs.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(o *options) { o.lock = append(o.lock, rlock.WithReplicas(n, timeout)) }
}

// WithEarly sets how long before a fire (scheduled time) a call of [Job.Do], [Job.Begin] or [Job.Claim] counts
// for that fire. A call comes early if the clock of the caller's scheduler is ahead of the clock of the Redis
// server. The default is 10 s. If d is more than half of the time between two fires, half of the time between
// them is used. A negative d is [rlock.ErrInvalidOption].
func WithEarly(d time.Duration) Option { return func(o *options) { o.early = d } }

// WithLate drops a fire (scheduled time) if no host has claimed it within d after that time. By default, and if
// d is 0, a fire is never too late: if all hosts were down, the first host that is back runs the newest missed
// fire, and no earlier one.
// A negative d is [rlock.ErrInvalidOption].
func WithLate(d time.Duration) Option { return func(o *options) { o.late = d } }

// AtLeastOnce counts a fire (scheduled time) as finished only when its work has returned, with or without an
// error. However, if the context of the work has ended and the work then returns an error, the fire is not
// finished. The context ends if the ctx of [Job.Run] or [Job.Do] ends, if the client is closed or if the lock is
// lost. So return nil only if all the work is done. A closed client cannot record the end of the work, so wait for
// Run or Do before you close the client.
//
// If the host dies before the fire is finished, or if its work was interrupted in that way, another host runs the
// fire again. After a shutdown this is at once, because the lock is released. To take over, the other hosts wait
// for the lock until the next fire, so a call of [Job.Do] can take that long.
func AtLeastOnce() Option { return func(o *options) { o.least = true } }

// New returns a job. It sends nothing to Redis. name is the name of the job and of its lock, without the prefix
// of the client. See [rlock.Client.NewLock]. If the name, the schedule or an option is invalid, every method
// returns [rlock.ErrInvalidOption].
//
// If hosts have different schedules for one name, a fire (scheduled time) of any of these schedules runs if it
// is later than all fires that were claimed before. When a [Job] notices for the first time that another host
// has a different schedule, it logs a warning to the Logger of the client.
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

// Run is the scheduler of the job on this host. It sleeps until the next fire (scheduled time) by the clock of
// the Redis server, and then claims it. If no other host has claimed this fire, Run calls fn. The context that
// fn receives owns the lock. If the lock is lost, this context is canceled, and fn must return.
//
// Run returns in these cases:
//
//   - When ctx ends, Run returns the cause of that end.
//   - When fn returns an error, Run returns that error. However, if the lock was lost and fn returns the error
//     of its context, Run continues with the next fire.
//   - When the schedule has no more fires, Run returns nil.
//   - When an error cannot be cured by waiting, Run returns it. Examples are [rlock.ErrInvalidOption],
//     [rlock.ErrKeyConflict] and [rlock.ErrClosed].
//   - When Redis refuses the requests of Run, Run returns [rlock.ErrRefused]. It returns at once if Redis has
//     refused the first request. Otherwise Run first repeats its requests for 5 s, because the Redis user may be
//     in the process of being changed.
//
// While Redis cannot be reached, or while too few replicas acknowledge a claim, Run does not return but keeps
// trying. When this begins, Run logs a warning to the Logger of the client. If all hosts have missed fires,
// because Redis or the hosts were down, Run later runs the newest missed fire. [WithLate] limits how late this
// fire can run. A job that has never run begins with its next fire, and so does a job whose hosts were all down
// for more than a year.
//
// For each fire, Run takes one round trip on a host that does not run it. On the host that runs the fire, Run
// takes three round trips, or five with [AtLeastOnce]. In addition, Run reads the clock of the server every ten
// minutes, in one round trip. End ctx before you close the client, because Run may notice the Close only after
// ten minutes.
func (j *Job) Run(ctx context.Context, fn func(ctx context.Context, fire time.Time) error) error {
	if j.err != nil {
		return j.err
	}
	var decided time.Time // no fire up to this one needs anything any more
	var fire time.Time
	var by string // of the claim of fire, which is the same until there is a reply
	for bad := (trouble{job: j}); ; {
		var pause time.Duration
		now, err := j.now(ctx)
		if err == nil && decided.IsZero() {
			if decided, err = j.Newest(ctx); err == nil && decided.IsZero() {
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
			bad = trouble{job: j}
		case errors.Is(err, rlock.ErrUnavailable), errors.Is(err, rlock.ErrNotReplicated), errors.Is(err, rlock.ErrLeaseLost):
			if pause = bad.pause(err, decided.IsZero()); pause == 0 {
				return err
			}
		default:
			return err
		}
		if !sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// trouble is what Run knows of its requests that have failed, one after the other.
type trouble struct {
	job      *Job
	failures int
	refused  time.Time // since when Redis has refused all of them; zero if the newest had no answer
}

// pause notes a failure, and returns the pause until the next request; 0 if Run gives up. first says that no request
// has been answered before.
func (t *trouble) pause(err error, first bool) time.Duration {
	switch {
	case !errors.Is(err, rlock.ErrRefused):
		t.refused = time.Time{}
	case t.refused.IsZero():
		t.refused = time.Now()
	}
	// Like a call that waits for a lock: the user may be in the process of being changed.
	if !t.refused.IsZero() && (first || time.Since(t.refused) >= patience) {
		return 0
	}
	if t.failures++; t.failures == 1 {
		t.job.companion.Log().Warn("rlock: a request of a job has failed, and Run keeps trying", "job", t.job.name, "error", err)
	}
	return min(time.Duration(t.failures)*50*time.Millisecond, time.Second)
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

// Do is for programs that already have a scheduler, such as cron, gocron or a systemd timer. The scheduler
// calls Do on each host at each fire (scheduled time). The first host that claims the fire runs fn, and its
// call of Do returns true. The context that fn receives owns the lock. If another host has claimed the fire, Do
// returns false and no error.
//
// Do runs the newest fire by the clock of the Redis server. However, if the next fire comes within the time
// that [WithEarly] sets, Do runs the next fire. So the scheduler can call Do a few seconds early or late
// without skipping a fire.
//
// If fn was called, the error of Do is the error of fn, joined with the error of [rlock.Hold.Unlock]. If fn was
// not called, the error is one of these:
//
//   - [ErrRunning] means that an earlier run of the job still holds the lock.
//   - [rlock.ErrUnavailable] means that Redis did not answer, or refused a request. If Redis does not answer, Do
//     repeats the claim for up to 5 s, and every other request for as long as the lease of the lock, but at least
//     for 5 s. If Redis has executed the claim all the same, no host runs this fire.
//   - [rlock.ErrNotReplicated], [rlock.ErrKeyConflict], [rlock.ErrClosed] and [rlock.ErrInvalidOption] mean the
//     same as for [rlock.Lock.Lock].
//
// Do takes one round trip if another host has claimed the fire, and three in total if it calls fn. With
// [AtLeastOnce], Do takes one round trip if the fire is already finished, five if it calls fn, and at least
// four if it waits until another host has finished the fire. The first call of Do, and one call every ten
// minutes, take one more round trip to read the clock of the server.
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

// Begin is [Job.Do] for a caller that cannot pass a function, such as a Locker of gocron. The returned context
// owns the lock. The caller must call [Run.End] when the work has ended. [ErrClaimed] means that this host must
// not run the job now. The other errors are those that Do returns when it has not called its function. If Begin
// returns an error, the returned context is ctx, and there is no [Run] to end.
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

// Claim claims the fire (scheduled time) that a call of [Job.Do] would run, and does nothing else. Use it in
// programs that have a lock of their own, because Claim does not prevent two runs from overlapping.
// [ErrClaimed] means that this host must not run the job now. Claim takes one round trip.
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

// Newest returns the newest fire (scheduled time) that a host has claimed, or with [AtLeastOnce] the newest
// fire that a host has finished. If there is no such fire yet, Newest returns the zero time. It takes one round
// trip.
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

// Run is the work for one fire (scheduled time) on this host. [Job.Begin] returns it.
type Run struct {
	job  *Job
	hold *rlock.Hold
	held context.Context
	fire time.Time
}

// Fire returns the scheduled time of this run.
func (r *Run) Fire() time.Time { return r.fire }

// End releases the lock. Call it when the work has ended. With [AtLeastOnce], End first records in Redis that
// the fire is finished, even if the context of the work has ended. The exception is a lost lock. The error is the
// error of [rlock.Hold.Unlock], or says that End could not record the fire, so that a host may run the fire again.
// End works even if ctx has ended, because it uses only the values of ctx.
func (r *Run) End(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if !r.job.least || r.lost() {
		return r.hold.Unlock(ctx)
	}
	unnoted := r.job.finish(ctx, r.fire, r.hold.Owner())
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
	if failed != nil && r.held.Err() != nil { // a shutdown or a loss has cut the work short: the fire is not finished
		return failed, r.hold.Unlock(r.held)
	}
	return failed, r.End(r.held)
}
