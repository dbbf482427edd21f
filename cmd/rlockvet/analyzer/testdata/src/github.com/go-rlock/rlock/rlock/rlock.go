// Package rlock has what the analyzer looks for.
package rlock

import (
	"context"
	"errors"
	"time"
)

type (
	Client      struct{}
	Lock        struct{}
	RWLock      struct{}
	Hold        struct{}
	LockOption  func(*Lock)
	GuardOption func()
)

var ErrNotAcquired = errors.New("not acquired")

func (*Client) NewLock(name string, opts ...LockOption) *Lock     { return nil }
func (*Client) NewFairLock(name string, opts ...LockOption) *Lock { return nil }
func (*Client) NewRWLock(name string, opts ...LockOption) *RWLock { return nil }

func (*RWLock) Reader() *Lock { return nil }
func (*RWLock) Writer() *Lock { return nil }

func (*Lock) Lock(ctx context.Context) (context.Context, *Hold, error)    { return ctx, nil, nil }
func (*Lock) TryLock(ctx context.Context) (context.Context, *Hold, error) { return ctx, nil, nil }

func (*Lock) TryLockFor(ctx context.Context, wait time.Duration) (context.Context, *Hold, error) {
	return ctx, nil, nil
}

func (*Lock) Join(ctx context.Context, proof string) (context.Context, *Hold, error) {
	return ctx, nil, nil
}

func (*Lock) Do(ctx context.Context, fn func(context.Context) error) error    { return nil }
func (*Lock) TryDo(ctx context.Context, fn func(context.Context) error) error { return nil }

func (*Lock) DoFor(ctx context.Context, wait time.Duration, fn func(context.Context) error) error {
	return nil
}

func (*Hold) Unlock(ctx context.Context) error { return nil }
func (*Hold) Token() int64                     { return 0 }
func (*Hold) Owner() string                    { return "" }
func (*Hold) Until() time.Time                 { return time.Time{} }
func (*Hold) Proof() string                    { return "" }

func Detach(ctx context.Context) context.Context { return ctx }

func Guard[A, R any](lockFor func(A) *Lock, fn func(context.Context, A) (R, error), opts ...GuardOption) func(context.Context, A) (R, error) {
	return nil
}

func GuardDo[A any](lockFor func(A) *Lock, fn func(context.Context, A) error, opts ...GuardOption) func(context.Context, A) error {
	return nil
}

func NewMultiLock(locks ...*Lock) *Lock { return nil }

func WithoutRenewal() LockOption { return nil }
