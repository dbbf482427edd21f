package schedulers_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// Storage is a storage of certmagic whose locks are of rlock.
type Storage struct {
	certmagic.Storage // for the certificates; its locks are not used
	Locks             *rlock.Client

	mu    sync.Mutex // guards holds
	holds map[string]hold
}

type hold struct {
	*rlock.Hold
	ctx context.Context
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// Lock waits for the lock, even if this process holds it.
func (s *Storage) Lock(ctx context.Context, name string) error {
	ctx, h, err := s.Locks.NewLock(name).Lock(rlock.Detach(ctx))
	return s.keep(name, hold{h, ctx}, err)
}

// TryLock returns false if the lock is held.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	ctx, h, err := s.Locks.NewLock(name).TryLock(rlock.Detach(ctx))
	if errors.Is(err, rlock.ErrNotAcquired) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, s.keep(name, hold{h, ctx}, err)
}

func (s *Storage) keep(name string, h hold, err error) error {
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds == nil {
		s.holds = make(map[string]hold)
	}
	s.holds[name] = h
	return nil
}

// Unlock releases the lock.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	h, ok := s.holds[name]
	delete(s.holds, name)
	s.mu.Unlock()
	if !ok {
		return rlock.ErrNotHeld
	}
	return h.Unlock(ctx)
}

// RenewLockLease returns why the lock was lost. rlock renews the lease without it.
func (s *Storage) RenewLockLease(_ context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	h, ok := s.holds[name]
	s.mu.Unlock()
	switch {
	case !ok:
		return rlock.ErrNotHeld
	case h.ctx.Err() != nil && errors.Is(context.Cause(h.ctx), rlock.ErrLeaseLost):
		return context.Cause(h.ctx)
	}
	return nil
}

func TestCertmagic(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	files := &certmagic.FileStorage{Path: t.TempDir()}
	a, b := &Storage{Storage: files, Locks: host(t, srv)}, &Storage{Storage: files, Locks: host(t, srv)}
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, a.Lock(ctx, "x"))
	cancel()
	for _, s := range []*Storage{a, b} {
		ok, err := s.TryLock(t.Context(), "x")
		require.NoError(t, err)
		require.False(t, ok)
	}
	require.NoError(t, a.RenewLockLease(t.Context(), "x", time.Minute))
	require.ErrorIs(t, b.Unlock(t.Context(), "x"), rlock.ErrNotHeld)
	require.NoError(t, a.Unlock(ctx, "x"))
	require.ErrorIs(t, a.RenewLockLease(t.Context(), "x", time.Minute), rlock.ErrNotHeld)
	require.NoError(t, b.Lock(t.Context(), "x"))
	require.NoError(t, b.Unlock(t.Context(), "x"))

	// certmagic itself: the one that cleans waits for the lock, and finds what is left to do.
	_, other, err := host(t, srv).NewLock("storage_clean").Lock(t.Context())
	require.NoError(t, err)
	cleaned := make(chan error)
	go func() {
		cleaned <- certmagic.CleanStorage(t.Context(), a, certmagic.CleanStorageOptions{ExpiredCerts: true})
	}()
	select {
	case err := <-cleaned:
		t.Fatalf("it has not waited: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	require.NoError(t, other.Unlock(t.Context()))
	require.NoError(t, <-cleaned)
	ok, err := b.TryLock(t.Context(), "storage_clean")
	require.NoError(t, err)
	require.True(t, ok, "it has unlocked")
	require.NoError(t, b.Unlock(t.Context(), "storage_clean"))
}
