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
	MultiLock   struct{}
	RWLock      struct{}
	Hold        struct{}
	MultiHold   struct{}
	LockOption  func(*Lock)
	GuardOption func()
	Locker      interface {
		Do(ctx context.Context, fn func(context.Context) error) error
	}
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

func Guard[A, R any, L Locker](lockFor func(A) L, fn func(context.Context, A) (R, error), opts ...GuardOption) func(context.Context, A) (R, error) {
	return nil
}

func GuardDo[A any, L Locker](lockFor func(A) L, fn func(context.Context, A) error, opts ...GuardOption) func(context.Context, A) error {
	return nil
}

func NewMultiLock(locks ...*Lock) *MultiLock { return nil }

func (*MultiLock) Lock(ctx context.Context) (context.Context, *MultiHold, error) {
	return ctx, nil, nil
}

func (*MultiLock) TryLock(ctx context.Context) (context.Context, *MultiHold, error) {
	return ctx, nil, nil
}

func (*MultiLock) TryLockFor(ctx context.Context, wait time.Duration) (context.Context, *MultiHold, error) {
	return ctx, nil, nil
}

func (*MultiLock) Do(ctx context.Context, fn func(context.Context) error) error    { return nil }
func (*MultiLock) TryDo(ctx context.Context, fn func(context.Context) error) error { return nil }

func (*MultiLock) DoFor(ctx context.Context, wait time.Duration, fn func(context.Context) error) error {
	return nil
}

func (*MultiHold) Unlock(ctx context.Context) error { return nil }
func (*MultiHold) Until() time.Time                 { return time.Time{} }
func (*MultiHold) Holds() []*Hold                   { return nil }

func WithoutRenewal() LockOption { return nil }
