// Package fencing keeps out the writes of a holder that was stopped for longer
// than its lease and does not know it: between a look at the context and the
// write that follows, a process can stand still for any time. Only the store can
// tell, if each write carries the token of its grant.
package fencing

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-rlock/rlock/rlock"
)

// ErrStale says that somebody has written under a later grant.
var ErrStale = errors.New("fencing: stale token")

// Store is a record with the token of the grant it was last written under. In a
// database a write is one statement, and stale if it changes no row:
//
//	UPDATE record SET value = $1, token = $2 WHERE id = 42 AND token <= $2
//
// Equal tokens pass: they are of one grant, which may write as often as it likes.
type Store struct {
	mu    sync.Mutex // guards what follows
	value string
	token int64
}

// Write replaces the value, unless the token is older than that of the value.
func (s *Store) Write(token int64, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.token {
		return fmt.Errorf("%w: %d after %d", ErrStale, token, s.token)
	}
	s.value, s.token = value, token
	return nil
}

// Value returns what was written last.
func (s *Store) Value() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value
}

// Update makes a value under the lock, which is one WithFencing, and writes it.
func Update(ctx context.Context, lock *rlock.Lock, store *Store, value func(context.Context) (string, error)) (err error) {
	ctx, hold, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()

	v, err := value(ctx)
	if err != nil {
		return err
	}
	return store.Write(hold.Token(), v)
}
