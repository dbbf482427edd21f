// Package several has each mistake with a multi lock.
package several

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

func work(context.Context) error { return nil }

func inDo(ctx context.Context, both *rlock.MultiLock, other *rlock.Lock) {
	_ = both.Do(ctx, func(held context.Context) error {
		_ = both.Do(held, work)
		_ = both.TryDo(ctx, work)            // want `both.TryDo under ctx is refused because of the lock that is held here, which ctx does not own; use held`
		_ = both.DoFor(ctx, time.Hour, work) // want `both.DoFor under ctx waits`
		return other.Do(ctx, work)           // want `other.Do under ctx, which does not own the lock that is held here, does not end with its loss; use held`
	})
	_ = both.Do(ctx, func(context.Context) error {
		return work(ctx) // want `the function does not use the context that it is given, but ctx`
	})
}

func afterLock(ctx context.Context, a, b *rlock.Lock) error {
	both := rlock.NewMultiLock(a, b)
	held, hold, err := both.Lock(ctx)
	if err != nil {
		return err
	}
	_ = both.Do(held, work)
	_ = both.Do(ctx, work) // want `both.Do under ctx waits for the lock that is held here, which ctx does not own; use held`
	return hold.Unlock(ctx)
}

func dropped(ctx context.Context, both *rlock.MultiLock) error {
	both.TryLock(ctx)                               // want `the hold that both.TryLock returns is dropped: nobody can unlock it`
	_, hold, err := both.TryLockFor(ctx, time.Hour) // want `the context that both.TryLockFor returns is dropped`
	if err != nil {
		return err
	}
	return hold.Unlock(ctx)
}

func never(ctx context.Context, both *rlock.MultiLock) time.Time {
	held, hold, err := both.Lock(ctx) // want `hold of both.Lock is not unlocked before the return in line 49`
	if err == nil {
		_ = work(held)
		return hold.Until()
	}
	return time.Time{}
}

func parts(ctx context.Context, both *rlock.MultiLock, use func([]*rlock.Hold)) error {
	held, hold, err := both.Lock(ctx)
	if err != nil {
		return err
	}
	use(hold.Holds()) // somebody else's to unlock
	return work(held)
}

func guards(ctx context.Context, of func(int) *rlock.MultiLock) {
	_ = rlock.Guard(of, func(_ context.Context, n int) (int, error) {
		return 0, work(ctx) // want `the function does not use the context that it is given, but ctx`
	})
}
