//go:build unix

// Postgres sells from a stock that is a row of a PostgreSQL, under a lock in Redis: on two hosts, while the lock is lost, and
// by a holder that notices nothing.
//
//	go run ./postgres
//	go run ./postgres -url redis://127.0.0.1:6379 -database postgres://user:password@127.0.0.1/db
//
// Without a URL, Redis is in memory. Without a database, a PostgreSQL of its own is started, whose programs must be installed.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	_ "github.com/lib/pq"
	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/examples/transaction"
	"github.com/go-rlock/rlock/rlock"
)

func main() {
	url := flag.String("url", "", "Redis server, such as redis://127.0.0.1:6379; without it one in memory")
	database := flag.String("database", "", "PostgreSQL server; without it one that ends with this program. A table rlock_example_stock is made and dropped")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := start(ctx, os.Stdout, *url, *database)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// errStale says that somebody has sold under a later grant of the lock.
var errStale = errors.New("the lock was lost, and somebody else has sold since")

// sell sells a piece. A token with the statement makes the database refuse it if the lock has had a later holder, whose token is
// greater. That is no error of the statement: it changes no row.
func sell(ctx context.Context, tx *sql.Tx, token int64) error {
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT n FROM rlock_example_stock WHERE id = 7`).Scan(&n); err != nil {
		return err
	}
	if n == 0 {
		return errors.New("sold out")
	}
	result, err := tx.ExecContext(ctx, `UPDATE rlock_example_stock SET n = $1, token = $2 WHERE id = 7 AND token <= $2`, n-1, token)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 0 {
		return errors.Join(err, errStale)
	}
	return nil
}

// shop is the process of a host.
type shop struct {
	db *sql.DB
	mu *rlock.Lock
}

func newShop(db *sql.DB, locks *rlock.Client) *shop {
	return &shop{db, locks.NewLock("stock:7", rlock.WithFencing(), rlock.WithLeaseTime(time.Second))}
}

// sell sells a piece under the lock.
func (s *shop) sell(ctx context.Context) error {
	return transaction.Do(ctx, s.mu, s.db, func(ctx context.Context, tx *sql.Tx) error {
		return sell(ctx, tx, s.mu.Token(ctx))
	})
}

// show sells from 100 pieces.
func show(ctx context.Context, out io.Writer, db *sql.DB, connect func() *redis.Client) (err error) {
	if _, err := db.ExecContext(ctx, `CREATE TABLE rlock_example_stock (id int PRIMARY KEY, n int NOT NULL, token bigint NOT NULL)`); err != nil {
		return err
	}
	defer func() {
		_, dropped := db.ExecContext(context.WithoutCancel(ctx), `DROP TABLE rlock_example_stock`)
		err = errors.Join(err, dropped)
	}()
	if _, err := db.ExecContext(ctx, `INSERT INTO rlock_example_stock VALUES (7, 100, 0)`); err != nil {
		return err
	}
	stock := func() (n int) {
		if e := db.QueryRowContext(ctx, `SELECT n FROM rlock_example_stock WHERE id = 7`).Scan(&n); e != nil {
			err = errors.Join(err, e)
		}
		return n
	}
	var shops []*shop
	for range 2 {
		rdb := connect()
		defer rdb.Close()
		locks, err := rlock.New(rdb, nil)
		if err != nil {
			return err
		}
		defer locks.Close(context.WithoutCancel(ctx))
		shops = append(shops, newShop(db, locks))
	}
	here, there := shops[0], shops[1]

	var sales sync.WaitGroup
	sold := make([]error, 20)
	for i := range sold {
		sales.Go(func() { sold[i] = shops[i%2].sell(ctx) })
	}
	sales.Wait()
	if err := errors.Join(sold...); err != nil {
		return err
	}
	fmt.Fprintf(out, "Two hosts sell 20 of 100 pieces at once: %d are left.\n", stock())

	err = transaction.Do(ctx, here.mu, db, func(ctx context.Context, tx *sql.Tx) error {
		if err := sell(ctx, tx, here.mu.Token(ctx)); err != nil {
			return err
		}
		if _, err := there.mu.ForceUnlock(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `SELECT pg_sleep(10)`) // ends with the lock
		return err
	})
	if !errors.Is(err, rlock.ErrLeaseLost) {
		return fmt.Errorf("the lock was not lost: %w", err)
	}
	fmt.Fprintf(out, "A host loses the lock in the middle of a transaction, which is rolled back: %d are left.\n", stock())

	// What stands still, and does not look at its context, notices nothing.
	late := func() error {
		held, hold, err := here.mu.Lock(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = hold.Unlock(held) }() // the database tells of the loss
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := there.mu.ForceUnlock(ctx); err != nil {
			return err
		}
		if err := there.sell(ctx); err != nil {
			return err
		}
		if err := sell(ctx, tx, hold.Token()); err != nil {
			return err
		}
		return tx.Commit()
	}()
	if !errors.Is(late, errStale) {
		return fmt.Errorf("a late write was not refused: %w", late)
	}
	fmt.Fprintf(out, "A host does not notice the loss, and another one sells. The late UPDATE changes 0 rows: %d are left.\n", stock())
	return nil
}
