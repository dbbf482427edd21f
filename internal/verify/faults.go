package verify

import (
	"context"
	"slices"
	"time"
)

// fault is a row of the matrix.
type fault struct {
	name     string
	lock     variety
	args     []string      // of redis-server
	kind     string        // of Redis client: see partner.connect
	leases   []string      // nil: from 300 ms to 3 s
	cancel   bool          // callers give up at any moment
	whole    bool          // no connection loses anything, so they stay when it is over
	hasty    bool          // half of the calls give up after 20 ms
	crowd    bool          // of clients: thousands
	lasts    time.Duration // 0: as long as others
	kills    bool          // processes
	steady   bool          // no subscription is cut or silent, nor any connection for longer than a request
	harmless bool          // no request is lost, so a refused TryLock proves that somebody holds the lock
	young    bool          // see rules
	alone    bool          // see aloneFaults
	fires    bool          // of jobs: see fireRows
	costs    *cost         // nil: that of one fault
	also     []variety     // kinds of lock, besides plain
	setUp    func(*world)
	strike   func(context.Context, *world) // until the context ends; then nothing of it may be left
}

// short are the leases of rows in which a lock becomes free without a message:
// a waiter then sleeps out the TTL that it saw, and that must not look like a
// wake-up that was missed.
var short = []string{"300ms", "600ms", "900ms"}

// matrix has all rows, by kind of lock and by group.
func matrix() []fault { return append(plainRows(), furtherKinds()...) }

func plainRows() []fault {
	return slices.Concat(serverFaults, replicaFaults, operatorFaults, refusalFaults, networkFaults, slowFaults, requestFaults, clientFaults, aloneFaults)
}

// between waits for a random time, and reports whether the fault is to go on.
func (w *world) between(ctx context.Context, least, most time.Duration) bool {
	pause(ctx, w.some(least, most))
	return ctx.Err() == nil
}

func (w *world) some(least, most time.Duration) time.Duration {
	return least + time.Duration(w.random.Int64N(int64(most-least)))
}

const ms = time.Millisecond

// again strikes at random moments until the time is up.
func again(least, most time.Duration, strike func(*world)) func(context.Context, *world) {
	return func(ctx context.Context, w *world) {
		for w.between(ctx, least, most) {
			strike(w)
			w.strikes++
		}
	}
}

// phases switches a fault on and off at random moments.
func phases(least, most time.Duration, on, off func(*world)) func(context.Context, *world) {
	return again(20*ms, 150*ms, func(w *world) {
		on(w)
		time.Sleep(w.some(least, most))
		off(w)
	})
}

// anyLock returns the name of one of the round's locks.
func (w *world) anyLock() string {
	names := w.job.names()
	return names[w.random.IntN(len(names))]
}
