// Package fine has nothing to report.
package fine

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

type shop struct {
	locks *rlock.Client
	ctx   context.Context
	hold  *rlock.Hold
	err   error
}

func work(context.Context) error { return nil }

func (s *shop) joined(ctx context.Context) (err error) {
	ctx, hold, err := s.locks.NewLock("a").Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	return s.locks.NewLock("a").Do(ctx, work)
}

// What another process holds.
func joins(ctx context.Context, mu *rlock.Lock, proof string) error {
	held, hold, err := mu.Join(ctx, proof)
	if errors.Is(err, rlock.ErrNotAcquired) {
		return mu.Do(ctx, work) // nothing is held
	}
	if err != nil {
		return err
	}
	return errors.Join(mu.Do(held, work), hold.Unlock(held))
}

func (s *shop) stored(ctx context.Context) (err error) {
	s.ctx, s.hold, err = s.locks.NewLock("a").Lock(ctx)
	return err
}

func (s *shop) result(ctx context.Context) (held context.Context, hold *rlock.Hold, err error) {
	held, hold, err = s.locks.NewLock("a").Lock(ctx)
	return
}

func passedOn(ctx context.Context, mu *rlock.Lock) (context.Context, *rlock.Hold, error) {
	return mu.Lock(ctx)
}

func cleanup(ctx context.Context, mu *rlock.Lock, later func(func())) (context.Context, error) {
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return nil, err
	}
	later(func() { _ = hold.Unlock(ctx) })
	return held, nil
}

func outside(ctx context.Context, mu *rlock.Lock) error {
	var hold *rlock.Hold
	take := func() (err error) {
		ctx, hold, err = mu.Lock(ctx)
		return err
	}
	if err := take(); err != nil {
		return err
	}
	return hold.Unlock(ctx)
}

func polled(ctx context.Context, mu *rlock.Lock) error {
	for {
		held, hold, err := mu.TryLock(ctx)
		if err == nil {
			return errors.Join(work(held), hold.Unlock(ctx))
		}
		time.Sleep(time.Second)
	}
}

// What is known of another kind of error is not known here.
func looked(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.TryLock(ctx)
	var busy interface{ Busy() bool }
	if errors.As(err, &busy) {
		return nil
	}
	if failed(err) {
		return err
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

func tested(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.TryLock(ctx)
	ok := !failed(err)
	err = work(ctx)
	if err != nil || !ok {
		return err
	}
	if !(hold != nil) || failed(err) && hold == nil {
		return nil
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

func failed(err error) bool { return err != nil }

// A fixed lease may end by itself: at most once in that time.
func leased(ctx context.Context, locks *rlock.Client) error {
	once := locks.NewLock("a", rlock.WithoutRenewal())
	ctx, _, err := once.TryLock(ctx)
	if err != nil {
		return err
	}
	return work(ctx)
}

// Others wait for the holder, as they should.
func contenders(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	var others sync.WaitGroup
	go mu.Do(ctx, work)
	others.Go(func() { _ = mu.Do(ctx, work) })
	err = errors.Join(work(held), hold.Unlock(ctx))
	others.Wait()
	return err
}

func detached(ctx context.Context, mu, other *rlock.Lock) error {
	return mu.Do(ctx, func(held context.Context) error {
		free := rlock.Detach(held)
		_ = work(ctx) // beside held
		return errors.Join(work(held), other.Do(free, work), other.Do(context.Background(), work))
	})
}

func copied(ctx context.Context, mu *rlock.Lock) error {
	outer := ctx
	err := mu.Do(ctx, func(held context.Context) error {
		inner := held
		outer = inner
		return errors.Join(mu.Do(inner, work), mu.Do(outer, work))
	})
	if err != nil {
		return err
	}
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	ctx = held
	mine := ctx
	return errors.Join(mu.Do(mine, work), hold.Unlock(ctx))
}

func another(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	ctx = held
	return mu.Do(ctx, work)
}

func meant(ctx context.Context, mu *rlock.Lock) error {
	_, hold, err := mu.Lock(ctx) //rlockvet:ignore nothing is done under it
	if err != nil {
		return err
	}
	//rlockvet:ignore it is left to its lease
	_, _, _ = mu.TryLock(ctx)
	return hold.Unlock(ctx)
}

// A context may be derived from itself.
func switched(x any, mu *rlock.Lock) error {
	switch ctx := x.(type) {
	case context.Context:
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return mu.Do(ctx, work)
	}
	var ctx context.Context
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return mu.Do(ctx, func(held context.Context) error { return mu.Do(held, work) })
}

func given(ctx context.Context, x any, mu *rlock.Lock) error {
	return mu.Do(ctx, func(held context.Context) error {
		_ = work(held)
		switch given := x.(type) {
		case context.Context: // may be held
			if given.Err() != nil {
				given = context.WithValue(ctx, 1, 1)
			}
			return mu.Do(given, work)
		}
		return nil
	})
}

func circular(mu *rlock.Lock) {
	var a, b context.Context
	a = context.WithValue(b, 1, 1)
	b = context.WithValue(a, 2, 2)
	_ = mu.Do(a, func(held context.Context) error { return mu.Do(held, work) })
}

// What is declared first has one value nevertheless.
func declared(ctx context.Context, locks *rlock.Client, mu *rlock.Lock) error {
	var once *rlock.Lock
	once = locks.NewLock("a", rlock.WithoutRenewal())
	ctx, _, err := once.TryLock(ctx)
	if err != nil {
		return err
	}
	return mu.Do(ctx, func(held context.Context) error {
		var short context.Context
		var cancel func()
		short, cancel = context.WithTimeout(held, time.Second)
		defer cancel()
		return mu.Do(short, func(context.Context) error { return mu.Do(short, work) })
	})
}

// What was there before the lock call unlocks the hold.
func deferredBefore(ctx context.Context, mu *rlock.Lock) error {
	var hold *rlock.Hold
	defer func() {
		if hold != nil {
			_ = hold.Unlock(ctx)
		}
	}()
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	return work(held)
}

func definedBefore(ctx context.Context, mu *rlock.Lock) error {
	var hold *rlock.Hold
	unlock := func() error { return hold.Unlock(ctx) }
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(work(held), unlock()); err != nil {
		return err
	}
	return mu.Do(ctx, work) // nothing is held any more
}

func definedInLoop(ctx context.Context, locks []*rlock.Lock) (err error) {
	var held context.Context
	var hold *rlock.Hold
	var unlock func()
	for _, mu := range locks {
		if unlock != nil {
			unlock()
		}
		held, hold, err = mu.Lock(ctx)
		if err != nil {
			return err
		}
		_ = work(held)
		if unlock == nil {
			unlock = func() { _ = hold.Unlock(ctx) }
		}
	}
	return nil
}

func addressed(ctx context.Context, mu *rlock.Lock, unlock func(**rlock.Hold)) error {
	var hold *rlock.Hold
	defer unlock(&hold)
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	return work(held)
}

// The outer variable has the context of the lock.
func moved(ctx context.Context, mu, other *rlock.Lock) error {
	return mu.Do(ctx, func(held context.Context) error {
		ctx = held
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return errors.Join(mu.Do(ctx, work), mu.Do(short, work), other.Do(ctx, work))
	})
}

func movedInside(ctx context.Context, mu, other *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	return other.Do(held, func(inner context.Context) error {
		ctx = inner
		return mu.Do(ctx, work)
	})
}

func movedBefore(ctx context.Context, mu *rlock.Lock) error {
	use := func(held context.Context) { ctx = held }
	return mu.Do(ctx, func(held context.Context) error {
		use(held)
		return mu.Do(ctx, work)
	})
}

func movedOrigin(ctx context.Context, mu *rlock.Lock) error {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	held, hold, err := mu.Lock(short)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(short) }()
	ctx = held
	return mu.Do(ctx, work)
}

// What is known of the error stays known when it is looked at again.
func retried(ctx context.Context, mu *rlock.Lock) error {
	var held context.Context
	var hold *rlock.Hold
	var err error
	for range 3 {
		if held, hold, err = mu.TryLock(ctx); err == nil {
			break
		}
		time.Sleep(time.Second)
	}
	if err != nil {
		return err
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

func counted(ctx context.Context, mu *rlock.Lock, failures, successes func()) error {
	held, hold, err := mu.TryLock(ctx)
	if err != nil {
		failures()
	} else {
		successes()
	}
	if errors.Is(err, rlock.ErrNotAcquired) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

func secondTry(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.TryLock(ctx)
	if err != nil {
		held, hold, err = mu.TryLockFor(ctx, time.Second)
	}
	if err != nil {
		return err
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

// A second look may be one that is not understood.
func lookedTwice(ctx context.Context, mu *rlock.Lock, successes func()) error {
	held, hold, err := mu.TryLock(ctx)
	if err == nil {
		successes()
	}
	if failed(err) {
		return err
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

func keptLook(ctx context.Context, mu *rlock.Lock, successes func()) error {
	held, hold, err := mu.TryLock(ctx)
	if err == nil {
		successes()
	}
	ok := err == nil
	if !ok {
		return err
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

func switchedOn(ctx context.Context, mu *rlock.Lock, successes func()) error {
	held, hold, err := mu.TryLock(ctx)
	if err == nil {
		successes()
	}
	switch err {
	case nil:
	default:
		return err
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

// Nil may be on either side.
func nilFirst(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx)
	if nil != err {
		return err
	}
	if nil == hold {
		return nil
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

func comparedWithOther(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.TryLock(ctx)
	if err == rlock.ErrNotAcquired {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

// The error may be in a field, of which nothing is known.
func (s *shop) field(ctx context.Context, mu *rlock.Lock) {
	var held context.Context
	var hold *rlock.Hold
	held, hold, s.err = mu.Lock(ctx)
	if s.err != nil {
		return
	}
	s.err = errors.Join(work(held), hold.Unlock(ctx))
}

// Lock and Unlock depend on the same condition, which the hold tells.
func optional(ctx context.Context, mu *rlock.Lock, exclusive bool) (err error) {
	var hold *rlock.Hold
	if exclusive {
		if ctx, hold, err = mu.Lock(ctx); err != nil {
			return err
		}
	}
	err = work(ctx)
	if hold != nil {
		err = errors.Join(err, hold.Unlock(ctx))
	}
	return err
}

// Loops have variables that are no conditions, and have no type.
func ranged(ctx context.Context, mu *rlock.Lock, numbers []int) error {
	held, hold, err := mu.Lock(ctx)
	sum, n := 0, 0
	for _, n = range numbers {
		sum += n
	}
	if err != nil {
		return err
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

// What the context comes from has another value.
func handled(_ http.ResponseWriter, r *http.Request, mu, other *rlock.Lock) error {
	held, hold, err := mu.Lock(r.Context())
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(r.Context()) }()
	r = r.WithContext(held)
	return errors.Join(mu.Do(r.Context(), work), other.Do(r.Context(), work))
}

func handledInside(r *http.Request, mu, other *rlock.Lock) error {
	return mu.Do(r.Context(), func(held context.Context) error {
		r = r.WithContext(held)
		return errors.Join(mu.Do(r.Context(), work), other.Do(r.Context(), work))
	})
}

func (s *shop) kept(mu *rlock.Lock) error {
	held, hold, err := mu.Lock(s.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(s.ctx) }()
	s.ctx = held
	return mu.Do(s.ctx, work)
}

func (s *shop) keptInside(mu *rlock.Lock) error {
	return mu.Do(s.ctx, func(held context.Context) error {
		s.ctx = held
		return mu.Do(s.ctx, work)
	})
}
