// Package careful has nothing to report: it goes on without a lock nowhere, and uses no context
// that has ended.
package careful

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

func work(context.Context) error { return nil }

func fallback(context.Context) error { return nil }

// A way of its own may work without the lock: it has not the context of one.
func otherwise(ctx context.Context, mu *rlock.Lock) error {
	ctx, hold, err := mu.TryLock(ctx)
	if err != nil {
		return fallback(ctx)
	}
	return errors.Join(work(ctx), hold.Unlock(ctx))
}

func comparedHold(ctx context.Context, mu *rlock.Lock) error {
	ctx, hold, _ := mu.TryLock(ctx)
	if hold == nil {
		return nil
	}
	return errors.Join(work(ctx), hold.Unlock(ctx))
}

func passedOn(ctx context.Context, mu *rlock.Lock, take func(*rlock.Hold) bool) bool {
	held, hold, _ := mu.TryLock(ctx)
	return take(hold) && work(held) == nil
}

func logged(ctx context.Context, mu *rlock.Lock) error {
	ctx, hold, err := mu.TryLock(ctx)
	log.Print("locked: ", err)
	slog.InfoContext(ctx, "locked", "error", err)
	if err != nil {
		return err
	}
	return errors.Join(work(ctx), hold.Unlock(ctx))
}

func oneCondition(ctx context.Context, mu *rlock.Lock) error {
	ctx, hold, err := mu.TryLock(ctx)
	if err != nil {
		log.Print(err)
	}
	if err != nil || work(ctx) != nil {
		return errors.Join(err, hold.Unlock(ctx))
	}
	return hold.Unlock(ctx)
}

func rememberedBefore(ctx context.Context, mu *rlock.Lock) error {
	ctx, hold, err := mu.TryLock(ctx)
	ok := err == nil
	if !ok {
		return nil
	}
	return errors.Join(work(ctx), hold.Unlock(ctx))
}

func rememberedAfter(ctx context.Context, mu *rlock.Lock) error {
	ctx, hold, err := mu.TryLock(ctx)
	locked := true
	if err != nil {
		locked = false
	}
	if !locked {
		return hold.Unlock(ctx)
	}
	return errors.Join(work(ctx), hold.Unlock(ctx))
}

func retried(ctx context.Context, mu *rlock.Lock) error {
	for range 3 {
		held, hold, err := mu.TryLock(ctx)
		if err != nil {
			log.Print(err)
			time.Sleep(time.Second)
			continue
		}
		return errors.Join(work(held), hold.Unlock(ctx))
	}
	return rlock.ErrNotAcquired
}

func given(ctx context.Context, mu *rlock.Lock, must func(error)) error {
	ctx, hold, err := mu.TryLock(ctx)
	if err != nil {
		log.Print(err)
		must(err) // may end the process
	}
	return errors.Join(work(ctx), hold.Unlock(ctx))
}

func fatal(ctx context.Context, mu *rlock.Lock) error {
	ctx, hold, err := mu.TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	return errors.Join(work(ctx), hold.Unlock(ctx))
}

// Nothing is done without the lock: Unlock only says so once more.
func joinedErrors(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx)
	if err == nil {
		err = work(held)
	}
	return errors.Join(err, hold.Unlock(ctx))
}

func deferredFirst(ctx context.Context, mu *rlock.Lock) (err error) {
	ctx, hold, err := mu.Lock(ctx)
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	if err != nil {
		return err
	}
	return work(ctx)
}

func shortened(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx)
	short, cancel := context.WithTimeout(held, time.Second)
	defer cancel()
	if err != nil {
		return err
	}
	return errors.Join(work(short), hold.Unlock(ctx))
}

// What the error says is answered before.
func refused(w http.ResponseWriter, r *http.Request, mu *rlock.Lock) {
	held, hold, err := mu.TryLock(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	if err := errors.Join(work(held), hold.Unlock(held)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func meant(ctx context.Context, mu *rlock.Lock) (err error) {
	ctx, hold, failed := mu.TryLock(ctx) //rlockvet:ignore a cache: twice the same work does no harm
	if failed != nil {
		log.Print(failed)
	}
	if hold != nil {
		defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	}
	return work(ctx)
}

// The context that was there before goes on.
func apart(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(work(held), hold.Unlock(held)); err != nil {
		return err
	}
	log.Print(context.Cause(held), held.Err())
	slog.InfoContext(held, "unlocked")
	return errors.Join(work(ctx), work(context.WithoutCancel(held)))
}

func before(ctx context.Context, mu *rlock.Lock) error {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	ctx, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(work(ctx), hold.Unlock(ctx)); err != nil {
		return err
	}
	return work(short)
}

func restored(ctx context.Context, mu *rlock.Lock) error {
	outer := ctx
	ctx, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	err = errors.Join(work(ctx), hold.Unlock(ctx))
	ctx = outer
	return errors.Join(err, work(ctx))
}

func again(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(work(held), hold.Unlock(ctx)); err != nil {
		return err
	}
	held, hold, err = mu.Lock(ctx)
	if err != nil {
		return err
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

func onError(ctx context.Context, mu *rlock.Lock) error {
	ctx, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil {
		hold.Unlock(ctx)
		return err
	}
	err = work(ctx)
	return errors.Join(err, hold.Unlock(ctx))
}

func each(ctx context.Context, locks []*rlock.Lock) error {
	for _, mu := range locks {
		ctx, hold, err := mu.Lock(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(work(ctx), hold.Unlock(ctx)); err != nil {
			return err
		}
	}
	return work(ctx)
}

// An inner hold goes on when the outer one is unlocked, and so do both contexts.
func handedOver(ctx context.Context, mu *rlock.Lock) error {
	ctx, outer, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	held, inner, err := mu.Lock(ctx)
	if err != nil {
		return errors.Join(err, outer.Unlock(ctx))
	}
	if err := outer.Unlock(ctx); err != nil {
		return errors.Join(err, inner.Unlock(ctx))
	}
	return errors.Join(work(ctx), work(held), inner.Unlock(ctx))
}

// The hold outlives the function, unless it fails.
func started(ctx context.Context, mu *rlock.Lock, begin func(context.Context) error) (_ context.Context, err error) {
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = hold.Unlock(ctx)
		}
	}()
	if err := begin(held); err != nil {
		return nil, err
	}
	return held, nil
}

// The block ends with the lock.
func inBlock(ctx context.Context, mu *rlock.Lock, exclusive bool) error {
	if exclusive {
		ctx, hold, err := mu.Lock(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(work(ctx), hold.Unlock(ctx)); err != nil {
			return err
		}
	}
	return work(ctx)
}

func inFunction(ctx context.Context, mu *rlock.Lock) error {
	err := func() (err error) {
		ctx, hold, err := mu.Lock(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
		return work(ctx)
	}()
	return errors.Join(err, work(ctx))
}

// Another name says that another context is meant.
func beside(ctx context.Context, mu *rlock.Lock, exclusive bool) (err error) {
	if exclusive {
		held, hold, err := mu.Lock(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
		_ = work(held)
	}
	return work(ctx)
}

func assigned(ctx context.Context, mu *rlock.Lock, exclusive bool) (err error) {
	if exclusive {
		var hold *rlock.Hold
		ctx, hold, err = mu.Lock(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	}
	return work(ctx)
}

// Who drops the error on purpose says so.
func droppedOnPurpose(ctx context.Context, mu *rlock.Lock) error {
	ctx, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	return work(ctx)
}

// The outer Unlock tells of the loss.
func droppedInside(ctx context.Context, mu *rlock.Lock) error {
	return mu.Do(ctx, func(ctx context.Context) error {
		ctx, hold, err := mu.Lock(ctx)
		if err != nil {
			return err
		}
		defer hold.Unlock(ctx)
		return work(ctx)
	})
}

// Whether it is unlocked is not known.
func perhaps(ctx context.Context, mu *rlock.Lock, done bool) error {
	ctx, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	if done && hold.Unlock(ctx) == nil {
		return nil
	}
	return errors.Join(work(ctx), hold.Unlock(ctx))
}

func switchedOn(ctx context.Context, mu *rlock.Lock) error {
	ctx, hold, err := mu.TryLock(ctx)
	switch {
	case err == nil:
	case errors.Is(err, rlock.ErrNotAcquired):
		log.Print(err)
		return nil
	default:
		return err
	}
	return errors.Join(work(ctx), hold.Unlock(ctx))
}

func polled(ctx context.Context, mu *rlock.Lock) error {
	var held context.Context
	var hold *rlock.Hold
	err := rlock.ErrNotAcquired
	for errors.Is(err, rlock.ErrNotAcquired) && ctx.Err() == nil {
		held, hold, err = mu.TryLock(ctx)
		time.Sleep(time.Second)
	}
	if err != nil {
		return err
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

func selected(ctx context.Context, mu *rlock.Lock, stop chan struct{}) error {
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		select {
		case <-stop:
			return nil
		default:
			return err
		}
	}
	err = work(held)
	select {
	case <-stop:
	case <-held.Done():
		err = context.Cause(held)
	}
	return errors.Join(err, hold.Unlock(ctx))
}
