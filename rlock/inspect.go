package rlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// State is what Redis knows about a lock.
type State struct {
	Name    string
	Holds   map[string]int64 // hold count of each owner; 0 if its client may be keeping the lock without a hold, see [WithRetention]; empty if the lock is free
	Shared  map[string]int64 // for a read/write lock: how many of each owner's holds are for reading
	TTL     time.Duration    // the rest of the lease; negative if the lease has no end, 0 if the lock is free
	Token   int64            // the latest fencing token that was given out, or reserved for a hand-off; 0 without [WithFencing]
	Waiters int64            // number of entries in the queue and of connections that wait for a release, each of which can stand for several waiters; -1 if it is not known
}

// Owner returns the name of the owner, or "" if the lock is free.
func (s State) Owner() string {
	for owner := range s.Holds {
		return owner
	}
	return ""
}

// Inspect reads the state of the lock from Redis, in one round trip. A replica may return an outdated
// state, and any state may be outdated when it arrives, so use it only for display. For a quorum lock,
// the state is the state that a majority of the servers reports. If a server that does not answer could
// make up the majority for a holder, the error is [ErrUnavailable].
func (l *Lock) Inspect(ctx context.Context) (State, error) {
	s, err := askOnce(ctx, l, l.inspect)
	if err != nil {
		return State{}, err
	}
	return State{Name: l.name, Holds: s.Holds, Shared: s.Shared, TTL: s.TTL, Token: s.Token, Waiters: s.Waiters}, nil
}

func (l *Lock) inspect(ctx context.Context, _ lua.Runner) (lua.State, error) {
	return l.wire.Inspect(ctx)
}

// ForceUnlock removes the lock, whichever client holds it, and wakes a waiter. It reports whether the
// lock was held. If a goroutine of this client held the lock before the call, its context ends at once.
// Holders in other clients notice the removal at their next renewal, within a third of the lease, and
// continue to work until then. A holder without renewal notices it only when its context ends.
// [ErrUnavailable] means that it is not known whether the lock was removed. ForceUnlock never repeats
// its request, because a repeated request could remove the lock of the next holder as well.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	var before []string // no owner that has the lock now has it again
	was, err := askOnce(ctx, l, func(ctx context.Context, _ lua.Runner) (bool, error) {
		l.withQueue(func(q *queue) {
			for _, g := range q.grants {
				before = append(before, g.owner)
			}
		})
		return l.wire.Force(ctx)
	})
	if was {
		l.removed(before...)
	}
	return was, err
}

var errRemoved = fmt.Errorf("%w: this client has removed it", errGone)

// removed ends the grants of this client whose owners do not have the lock any more.
func (l *Lock) removed(owners ...string) {
	var held []*grant
	l.withQueue(func(q *queue) {
		for _, g := range q.grants {
			if slices.Contains(owners, g.owner) {
				held = append(held, g)
			}
		}
	})
	for _, g := range held {
		g.lose(errRemoved)
	}
}

// UnlockOwner removes the holds of one owner by force, as [Lock.ForceUnlock] removes those of any owner.
// You can read the name of the owner in [State]. UnlockOwner reports whether it released the lock. If
// another owner holds the lock by then, or if the lock is of another kind, UnlockOwner changes nothing.
// It takes two round trips, because it reads the state of the lock first.
func (l *Lock) UnlockOwner(ctx context.Context, owner string) (bool, error) {
	// The release of a plain lock does not look at the type of a key: the owners of plain locks are in
	// no other key. An owner given by hand may be; but an owner once seen in a lock of this kind
	// stays of this kind, for no owner is used again.
	s, err := askOnce(ctx, l, l.inspect)
	if _, held := s.Holds[owner]; err != nil || !held {
		return false, err
	}
	_, err = askOnce(ctx, l, func(ctx context.Context, r lua.Runner) (lua.Released, error) {
		return l.wire.Release(ctx, r, owner, lua.Ending{Evict: true})
	})
	if errors.Is(err, lua.ErrNotOwner) {
		return false, nil
	}
	if err == nil {
		l.removed(owner)
	}
	return err == nil, err
}

// askOnce makes a request a single time, bounded like any attempt.
func askOnce[T any](ctx context.Context, l *Lock, ask func(context.Context, lua.Runner) (T, error)) (T, error) {
	var none T
	if err := l.begin(); err != nil {
		return none, err
	}
	defer l.client.done()
	if ctx.Err() != nil {
		return none, fmt.Errorf("rlock: lock %s: %w", quote(l.name), ended(ctx))
	}
	value, err := attempt(ctx, l, kind.MaxAttempt, l.client.closing, ask, nil)
	switch o, _ := l.client.classify(err); {
	case err == nil:
		return value, nil
	case o == request.Answered:
		return value, l.translate(err)
	case err == request.ErrAbandoned, err == request.ErrNotSent:
		return none, l.givenUp(ctx, nil)
	}
	return none, &lockError{l.name, ErrUnavailable, l.advise(err)}
}
