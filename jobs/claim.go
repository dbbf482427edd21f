package jobs

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/rlock"
)

// The companion of a job's lock has the newest fire that a host has claimed, or with AtLeastOnce has
// finished:
//
//	fire  its time, in milliseconds since 1970
//	next  the fire after it, 0 without one, by which another schedule is noticed
//	by    the claim that won, or the owner that has finished the fire
//
// A claim has one key on purpose: a script with two fails while a cluster slot moves. It may be executed
// twice, because the second time finds its own "by". It may be executed late, because of the deadline:
//
//	host A: claims the fire of 3:00, the request is held up
//	host A: gives up at 3:00:05
//	Redis:  executes the request at 3:10, and claims nothing
//	host B: starts at 3:15, claims the fire of 3:00, and runs
var (
	//go:embed claim.lua
	claimSource string
	claim       = companion.NewScript(claimSource)

	//go:embed finish.lua
	finishSource string
	finish       = companion.NewScript(finishSource)

	//go:embed read.lua
	readSource string
	read       = companion.NewScript(readSource)
)

const (
	refused = iota // of claim: another host's; of finish: the lock was lost
	done
	tooLate
)

// patience is how long a claim is tried, or until its caller's ctx ends. After that it has no effect.
const patience = 5 * time.Second

// claim claims a fire for the attempt by, and reports whether it did. The same attempt may claim again.
func (j *Job) claim(ctx context.Context, fire time.Time, by string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	end, _ := ctx.Deadline()
	for again := false; ; {
		now, err := j.now(ctx)
		if err != nil {
			return false, err
		}
		outcome, _, err := j.send(ctx, j.companion.RunReplicated, claim,
			millis(fire), by, now.Add(time.Until(end)).UnixMilli(), millis(j.schedule.Next(fire)), j.life(fire))
		switch {
		case errors.Is(err, rlock.ErrNotReplicated) && sleep(ctx, 50*time.Millisecond):
			// It may be claimed at the master, where no other host can claim it. So this host must go on.
		case err != nil:
			return false, err
		case outcome != tooLate:
			return outcome == done, nil
		case again:
			return false, fmt.Errorf("%w: job %s: the claim of a fire came too late: requests take longer than %v, or the clock of the server jumps",
				rlock.ErrUnavailable, strconv.Quote(j.name), patience)
		default: // the server's clock was set forward, and the reply has corrected ours
			again = true
		}
	}
}

// finished reports whether a fire is finished, or a newer one.
func (j *Job) finished(ctx context.Context, fire time.Time) (bool, error) {
	_, newest, err := j.send(ctx, j.companion.Run, read)
	return !newest.Before(fire), err
}

// finish notes that a fire is finished, if the owner still holds the lock.
func (j *Job) finish(ctx context.Context, fire time.Time, owner string) error {
	outcome, _, err := j.send(ctx, j.companion.RunHeld, finish, millis(fire), owner, millis(j.schedule.Next(fire)), j.life(fire))
	if err == nil && outcome == refused {
		err = fmt.Errorf("%w: job %s: the fire of %v is not noted as finished", rlock.ErrLeaseLost, strconv.Quote(j.name), fire)
	}
	return err
}

// send runs a script, and returns its outcome and the newest fire before it. The reply also sets the clock,
// and shows whether that fire is of another schedule.
func (j *Job) send(ctx context.Context, run func(context.Context, *companion.Script, ...any) (any, error), s *companion.Script, args ...any) (int64, time.Time, error) {
	asked := time.Now()
	reply, err := run(ctx, s, args...)
	if err != nil {
		return refused, time.Time{}, err
	}
	n := make([]int64, 4)
	for i, v := range reply.([]any) {
		n[i] = v.(int64)
	}
	j.clock.set(time.UnixMilli(n[1]), asked)
	if n[2] == 0 {
		return n[0], time.Time{}, nil
	}
	newest := time.UnixMilli(n[2])
	same := millis(j.schedule.Next(newest.Add(-time.Millisecond))) == n[2] && millis(j.schedule.Next(newest)) == n[3]
	if !same && j.told.CompareAndSwap(false, true) {
		j.companion.Log().Warn("rlock: the newest fire of the job is of another schedule: all hosts must have the same, also the same time zone; after a change of the schedule this is normal",
			"job", j.name, "fire", newest)
	}
	return n[0], newest, nil
}

// kept is how long after the next fire Redis still has the note of a fire.
const kept = 366 * 24 * time.Hour

// life is how long Redis keeps the note of a fire, in milliseconds. A host that finds no note takes the job for
// one that has never run, and runs no earlier fire. So the note must last as long as all hosts may be down, which
// has nothing to do with the time to the next fire. On weekdays at 9:00 and 17:00, with twice that time:
//
//	Friday 9:00    host A claims the fire, and the note is kept until Saturday 1:00
//	Friday 12:00   all hosts go down
//	Monday 8:00    host A is back, finds no note, and does not run the missed fire of Friday 17:00
func (j *Job) life(fire time.Time) int64 {
	life := horizon
	if next := j.schedule.Next(fire); !next.IsZero() {
		life = next.Sub(fire) + kept
	}
	return life.Milliseconds()
}

// millis is the time for Redis, 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// clock is the server's clock, reckoned from the newest reply.
type clock struct {
	mu    sync.Mutex    // guards what follows
	base  time.Time     // when the reply came
	shift time.Duration // of the server's clock from this host's wall clock
}

// fresh is for how long a reply is good for: the rates of two clocks differ by a few milliseconds in that
// time.
const fresh = 10 * time.Minute

// set notes the server's time in the reply to a request of asked.
func (c *clock) set(server, asked time.Time) {
	answered := time.Now()
	took := answered.Sub(asked)
	shift := server.Sub(answered.Round(0)) + took/2
	c.mu.Lock()
	defer c.mu.Unlock()
	// A reply that took long says less than what is known already, unless that contradicts it.
	if took > 50*time.Millisecond && c.known(answered) && (c.shift-shift).Abs() <= took/2 {
		return
	}
	c.base, c.shift = answered, shift
}

// read returns the server's time, and false if that must be asked for.
func (c *clock) read() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return c.base.Round(0).Add(now.Sub(c.base) + c.shift), c.known(now)
}

// known reports whether the newest reply is good for now. mu is held.
func (c *clock) known(now time.Time) bool {
	// The monotonic clock stands still while a machine is suspended, and the wall clock may be set.
	passed, wall := now.Sub(c.base), now.Round(0).Sub(c.base.Round(0))
	return !c.base.IsZero() && passed < fresh && (wall-passed).Abs() <= 10*time.Millisecond
}

// now returns the server's time. That is one round trip if there was no reply for ten minutes.
func (j *Job) now(ctx context.Context) (time.Time, error) {
	if now, ok := j.clock.read(); ok {
		return now, nil
	}
	_, _, err := j.send(ctx, j.companion.Run, read)
	now, _ := j.clock.read() // also if the wall clock is being set
	return now, err
}
