// Package transaction runs a database transaction under a lock. The transaction begins under the context that owns the
// lock, so database/sql rolls it back when the lock is lost. The commit comes before the unlock, so the next holder reads
// what this one has written.
//
// One case remains: a commit that is on its way to the database when the lock is lost. A fencing token in the statement
// refuses it, see package fencing; so does a unique key, or the isolation level serializable.
package transaction

import (
	"context"
	"database/sql"

	"github.com/go-rlock/rlock/rlock"
)

// Do runs f in a transaction under the lock. An error of f, or the loss of the lock, rolls the transaction back.
//
// If Commit itself returns an error, the database may have committed: as without a lock, read it before trying again.
func Do(ctx context.Context, mu *rlock.Lock, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) error {
	return mu.Do(ctx, func(ctx context.Context) error { // this context owns the lock
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		if err := f(ctx, tx); err != nil {
			return err
		}
		return tx.Commit() // refuses if the context has ended
	})
}
