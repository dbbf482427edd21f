package rlock

import (
	"context"
	"errors"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// ticketLife is how long a ticket in a fair lock's queue outlives a waiter that is
// gone, and the longest that a grant does which nobody claims. As both are the
// same, all waiters of a process that dies cost one such time together: when the
// grant to the first of them has ended, the tickets of the others are dead.
const ticketLife = 6 * time.Second

// NewFairLock returns a lock that is granted in the order in which its waiters
// came to the server, over all processes. A release grants it to the first
// waiter, who enters on the message alone, and wakes nobody else, so the cost of a
// hand-over does not grow with the number of waiters: two commands, the release
// and the next acquisition of whoever has released. If the next is a goroutine of
// the same client, the answer to the release is the message; and goroutines of that
// client who follow it, with nobody of another between them, pass the lock on in
// memory, unless it is fenced or has [WithoutHandoff]. Whoever asks for it meanwhile
// goes to the server when that is over, or after 2 ms, together with the others who do:
// one command for many, if that is a single server that answers swiftly. For the
// methods and the options see [Client.NewLock].
//
// Every waiting call stands in the queue for itself, also those of one client. It
// keeps its place, and says every 2 s that it is still there, until it acquires
// the lock or gives up. What can cost it its place is 6 s of silence: Redis out of
// reach, or a process that stands still; it then starts again at the end.
// [Lock.TryLock] does not queue, and succeeds only if nobody does.
//
//   - A waiter that dies delays those behind it by its claim, which is the lease
//     but at most 6 s, and only if it was the next; all waiters of a process that
//     dies cost that once.
//   - A waiter that gives up takes its ticket out, or passes on what it was granted
//     in that moment. If Redis cannot be reached, that is as if it had died.
//   - A holder that dies delays the first waiter by what is left of its lease and
//     at most 2 s, the time in which one waiter or other asks.
//   - A lost message delays its addressee by 2 s.
//   - A lock that is removed while it is passed on in memory delays the next by a
//     claim, as the server may grant it to one who has just had it.
//   - The lease of a hold that was granted by a message begins with the claim, and
//     becomes the one asked for at the first renewal, 1 to 2 s later. With
//     [WithoutRenewal] the waiter asks once more for the full lease.
//
// The time of the server is the only one that counts, and nothing stays there for
// longer than a minute after the last waiter.
//
// The lock is the one of [Client.NewLock] with that name, so the two exclude and
// wake each other, nest, and can be inspected alike; but who takes it by NewLock,
// or by Redisson's getLock, does not queue and may overtake those who do. Redisson's
// own fair lock queues in another way. While its queue exists for a name, that name
// is [ErrKeyConflict].
func (c *Client) NewFairLock(name string, opts ...LockOption) *Lock {
	l := c.newLock(name, opts)
	l.apart, l.grouped = true, true
	switch {
	case l.handoff.most > 0, l.handoff.longest > 0:
		l.refuse(errors.New("WithHandoff: a fair lock goes to whoever is next, in whatever process"))
	case l.replicas.n > 0:
		l.refuse(errors.New("WithReplicas: a fair lock is granted by the release of another, which does not wait for replicas"))
	case l.polling != nil:
		l.refuse(errors.New("WithPolling: a fair lock is granted by a message"))
	}
	p := newPlain(c, c.opts.Prefix+name, l.fenced)
	key := p.grant.Key
	l.protocol = &fair{plain: p, lock: l, names: lua.Fair{
		Grant:   p.grant,
		Queue:   related("rlock_fair_queue", key),
		Tickets: related("rlock_fair_tickets", key),
		Calls:   related("rlock_fair_channel", key),
		Redisson: [2]string{
			related("redisson_lock_queue", key),
			related("redisson_lock_timeout", key),
		},
	}}
	return l
}

// fair is a plain lock with a queue on the server.
type fair struct {
	*plain
	lock  *Lock
	names lua.Fair // without owner
}

func (f *fair) of(owner string) lua.Fair {
	names := f.names
	names.Owner, names.Family = owner, f.client.family.now()
	return names
}

// acquire asks. The first in the queue asks again when the holder's lease is over;
// those behind leave that to the renewal of their tickets.
func (f *fair) acquire(ctx context.Context, owner string, lease time.Duration, _ terms) (reply, error) {
	t := f.client.tickets.of(owner)
	if t == nil { // does not wait, or not any more
		r, err := lua.AcquireFair(ctx, f.client.scripts, f.of(owner), lease, lua.Ticket{})
		return reply{Reply: r.Reply}, err
	}
	t.joinEarly()
	if r, prompt := ctx.(*request); prompt {
		r.fair = f.lock
	}
	sent := time.Now()
	r, err := lua.AcquireFair(ctx, f.client.scripts, f.of(owner), lease,
		lua.Ticket{Life: ticketLife, Claim: min(ticketLife, lease)})
	if err != nil || r.Acquired {
		return reply{Reply: r.Reply}, err
	}
	t.refused(sent, r.Time)
	refusal := reply{Reply: r.Reply, queued: true}
	if !r.First {
		refusal.rest = maxPause
	}
	return refusal, nil
}

func (f *fair) called(owner string) (reply, bool) {
	t := f.client.tickets.of(owner)
	if t == nil {
		return reply{}, false
	}
	return t.granted()
}

// release brings the message in the answer to its addressee. If the answer is lost,
// that of the repetition names the addressee, who asks then.
func (f *fair) release(ctx context.Context, owner string, heirs []string) (lua.Released, error) {
	r, err := lua.ReleaseFair(ctx, f.client.scripts, f.of(owner), heirs)
	if r.Call != "" {
		f.client.tickets.tell(r.Call)
	}
	return r.Released, err
}

func (f *fair) listen(owner string) ear { return f.client.tickets.open(f, owner) }

func (f *fair) force(ctx context.Context) (bool, error) {
	return lua.ForceReleaseFair(ctx, f.client.rdb, f.of(""))
}

func (f *fair) inspect(ctx context.Context) (lua.State, error) {
	return lua.InspectFair(ctx, f.client.rdb, f.of(""))
}

// channel is where this client hears of its grants.
func (f *fair) channel() string { return f.names.Calls + ":" + f.client.id }
