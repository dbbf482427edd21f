package lua

import (
	"context"
	_ "embed"
	"time"
)

//go:embed fair.lua
var fairSource string

//go:embed fair_acquire.lua
var fairAcquireSource string

//go:embed fair_keep.lua
var fairKeepSource string

//go:embed fair_release.lua
var fairReleaseSource string

//go:embed fair_force.lua
var fairForceSource string

//go:embed fair_inspect.lua
var fairInspectSource string

var (
	fairAcquireScript = newScript("fair_acquire", kindSource+tokenSource+announceSource+fairSource+outcomeSource+fairAcquireSource, 4)
	fairKeepScript    = newScript("fair_keep", tokenSource+announceSource+fairSource+fairKeepSource, 3)
	fairReleaseScript = newScript("fair_release", tokenSource+announceSource+fairSource+fairReleaseSource, 1)
	fairForceScript   = newScript("fair_force", kindSource+tokenSource+announceSource+fairSource+fairForceSource, 1)
	fairInspectScript = newScript("fair_inspect", fairInspectSource, 4)
)

// Fair names one acquisition of a fair lock, which owners hold in the order in
// which they came to the server: who has to wait leaves a ticket there, and the
// release grants the lock to the first one that is alive. The lock itself is that
// of a [Grant], so Count and Renew are for both kinds, and the two exclude each
// other; but who does not queue may overtake.
type Fair struct {
	Grant              // Channel hears of a release after which nobody queues
	Queue    string    // tickets in the order of their arrival
	Tickets  string    // what there is to know of each
	Calls    string    // channel of grants, less the colon and the owner's client id
	Redisson [2]string // keys of Redisson's fair lock of that name; while they exist, nothing is granted
}

// Ticket says how an owner waits.
type Ticket struct {
	Life  time.Duration // it is alive so long after it was last kept alive; 0: the owner does not wait
	Claim time.Duration // lease with which the lock is granted to it
}

// memory is how long a queue remembers its order, in lives of a ticket.
const memory = 10

// keys are those of every fair script; more come between them and the counter.
func (f Fair) keys(more ...string) []string {
	keys := append([]string{f.Key, f.Queue, f.Tickets}, more...)
	if f.Counter != "" {
		keys = append(keys, f.Counter)
	}
	return keys
}

// args are what follows the lease in every fair script.
func (f Fair) args(more ...any) []any {
	return append([]any{f.Owner, f.Family.publish(), f.Calls + ":", CounterTTL.Milliseconds()}, more...)
}

func (f Fair) run(ctx context.Context, r Runner, s script, keys []string, lease time.Duration, more ...any) (reply, error) {
	return s.run(ctx, r, keys, append([]any{millis(lease)}, f.args(more...)...)...)
}

// FairReply is the answer to AcquireFair.
type FairReply struct {
	Reply
	Time  int64 // the server's clock, in microseconds
	First bool  // of the tickets, the owner's is the first
}

// AcquireFair takes the lock for f.Owner if it is free and nobody was there
// before, or takes a ticket. The ticket of an owner that has one is kept alive
// and keeps its place; an owner that holds the lock succeeds, as with Acquire.
func AcquireFair(ctx context.Context, r Runner, f Fair, lease time.Duration, t Ticket) (FairReply, error) {
	reply, err := f.run(ctx, r, fairAcquireScript, f.keys(f.Redisson[:]...), lease,
		t.Life.Milliseconds(), millis(t.Claim), memory*t.Life.Milliseconds())
	a, err := granted(reply, err)
	return FairReply{Reply: a, Time: reply.int(2), First: reply.int(3) == 1}, err
}

// KeepTicket returns what keeps the ticket of f.Owner alive, for [Renew]: lease is
// its life, ErrNotOwner says that there is none. told hears of the answer, from
// the goroutine that sent it: whether the lock is granted to the owner by now, and
// the server's clock.
func KeepTicket(f Fair, life time.Duration, told func(granted bool, time int64)) Renewal {
	return Renewal{
		Grant: f.Grant, Lease: life,
		other: &fairKeepScript, keys: f.keys()[1:], args: f.args(memory * life.Milliseconds())[1:],
		read: func(r reply) error {
			if r.status() == refused {
				return ErrNotOwner
			}
			told(r.int(1) == 1, r.int(2))
			return nil
		},
	}
}

// FairReleased is the answer to ReleaseFair.
type FairReleased struct {
	Released
	Call string // message to the next owner, if that is of f.Owner's client: it was not sent, or is its name alone
}

// ReleaseFair is Release, and takes the owner's ticket out if there is one; what
// is free after that goes to the next. ErrNotOwner: f.Owner did not hold the lock; an
// earlier delivery may have released it, and granted it to the owner in Call. The
// tickets of heirs, who have had the lock in its place, are taken out as well.
func ReleaseFair(ctx context.Context, r Runner, f Fair, heirs []string) (FairReleased, error) {
	args := []any{f.Channel}
	for _, heir := range heirs {
		args = append(args, heir)
	}
	reply, err := f.run(ctx, r, fairReleaseScript, f.keys(), 0, args...)
	released, err := announced(f.Grant, reply, err)
	switch {
	case err == ErrNotOwner:
		return FairReleased{Call: reply.text(1)}, err
	case err != nil || released.PublishErr != nil:
		return FairReleased{Released: released}, err
	}
	return FairReleased{Released: released, Call: reply.text(2)}, nil
}

// ForceReleaseFair is ForceRelease; the lock goes to the next.
func ForceReleaseFair(ctx context.Context, r Runner, f Fair) (bool, error) {
	reply, err := f.run(ctx, r, fairForceScript, f.keys(), 0, f.Channel)
	if err != nil {
		return false, err
	}
	return reply.status() == done, nil
}

// InspectFair is Inspect, with the length of the queue for Subscribers: tickets
// that are dead count until they come to its head.
func InspectFair(ctx context.Context, r Runner, f Fair) (State, error) {
	reply, err := fairInspectScript.run(ctx, r, append([]string{f.Key, f.Queue}, f.Grant.keys()[1:]...))
	if err != nil {
		return State{}, err
	}
	return reply.state(f.Key, holdCount)
}
