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

// State is the server's view of a lock.
type State struct {
	Name    string
	Holds   map[string]int64 // hold count by owner, 0 if the owner's client may be keeping the lock without a hold; empty if the lock is free
	Shared  map[string]int64 // of a read/write lock: how many of an owner's holds are a reader's
	TTL     time.Duration    // the rest of the lease; negative without an end, 0 if the lock is free
	Token   int64            // newest fencing token given out or reserved for a hand-off, 0 without fencing
	Waiters int64            // tickets in the queue, and connections that listen for a release, each for any number of waiters; -1 if the server does not tell
}

// Owner returns the owner, "" if the lock is free.
func (s State) Owner() string {
	for owner := range s.Holds {
		return owner
	}
	return ""
}

// Inspect reads the lock from the server, in one round trip. A replica's answer may be stale;
// nothing should be decided by the answer. The state of a quorum lock is the state that a majority
// of the servers agree on; the error is [ErrUnavailable] if a silent server could make the majority
// for a holder.
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

// ForceUnlock removes the lock of any holder, and wakes a waiter. ForceUnlock reports whether the
// lock was held. A holder of this client from before the call learns of the removal at once. Holders
// of other clients learn of the removal at their next renewal, at the latest, or without renewal at
// the end of the lease; until then they may go on. [ErrUnavailable] leaves the removal open: the
// request is never repeated, as a repetition could remove the next grant as well.
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

// removed ends the grants of this client whose owners do not have the lock any more.
func (l *Lock) removed(owners ...string) {
	var held []*grant
	var parked *grant
	l.withQueue(func(q *queue) {
		if k := q.kept; k != nil && slices.Contains(owners, k.owner) {
			parked = k.stop()
		}
		for _, g := range q.grants {
			if g != parked && slices.Contains(owners, g.owner) {
				held = append(held, g)
			}
		}
	})
	if parked != nil && parked.giveUp() {
		parked.entry.Stop()
		parked.sweepPassed()
		parked.finish()
	}
	for _, g := range held {
		g.lose(errGone)
	}
}

// UnlockOwner is [Lock.ForceUnlock] for one owner, as shown by [State]: nothing happens if another
// owner holds the lock by now, or the lock is of another kind. UnlockOwner takes two round
// trips, the first for a look at the lock.
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
