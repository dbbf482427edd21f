// Package without goes on without the lock, or without its context, in more ways.
package without

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

func unlessFailed(ctx context.Context, mu *rlock.Lock) (err error) {
	ctx, hold, failed := mu.TryLock(ctx) // want `if mu.TryLock fails, line 22 goes on without the lock`
	if failed == nil {
		defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	}
	return work(ctx)
}

func afterAll(ctx context.Context, mu *rlock.Lock) error {
	var held context.Context
	var hold *rlock.Hold
	var err error
	for range 3 {
		if held, hold, err = mu.TryLock(ctx); err == nil { // want `if mu.TryLock fails, line 35 goes on without the lock`
			break
		}
		time.Sleep(time.Second)
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

func answered(w http.ResponseWriter, r *http.Request, mu *rlock.Lock) {
	held, hold, err := mu.TryLock(r.Context()) // want `if mu.TryLock fails, line 43 goes on without the lock`
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict) // and no return
	}
	err = errors.Join(work(held), hold.Unlock(held))
	slog.Info("done", "error", err)
}

// The work needs no context. To defer the Unlock says that it comes.
func counted(ctx context.Context, mu *rlock.Lock, n *int) (err error) {
	held, hold, failed := mu.TryLock(ctx) // want `if mu.TryLock fails, line 53 goes on without the lock`
	if failed != nil {
		log.Print(failed)
	}
	defer func() { err = errors.Join(err, hold.Unlock(held)) }()
	*n++
	return nil
}

func several(ctx context.Context, both *rlock.MultiLock) error {
	held, hold, _ := both.TryLock(ctx) // want `the error of both.TryLock is dropped`
	return errors.Join(work(held), hold.Unlock(ctx))
}

func unavailable(ctx context.Context, mu *rlock.Lock) error {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	held, hold, err := mu.Lock(short) // want `if mu.Lock fails, line 72 goes on without the lock`
	if err != nil && errors.Is(err, rlock.ErrNotAcquired) {
		return err
	}
	long, cancel := context.WithTimeout(held, time.Hour)
	defer cancel()
	return errors.Join(work(long), hold.Unlock(ctx))
}

// Contexts that have ended.

func derived(ctx context.Context, mu *rlock.Lock) error {
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	short, cancel := context.WithTimeout(held, time.Second)
	defer cancel()
	if err := errors.Join(work(short), hold.Unlock(ctx)); err != nil {
		return err
	}
	go work(held)                                   // want `held has ended, by hold.Unlock in line 84`
	return work(context.WithValue(short, "a", "b")) // want `has ended, by hold.Unlock in line 84`
}

func nextLock(ctx context.Context, a, b *rlock.Lock) error {
	ctx, hold, err := a.Lock(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(work(ctx), hold.Unlock(ctx)); err != nil {
		return err
	}
	return b.Do(ctx, work) // want `ctx has ended, by hold.Unlock in line 96`
}

// The hold that is set to nil is not followed.
func onOneWay(ctx context.Context, mu *rlock.Lock, early bool) error {
	ctx, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	if early {
		err = hold.Unlock(ctx)
		hold = nil
	}
	err = errors.Join(err, work(ctx))
	if hold != nil {
		err = errors.Join(err, hold.Unlock(ctx))
	}
	return err
}

func bothWays(ctx context.Context, mu *rlock.Lock, early bool) error {
	ctx, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	if early {
		err = hold.Unlock(ctx)
	} else {
		err = errors.Join(work(ctx), hold.Unlock(ctx))
	}
	return errors.Join(err, work(ctx)) // want `ctx has ended, by hold.Unlock in line`
}
