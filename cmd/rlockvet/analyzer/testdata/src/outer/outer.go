package outer

import (
	"context"
	"net/http"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

var locks *rlock.Client

func work(context.Context) error { return nil }

// Do and its like.

func inDo(ctx context.Context, mu, other *rlock.Lock) {
	_ = mu.Do(ctx, func(held context.Context) error {
		_ = work(held)
		_ = mu.TryDo(ctx, work)            // want `mu.TryDo under ctx is refused because of the lock that is held here, which ctx does not own; use held`
		_ = mu.DoFor(ctx, time.Hour, work) // want `mu.DoFor under ctx waits`
		return other.Do(ctx, work)         // want `other.Do under ctx, which does not own the lock that is held here, does not end with its loss; use held`
	})
	_ = mu.TryDo(ctx, func(context.Context) error {
		return mu.Do(context.Background(), work) // want `mu.Do under context.Background\(\) waits .*; use the context that the function is given`
	})
	_ = mu.DoFor(ctx, time.Second, func(held context.Context) error {
		return other.Do(held, func(inner context.Context) error {
			return mu.Do(ctx, work) // want `mu.Do under ctx waits`
		})
	})
}

func detached(ctx context.Context, mu *rlock.Lock) error {
	_ = mu.Do(ctx, func(held context.Context) error {
		free := rlock.Detach(held)
		_ = mu.TryDo(free, work)               // want `mu.TryDo under free is refused`
		return mu.Do(rlock.Detach(held), work) // want `mu.Do under rlock.Detach\(held\) waits for the lock that is held here, .*; use held`
	})
	_ = mu.Do(ctx, func(context.Context) error {
		free := rlock.Detach(ctx)
		short, cancel := context.WithTimeout(free, time.Second)
		defer cancel()
		return mu.Do(short, work) // want `mu.Do under short waits`
	})
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	_ = work(held)
	_ = mu.Do(rlock.Detach(held), work) // want `mu.Do under rlock.Detach\(held\) waits .*; use held`
	_ = mu.Do(rlock.Detach(ctx), work)  // want `mu.Do under rlock.Detach\(ctx\) waits .*; use held`
	return hold.Unlock(ctx)
}

func detachedFromIts(ctx context.Context, mu *rlock.Lock) error {
	ctx, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	_ = work(ctx)
	_ = mu.Do(rlock.Detach(ctx), work) // want `mu.Do under rlock.Detach\(ctx\) waits .*; use ctx`
	return hold.Unlock(ctx)
}

func copied(ctx context.Context, mu, other *rlock.Lock) error {
	outer := ctx
	_ = mu.Do(ctx, func(held context.Context) error {
		before := outer
		_ = other.Do(before, work) // want `other.Do under before, which does not own the lock that is held here, does not end`
		return mu.Do(outer, work)  // want `mu.Do under outer waits`
	})
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	_ = work(held)
	_ = mu.Do(outer, work) // want `mu.Do under outer waits`
	return hold.Unlock(ctx)
}

func derived(ctx context.Context, mu *rlock.Lock) error {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return mu.Do(short, func(held context.Context) error {
		long, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		return mu.Do(long, work) // want `mu.Do under long waits`
	})
}

func sameLock(ctx context.Context, rw *rlock.RWLock) {
	_ = locks.NewLock("a").Do(ctx, func(held context.Context) error {
		a := locks.NewFairLock("a")
		_ = locks.NewLock("b").Do(ctx, work) // want `does not end with its loss`
		return a.Do(ctx, work)               // want `a.Do under ctx waits`
	})
	_ = rw.Writer().Do(ctx, func(held context.Context) error {
		return rw.Reader().Do(ctx, work) // want `rw.Reader\(\).Do under ctx waits`
	})
	_ = rw.Reader().Do(ctx, func(held context.Context) error { // readers do not wait for each other
		return rw.Reader().Do(ctx, work) // want `rw.Reader\(\).Do under ctx, which does not own .* does not end with its loss`
	})
}

func guards(ctx context.Context, lockFor func(int) *rlock.Lock, mu *rlock.Lock) {
	_ = rlock.GuardDo(lockFor, func(held context.Context, n int) error {
		_ = mu.Do(held, work)
		return mu.Do(ctx, work) // want `mu.Do under ctx, which does not own`
	})
	_ = rlock.Guard(lockFor, func(_ context.Context, n int) (int, error) {
		return 0, work(ctx) // want `the function does not use the context that it is given, but ctx`
	})
}

// Between Lock and Unlock.

func afterLock(ctx context.Context, mu, other *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return mu.Do(ctx, work) // nothing is held
	}
	if err := other.Do(held, work); err != nil {
		hold.Unlock(ctx)
		return mu.Do(ctx, work) // no more
	}
	if err := other.Do(ctx, work); err != nil { // want `other.Do under ctx, which does not own`
		hold.Unlock(ctx)
		return err
	}
	_ = mu.Do(ctx, work) // want `mu.Do under ctx waits for the lock that is held here, which ctx does not own; use held`
	err = hold.Unlock(ctx)
	_ = mu.Do(ctx, work)
	return err
}

func afterJoin(ctx context.Context, mu, other *rlock.Lock, proof string) error {
	held, hold, err := mu.Join(ctx, proof)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(held) }()
	_ = other.Do(held, work)
	_ = other.Do(ctx, work) // want `other.Do under ctx, which does not own .* does not end with its loss; use held`
	return mu.Do(ctx, work) // want `mu.Do under ctx waits for the lock that is held here, which ctx does not own; use held`
}

func joinInDo(ctx context.Context, mu, other *rlock.Lock, proof string) error {
	return mu.Do(ctx, func(held context.Context) error {
		_ = work(held)
		again, hold, err := mu.Join(ctx, proof) // waits for nobody, and again ends with the loss of mu
		if err != nil {
			return err
		}
		defer func() { _ = hold.Unlock(again) }()
		_, more, err := other.Join(ctx, proof) // want `other.Join under ctx, which does not own the lock that is held here, does not end with its loss; use held`
		if err != nil {
			return err
		}
		return more.Unlock(again)
	})
}

func deferred(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.TryLockFor(ctx, time.Second)
	switch {
	case err != nil:
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	if err := work(held); err != nil {
		return err
	}
	_, again, err := mu.Lock(ctx) // want `mu.Lock under ctx waits .*; use held`
	if err != nil {
		return err
	}
	return again.Unlock(ctx)
}

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
	_ = work(held)
	return mu.Do(ctx, work) // want `mu.Do under ctx waits for the lock that is held here, which ctx does not own; use held`
}

// A function may assign its own variables.
func inLiteral(mu *rlock.Lock) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx = context.WithValue(ctx, 1, 1)
		return mu.Do(ctx, func(held context.Context) error {
			_ = work(held)
			return mu.Do(ctx, work) // want `mu.Do under ctx waits for the lock that is held here`
		})
	}
}

// What has another value before the lock call, or is not what the context comes from, does not
// matter.
func handled(r, other *http.Request, mu *rlock.Lock) error {
	r = r.WithContext(context.WithValue(r.Context(), 1, 1))
	held, hold, err := mu.Lock(r.Context())
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(r.Context()) }()
	other = other.WithContext(held)
	return mu.Do(r.Context(), work) // want `mu.Do under r.Context\(\) waits for the lock that is held here, which r.Context\(\) does not own; use held`
}

func handledInside(r *http.Request, mu *rlock.Lock) error {
	return mu.Do(r.Context(), func(held context.Context) error {
		inner := r.WithContext(held)
		inner = inner.Clone(held)
		return mu.Do(r.Context(), work) // want `mu.Do under r.Context\(\) waits`
	})
}

type shop struct {
	ctx context.Context
	err error
}

func (s *shop) kept(mu *rlock.Lock) {
	_ = mu.Do(s.ctx, func(held context.Context) error {
		s.err = work(held)
		return mu.Do(s.ctx, work) // want `mu.Do under s.ctx waits`
	})
	held, hold, err := mu.Lock(s.ctx)
	if err != nil {
		return
	}
	defer func() { _ = hold.Unlock(s.ctx) }()
	s.err = work(held)
	s.err = mu.Do(s.ctx, work) // want `mu.Do under s.ctx waits`
}

// A field of an embedded struct, by either way.

type (
	base    struct{ mu *rlock.Lock }
	middle  struct{ *base }
	service struct {
		middle
		other base
	}
)

func promoted(ctx context.Context, s *service) error {
	return s.mu.Do(ctx, func(held context.Context) error {
		_ = s.other.mu.Do(ctx, work)          // want `s.other.mu.Do under ctx, which does not own the lock that is held here, does not end with its loss; use held`
		_ = s.middle.mu.Do(ctx, work)         // want `s.middle.mu.Do under ctx waits for the lock that is held here`
		return s.middle.base.mu.Do(ctx, work) // want `s.middle.base.mu.Do under ctx waits for the lock that is held here`
	})
}

// Names that are put together.

func concatenated(ctx context.Context, id string) error {
	return locks.NewLock("invoice:"+id).Do(ctx, func(held context.Context) error {
		_ = locks.NewLock("order:"+id).Do(ctx, work)      // want `does not end with its loss; use held`
		return locks.NewLock("invoice:"+id).Do(ctx, work) // want `waits for the lock that is held here`
	})
}

// Another lock by then.

type chain struct {
	mu   *rlock.Lock
	next *chain
}

func handOverHand(ctx context.Context, n *chain) error {
	ctx, hold, err := n.mu.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	n = n.next
	return n.mu.Do(rlock.Detach(ctx), work)
}
