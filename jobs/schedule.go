package jobs

import (
	"errors"
	"fmt"
	"time"
)

// Schedule computes the fires of a job, which are the times at which the job must run. All hosts must have the
// same schedule. A cron.Schedule of github.com/robfig/cron/v3 implements Schedule.
type Schedule interface {
	// Next returns the first fire after t, or the zero time if there is none. All hosts must compute the same
	// fires, so a schedule that adds a duration to t is refused. Several goroutines may call Next at the same
	// time.
	Next(t time.Time) time.Time
}

// Every returns a schedule that fires at each multiple of d since the beginning of 1970 in UTC. So
// Every(time.Hour) fires at the full hour, and Every(24*time.Hour) at midnight UTC. d must be at least 10 ms,
// and a whole number of milliseconds.
func Every(d time.Duration) Schedule { return every(d) }

type every time.Duration

func (e every) Next(t time.Time) time.Time {
	d := max(time.Duration(e).Milliseconds(), 1)
	return time.UnixMilli((t.UnixMilli()/d + 1) * d)
}

// shortest is the least time between two fires. A claim on a loaded server takes some milliseconds.
const shortest = 10 * time.Millisecond

// check returns why a schedule cannot work.
func check(s Schedule) error {
	if s == nil {
		return errors.New("the schedule is nil")
	}
	if d, ok := s.(every); ok && (time.Duration(d) < shortest || time.Duration(d)%time.Millisecond != 0) {
		return fmt.Errorf("jobs.Every(%v): use at least %v, and whole milliseconds", time.Duration(d), shortest)
	}
	now := time.Now()
	fire := s.Next(now)
	if fire.IsZero() {
		return nil
	}
	if !fire.After(now) {
		return fmt.Errorf("Next(%v) of the schedule is not later", now)
	}
	if !s.Next(fire.Add(-time.Millisecond)).Equal(fire) {
		return errors.New("the schedule counts from the call, as @every of cron does, so each host would have fires of its own: use jobs.Every")
	}
	if next := s.Next(fire); !next.IsZero() && next.Sub(fire) < shortest {
		return fmt.Errorf("the schedule has a fire %v after another: use at least %v", next.Sub(fire), shortest)
	}
	return nil
}

// horizon is how far back last looks.
const horizon = 10 * 366 * 24 * time.Hour

// last returns the newest fire that is not after now, or the zero time if there was none before the
// horizon. It calls Next about 80 times at most.
func last(s Schedule, now time.Time) time.Time {
	fired := func(d time.Duration) bool { // in the last d
		next := s.Next(now.Add(-d))
		return !next.IsZero() && !next.After(now)
	}
	none, some := time.Duration(0), time.Millisecond
	for !fired(some) {
		if none, some = some, 2*some; some > horizon {
			return time.Time{}
		}
	}
	for some-none > time.Millisecond {
		if d := none + (some-none)/2; fired(d) {
			some = d
		} else {
			none = d
		}
	}
	return s.Next(now.Add(-some))
}
