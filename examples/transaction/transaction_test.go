package transaction_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/examples/transaction"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// journal is a database that writes down what it is told.
type journal struct {
	onCommit func()

	mu   sync.Mutex // guards told
	told []string
}

func (j *journal) tell(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.told = append(j.told, what)
}

func (j *journal) Connect(context.Context) (driver.Conn, error) { return conn{j}, nil }
func (j *journal) Driver() driver.Driver                        { return nil }

// conn is a connection to it, and a transaction.
type conn struct{ *journal }

func (c conn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c conn) Close() error                        { return nil }
func (c conn) Begin() (driver.Tx, error)           { c.tell("begin"); return c, nil }
func (c conn) Rollback() error                     { c.tell("rollback"); return nil }

func (c conn) Commit() error {
	if c.onCommit != nil {
		c.onCommit()
	}
	c.tell("commit")
	return nil
}

func (c conn) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	c.tell(query)
	return driver.RowsAffected(1), nil
}

func open(t *testing.T, j *journal) *sql.DB {
	db := sql.OpenDB(j)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func update(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "UPDATE")
	return err
}

func TestCommitsBeforeTheUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		here, there := server.Locks(nil).NewLock("stock:7"), server.Locks(nil).NewLock("stock:7")
		j := &journal{onCommit: func() {
			require.ErrorIs(t, there.TryDo(t.Context(), func(context.Context) error { return nil }), rlock.ErrNotAcquired)
		}}
		require.NoError(t, transaction.Do(t.Context(), here, open(t, j), update))
		require.Equal(t, []string{"begin", "UPDATE", "commit"}, j.told)
		require.NoError(t, there.TryDo(t.Context(), func(context.Context) error { return nil }), "the lock is free then")
	})
}

func TestErrorRollsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, sold := new(journal), errors.New("sold out")
		mu := rlocktest.NewServer(t).Locks(nil).NewLock("stock:7")
		err := transaction.Do(t.Context(), mu, open(t, j), func(context.Context, *sql.Tx) error { return sold })
		require.ErrorIs(t, err, sold)
		require.Equal(t, []string{"begin", "rollback"}, j.told)
	})
}

// Also if the function does not look at its context.
func TestLossRollsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, j := rlocktest.NewServer(t), new(journal)
		mu := server.Locks(nil).NewLock("stock:7")
		err := transaction.Do(t.Context(), mu, open(t, j), func(ctx context.Context, tx *sql.Tx) error {
			if err := update(ctx, tx); err != nil {
				return err
			}
			server.Evict("stock:7") // nobody is told, as after a failover
			time.Sleep(time.Minute)
			require.Equal(t, []string{"begin", "UPDATE", "rollback"}, j.told, "at the next renewal")
			return nil
		})
		require.ErrorIs(t, err, rlock.ErrLeaseLost)
		require.Equal(t, []string{"begin", "UPDATE", "rollback"}, j.told)
	})
}
