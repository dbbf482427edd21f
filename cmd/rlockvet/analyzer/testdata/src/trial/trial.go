// Package trial has 19 functions as users write them, each with one mistake.
package trial

import (
	"context"
	"errors"
	"log"

	"github.com/go-rlock/rlock/rlock"
)

type shop struct {
	locks        *rlock.Client
	stock, order *rlock.Lock
}

func reserve(context.Context) error { return nil }

func notify(context.Context) error { return nil }

// Going on without the lock.

func (s *shop) blankError(ctx context.Context) error {
	ctx, hold, _ := s.stock.TryLock(ctx) // want `the error of s.stock.TryLock is dropped: without the lock, the work goes on as well`
	err := reserve(ctx)
	return errors.Join(err, hold.Unlock(ctx))
}

func (s *shop) loggedIfFailed(ctx context.Context) (err error) {
	ctx, hold, failed := s.stock.TryLock(ctx) // want `if s.stock.TryLock fails, line 34 goes on without the lock`
	if failed != nil {
		log.Print("no lock: ", failed)
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	return reserve(ctx)
}

func (s *shop) logged(ctx context.Context) error {
	held, hold, err := s.stock.TryLock(ctx) // want `if s.stock.TryLock fails, line 41 goes on without the lock`
	log.Print("locked: ", err)
	err = reserve(held)
	return errors.Join(err, hold.Unlock(ctx))
}

// Redis may also have been away, or the client closed.
func (s *shop) onlyRefused(ctx context.Context) (err error) {
	ctx, hold, err := s.stock.TryLock(ctx) // want `if s.stock.TryLock fails, line 52 goes on without the lock`
	if errors.Is(err, rlock.ErrNotAcquired) {
		return nil
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	return reserve(ctx)
}

func (s *shop) neverLookedAt(ctx context.Context) error {
	held, hold, err := s.stock.Lock(ctx) // want `if s.stock.Lock fails, line 57 goes on without the lock`
	if work := reserve(held); work != nil {
		return errors.Join(work, hold.Unlock(ctx))
	}
	return errors.Join(err, hold.Unlock(ctx))
}

// The ended context.

func (s *shop) afterUnlock(ctx context.Context) error {
	ctx, hold, err := s.stock.Lock(ctx)
	if err != nil {
		return err
	}
	err = reserve(ctx)
	if err := errors.Join(err, hold.Unlock(ctx)); err != nil {
		return err
	}
	return notify(ctx) // want `ctx has ended, by hold.Unlock in line 71: use the context that was there before the lock`
}

func (s *shop) afterUnlockInLoop(ctx context.Context, orders []string) error {
	for range orders {
		var hold *rlock.Hold
		var err error
		ctx, hold, err = s.stock.Lock(ctx) // want `ctx has ended, by hold.Unlock in line 85`
		if err != nil {
			return err
		}
		if err := errors.Join(reserve(ctx), hold.Unlock(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func (s *shop) returned(ctx context.Context) (_ context.Context, err error) {
	held, hold, err := s.stock.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	return held, reserve(held) // want `held ends before it is returned, by the deferred hold.Unlock`
}

// The context of a branch.

func (s *shop) shadowed(ctx context.Context, exclusive bool) (err error) {
	if exclusive {
		ctx, hold, err := s.stock.Lock(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	}
	return reserve(ctx) // want `ctx is not the context of s.stock.Lock, which is another variable, of the block from line 104 on`
}

func (s *shop) shadowedInIf(ctx context.Context) (err error) {
	if ctx, hold, err := s.stock.Lock(ctx); err != nil {
		return err
	} else {
		defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	}
	return reserve(ctx) // want `ctx is not the context of s.stock.Lock, which is another variable`
}

// The dropped error of Unlock.

func (s *shop) deferred(ctx context.Context) error {
	ctx, hold, err := s.stock.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx) // want `the error of the deferred hold.Unlock is dropped: nothing else tells that the lock was lost`
	return reserve(ctx)
}

func (s *shop) deferredInFunction(ctx context.Context) error {
	ctx, hold, err := s.stock.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { // want `the error of the deferred hold.Unlock is dropped`
		hold.Unlock(ctx)
		log.Print("unlocked")
	}()
	return reserve(ctx)
}

// What was found before this trial.

func (s *shop) outerContext(ctx context.Context) error {
	return s.stock.Do(ctx, func(held context.Context) error {
		return errors.Join(reserve(held), s.stock.Do(ctx, reserve)) // want `s.stock.Do under ctx waits for the lock that is held here`
	})
}

func (s *shop) outerContextOther(ctx context.Context) error {
	return s.stock.Do(ctx, func(held context.Context) error {
		return errors.Join(reserve(held), s.order.Do(ctx, reserve)) // want `s.order.Do under ctx, which does not own the lock`
	})
}

func (s *shop) ignoredContext(ctx context.Context) error {
	return s.stock.Do(ctx, func(context.Context) error {
		return reserve(ctx) // want `the function does not use the context that it is given`
	})
}

func (s *shop) droppedContext(ctx context.Context) error {
	_, hold, err := s.stock.Lock(ctx) // want `the context that s.stock.Lock returns is dropped`
	if err != nil {
		return err
	}
	return errors.Join(reserve(ctx), hold.Unlock(ctx))
}

func (s *shop) droppedHold(ctx context.Context) error {
	held, _, err := s.stock.Lock(ctx) // want `the hold that s.stock.Lock returns is dropped`
	if err != nil {
		return err
	}
	return reserve(held)
}

func (s *shop) missingUnlock(ctx context.Context) error {
	held, hold, err := s.stock.Lock(ctx) // want `hold of s.stock.Lock is not unlocked before the return`
	if err != nil {
		return err
	}
	if err := reserve(held); err != nil {
		return err
	}
	return hold.Unlock(ctx)
}

func (s *shop) overwritten(ctx context.Context) error {
	held, hold, err := s.stock.Lock(ctx) // want `hold of s.stock.Lock is not unlocked before it is overwritten`
	if err != nil {
		return err
	}
	held, hold, err = s.order.Lock(held)
	if err != nil {
		return err
	}
	return errors.Join(reserve(held), hold.Unlock(ctx))
}
