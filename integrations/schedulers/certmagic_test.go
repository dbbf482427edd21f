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

	mu sync.Mutex // guards holds
	// holds has, for each name, the holds without an Unlock, oldest first. Only the newest can be live, because the others
	// were lost. An Unlock does not say whose hold it ends, so it ends the oldest, and the last Unlock releases the lock.
	holds map[string][]hold
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
		s.holds = make(map[string][]hold)
	}
	s.holds[name] = append(s.holds[name], h)
	return nil
}

// Unlock releases the lock.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	holds := s.holds[name]
	if len(holds) > 1 {
		s.holds[name] = holds[1:]
	} else {
		delete(s.holds, name)
	}
	s.mu.Unlock()
	if len(holds) == 0 {
		return rlock.ErrNotHeld
	}
	return holds[0].Unlock(ctx)
}

// RenewLockLease reports whether the lock was lost. rlock renews the lease without it.
func (s *Storage) RenewLockLease(_ context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	holds := s.holds[name]
	s.mu.Unlock()
	switch {
	case len(holds) == 0:
		return rlock.ErrNotHeld
	case s.Locks.NewLock(name).Owner(holds[0].ctx) == "": // not by Err: that context also ends with the context of Lock
		return rlock.ErrLeaseLost
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

	// A loss is reported after the end of the context of Lock too. The late Unlock of the one that has lost the lock
	// leaves it to the next one of this process.
	ctx, cancel = context.WithCancel(t.Context())
	require.NoError(t, a.Lock(ctx, "y"))
	cancel()
	_, err := a.Locks.NewLock("y").ForceUnlock(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, a.RenewLockLease(t.Context(), "y", time.Minute), rlock.ErrLeaseLost)
	require.NoError(t, a.Lock(t.Context(), "y"))
	require.ErrorIs(t, a.Unlock(ctx, "y"), rlock.ErrLeaseLost)
	ok, err := b.TryLock(t.Context(), "y")
	require.NoError(t, err)
	require.False(t, ok, "the next one holds the lock")
	require.NoError(t, a.RenewLockLease(t.Context(), "y", time.Minute))
	require.NoError(t, a.Unlock(t.Context(), "y"))
	ok, err = b.TryLock(t.Context(), "y")
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, b.Unlock(t.Context(), "y"))

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
	ok, err = b.TryLock(t.Context(), "storage_clean")
	require.NoError(t, err)
	require.True(t, ok, "it has unlocked")
	require.NoError(t, b.Unlock(t.Context(), "storage_clean"))
}
