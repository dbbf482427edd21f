// Package nightly runs a job once a night although every host starts it.
//
// The lock alone is not enough for that. It keeps two runs from overlapping; but
// the hosts' clocks differ, and a job that is shorter than the difference is over
// and its lock free when the next host starts. So the run is recorded, and looked
// for under the lock.
package nightly

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/rlock"
)

// New returns a function that does the work of a night unless it is done, and
// reports whether it was this call that did it.
//
// A night is named by the schedule, "2026-01-31", not by the clock of the host
// that starts it. A host that finds the work in progress looks again about every
// minute: should the one at work fail, or die, another one takes over. That ends
// after half an hour to an hour, with [rlock.ErrNotAcquired].
//
// The record belongs where the results are, in one transaction with them, if that
// can be. In Redis, as here, a host that dies after the work and before the
// record has it done twice.
func New(rdb redis.UniversalClient, locks *rlock.Client, work func(ctx context.Context, night string) error) func(ctx context.Context, night string) (ran bool, err error) {
	lockFor := func(night string) *rlock.Lock { return locks.NewLock("nightly:" + night) }
	return rlock.Guard(lockFor, func(ctx context.Context, night string) (ran bool, err error) {
		record := "nightly-done:" + night
		if n, err := rdb.Exists(ctx, record).Result(); err != nil || n > 0 {
			return false, err
		}
		if err := work(ctx, night); err != nil {
			return false, err
		}
		return true, rdb.Set(ctx, record, "", 48*time.Hour).Err() // longer than any host is late
	}, rlock.WithRetry(60, time.Minute))
}
