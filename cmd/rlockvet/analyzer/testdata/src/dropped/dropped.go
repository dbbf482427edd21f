package dropped

import (
	"context"

	"github.com/go-rlock/rlock/rlock"
)

func work(context.Context) error { return nil }

func blank(ctx context.Context, mu *rlock.Lock) (*rlock.Hold, error) {
	_, hold, err := mu.TryLock(ctx) // want `the context that mu.TryLock returns is dropped`
	return hold, err
}

func joined(ctx context.Context, mu *rlock.Lock, proof string) error {
	_, hold, err := mu.Join(ctx, proof) // want `the context that mu.Join returns is dropped`
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	return work(ctx)
}

func nestedInJoined(ctx context.Context, mu *rlock.Lock, proof string) error {
	held, hold, err := mu.Join(ctx, proof)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(held) }()
	_, inner, err := mu.Lock(held) // held ends with the lock
	if err != nil {
		return err
	}
	defer func() { _ = inner.Unlock(held) }()
	return work(held)
}

func nested(ctx context.Context, mu, other *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	_, inner, err := mu.Lock(held) // held ends with the lock
	if err != nil {
		return err
	}
	defer func() { _ = inner.Unlock(ctx) }()
	_, more, err := other.Lock(held) // want `the context that other.Lock returns is dropped`
	if err != nil {
		return err
	}
	defer func() { _ = more.Unlock(ctx) }()
	return work(held)
}

func nestedInDo(ctx context.Context, mu *rlock.Lock) error {
	return mu.Do(ctx, func(ctx context.Context) error {
		short, cancel := context.WithCancel(ctx)
		defer cancel()
		_, hold, err := mu.Lock(short)
		if err != nil {
			return err
		}
		defer func() { _ = hold.Unlock(ctx) }()
		return mu.Do(ctx, func(context.Context) error { return work(ctx) })
	})
}

func inDo(ctx context.Context, mu *rlock.Lock) {
	_ = mu.Do(ctx, func(context.Context) error {
		return work(ctx) // want `the function does not use the context that it is given, but ctx, which does not own the lock, and does not end with its loss`
	})
	_ = mu.TryDo(ctx, func(unused context.Context) error {
		return work(ctx) // want `the function does not use the context`
	})
	_ = mu.Do(ctx, func(context.Context) error { return nil })
	_ = mu.Do(ctx, func(context.Context) error { return work(context.Background()) }) // is meant to go on
}
