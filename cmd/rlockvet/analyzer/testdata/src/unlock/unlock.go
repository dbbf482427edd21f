package unlock

import (
	"context"
	"errors"
	"log"

	"github.com/go-rlock/rlock/rlock"
)

func work(context.Context) error { return nil }

func dropped(ctx context.Context, mu *rlock.Lock) error {
	mu.Lock(ctx)                    // want `the hold that mu.Lock returns is dropped: nobody can unlock it`
	go mu.Lock(ctx)                 // want `the hold that mu.Lock returns is dropped`
	_, _, _ = mu.TryLock(ctx)       // want `the hold that mu.TryLock returns is dropped`
	held, _, err := mu.TryLock(ctx) // want `the hold that mu.TryLock returns is dropped`
	if err != nil {
		return err
	}
	return work(held)
}

func never(ctx context.Context, mu *rlock.Lock) int64 {
	held, hold, err := mu.Lock(ctx) // want `hold of mu.Lock is not unlocked before the return in line 28`
	if err == nil && hold != nil {
		_ = work(held)
		return hold.Token()
	}
	return 0
}

func reused(ctx context.Context, mu *rlock.Lock) error {
	ctx, hold, err := mu.Lock(ctx) // want `not unlocked before the return in line 40`
	if err != nil {
		return err
	}
	err = work(ctx)
	if err != nil { // another error
		return err
	}
	return hold.Unlock(ctx)
}

func falls(ctx context.Context, mu *rlock.Lock) {
	if held, hold, err := mu.TryLock(ctx); err == nil { // want `not unlocked before the return in line 51`
		if work(held) == nil {
			hold.Unlock(ctx)
		}
	}
}

func cases(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.TryLock(ctx) // want `not unlocked before the return in line 61`
	switch {
	case errors.Is(err, rlock.ErrNotAcquired):
		return nil
	case err != nil:
		return err
	case work(held) != nil:
		return errors.New("forgotten")
	}
	return hold.Unlock(held)
}

func loops(ctx context.Context, names []*rlock.Lock) error {
	for _, mu := range names {
		held, hold, err := mu.Lock(ctx) // want `not unlocked before it is overwritten in line 68`
		if err != nil {
			continue
		}
		if work(held) != nil {
			continue
		}
		hold.Unlock(ctx)
	}
	return nil
}

func overwritten(ctx context.Context, a, b *rlock.Lock) error {
	ctx, hold, err := a.Lock(ctx) // want `hold of a.Lock is not unlocked before it is overwritten in line 85`
	if err != nil {
		return err
	}
	ctx, hold, err = b.Lock(ctx)
	if err != nil {
		return err
	}
	return hold.Unlock(ctx)
}

func unchecked(ctx context.Context, mu *rlock.Lock) {
	held, hold, _ := mu.Lock(ctx) // want `the error of mu.Lock is dropped: without the lock, the work goes on as well`
	if work(held) != nil {
		return
	}
	hold.Unlock(ctx)
}

func dies(ctx context.Context, mu *rlock.Lock) {
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if work(held) != nil {
		log.Fatal("the process ends")
	}
	hold.Unlock(ctx)
}

func conjunction(ctx context.Context, mu *rlock.Lock, ready bool) {
	held, hold, err := mu.TryLock(ctx) // want `not unlocked before the return in line 117`
	if err == nil && ready {
		_ = work(held)
		hold.Unlock(ctx)
	}
}

func disjunction(ctx context.Context, mu *rlock.Lock, ready bool) error {
	held, hold, err := mu.TryLock(ctx) // want `not unlocked before the return in line 122`
	if err != nil || !ready {
		return err
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

func joined(ctx context.Context, mu *rlock.Lock, proof string) error {
	mu.Join(ctx, proof)                    // want `the hold that mu.Join returns is dropped: nobody can unlock it`
	held, _, err := mu.Join(ctx, proof)    // want `the hold that mu.Join returns is dropped`
	held, hold, err := mu.Join(ctx, proof) // want `hold of mu.Join is not unlocked before the return in line 135`
	if err != nil {
		return err
	}
	if err := work(held); err != nil {
		return err
	}
	return hold.Unlock(held)
}

// What is captured later does not help on a way that leaves before.
func capturedLate(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx) // want `hold of mu.Lock is not unlocked before the return in line 147`
	if err != nil {
		return err
	}
	if err := work(held); err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	return work(held)
}

func deferredOther(ctx context.Context, a, b *rlock.Lock) error {
	ctx, hold, err := a.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)       // want `the error of the deferred hold.Unlock is dropped`
	ctx, hold, err = b.Lock(ctx) // want `hold of b.Lock is not unlocked before the return in line 163`
	if err != nil {
		return err
	}
	return work(ctx)
}

func capturedInLoop(ctx context.Context, names []*rlock.Lock) {
	for _, mu := range names {
		held, hold, err := mu.Lock(ctx) // want `hold of mu.Lock is not unlocked before it is overwritten in line 168`
		if err != nil || work(held) != nil {
			continue
		}
		func() { _ = hold.Unlock(ctx) }()
	}
}

// The error is known when it is looked at again, so one way goes on.
func retried(ctx context.Context, mu *rlock.Lock) error {
	var held context.Context
	var hold *rlock.Hold
	var err error
	for range 3 {
		if held, hold, err = mu.TryLock(ctx); err == nil { // want `hold of mu.TryLock is not unlocked before the return in line 190`
			break
		}
	}
	if err != nil {
		return err
	}
	if err := work(held); err != nil {
		return err
	}
	return hold.Unlock(ctx)
}

func counted(ctx context.Context, mu *rlock.Lock, failures, successes func()) error {
	held, hold, err := mu.TryLock(ctx) // want `not unlocked before the return in line 203`
	if err != nil {
		failures()
	} else {
		successes()
	}
	if err == nil {
		return work(held)
	}
	_ = hold.Token()
	return err
}

func secondTry(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.TryLock(ctx) // want `hold of mu.TryLock is not unlocked before the return in line 218`
	if err != nil {
		held, hold, err = mu.Lock(ctx) // want `hold of mu.Lock is not unlocked before the return in line 218`
	}
	if err != nil {
		return err
	}
	if err = work(held); err != nil {
		return err
	}
	return hold.Unlock(ctx)
}

// What is captured, or made of the error, is another one.
func capturedError(ctx context.Context, mu *rlock.Lock, run func(func())) error {
	held, hold, err := mu.Lock(ctx) // want `not unlocked before the return in line 231`
	if err != nil {
		return err
	}
	run(func() { err = work(held) })
	if err != nil {
		return err
	}
	return hold.Unlock(ctx)
}

func joinedError(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx) // want `not unlocked before the return in line 242`
	if err != nil {
		return err
	}
	if err = errors.Join(err, work(held)); err != nil {
		return err
	}
	return hold.Unlock(ctx)
}

func deferredLook(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx) // want `not unlocked before the return in line 254`
	defer func() { log.Print(err) }()
	if err != nil {
		return err
	}
	if err := work(held); err != nil {
		return err
	}
	return hold.Unlock(ctx)
}

func nilFirst(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx) // want `not unlocked before the return in line 265`
	if nil != err {
		return err
	}
	if err := work(held); nil != err && nil != hold {
		return err
	}
	return hold.Unlock(ctx)
}

func optional(ctx context.Context, mu *rlock.Lock, exclusive bool) (err error) {
	var hold *rlock.Hold
	if exclusive {
		if ctx, hold, err = mu.Lock(ctx); err != nil { // want `not unlocked before the return in line 278`
			return err
		}
	}
	if err = work(ctx); err != nil {
		return err
	}
	if hold != nil {
		return hold.Unlock(ctx)
	}
	return nil
}

func ranged(ctx context.Context, mu *rlock.Lock, numbers []int) error {
	held, hold, err := mu.Lock(ctx) // want `not unlocked before the return in line 296`
	n := 0
	for _, n = range numbers {
		log.Print(n)
	}
	if err != nil {
		return err
	}
	if err := work(held); err != nil {
		return err
	}
	return hold.Unlock(ctx)
}

func proven(ctx context.Context, mu *rlock.Lock, tell func(string)) error {
	held, hold, err := mu.Lock(ctx) // want `not unlocked before the return in line 307`
	if err != nil {
		return err
	}
	tell(hold.Proof())
	return work(held)
}

// Reported wrongly, as docs/testing.md says: exclusive has one value only.
func conditional(ctx context.Context, mu *rlock.Lock, exclusive bool) (err error) {
	var hold *rlock.Hold
	if exclusive {
		if ctx, hold, err = mu.Lock(ctx); err != nil { // want `not unlocked before the return in line 322`
			return err
		}
	}
	err = work(ctx)
	if exclusive {
		err = errors.Join(err, hold.Unlock(ctx))
	}
	return err
}

func blank(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx) // want `not unlocked before the return in line 332`
	if err != nil {
		return err
	}
	_ = hold
	_, _ = held, (hold)
	return work(held)
}

// A declaration in a loop is no use of what it declares.

func declaredInALoop(ctx context.Context, mu *rlock.Lock, n int) error {
	for {
		var hold *rlock.Hold
		held, hold, err := mu.TryLock(ctx) // want `.*`
		if err != nil {
			return err
		}
		if work(held) != nil {
			continue
		}
		return hold.Unlock(ctx)
	}
}

// The hold tells as well.
func heldLooked(ctx context.Context, mu *rlock.Lock) {
	held, hold, _ := mu.TryLock(ctx) // want `not unlocked before the return in line 360`
	if hold == nil {
		return
	}
	if work(held) == nil {
		hold.Unlock(ctx)
	}
}
