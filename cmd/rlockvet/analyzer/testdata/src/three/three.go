// Package three has each of the three mistakes once, as a beginner makes them.
package three

import (
	"context"

	"github.com/go-rlock/rlock/rlock"
)

type shop struct {
	locks *rlock.Client
	stock *rlock.Lock
}

func (s *shop) outerContext(ctx context.Context) error {
	return s.stock.Do(ctx, func(held context.Context) error {
		if err := reserve(held); err != nil {
			return err
		}
		return s.stock.Do(ctx, reserve) // want `s.stock.Do under ctx waits for the lock that is held here, which ctx does not own; use held`
	})
}

func (s *shop) droppedContext(ctx context.Context) error {
	_, hold, err := s.stock.Lock(ctx) // want `the context that s.stock.Lock returns is dropped: the loss of the lock cannot end the work under it`
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	return reserve(ctx)
}

func (s *shop) missingUnlock(ctx context.Context) error {
	held, hold, err := s.stock.Lock(ctx) // want `hold of s.stock.Lock is not unlocked before the return in line 39`
	if err != nil {
		return err
	}
	if err := reserve(held); err != nil {
		return err
	}
	return hold.Unlock(ctx)
}

func reserve(context.Context) error { return nil }
