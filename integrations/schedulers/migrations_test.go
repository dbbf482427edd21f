package schedulers_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	migratedb "github.com/golang-migrate/migrate/v4/database"
	migratestub "github.com/golang-migrate/migrate/v4/database/stub"
	"github.com/golang-migrate/migrate/v4/source"
	sourcestub "github.com/golang-migrate/migrate/v4/source/stub"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// Migrated is a driver of golang-migrate under a lock of rlock.
type Migrated struct {
	migratedb.Driver
	Mutex *rlock.Lock
	Wait  time.Duration // less than the LockTimeout of migrate, 15 s: nobody would unlock what came after that
	hold  *rlock.Hold
}

// Lock implements [migratedb.Driver].
func (m *Migrated) Lock() (err error) {
	_, m.hold, err = m.Mutex.TryLockFor(context.Background(), m.Wait)
	if errors.Is(err, rlock.ErrNotAcquired) {
		return migratedb.ErrLocked
	}
	return err
}

// Unlock implements [migratedb.Driver].
func (m *Migrated) Unlock() error { return m.hold.Unlock(context.Background()) }

// slow is a database in which a migration takes some time.
type slow struct {
	*migratestub.Stub
	running, together, ran *atomic.Int64
}

func (s slow) Run(migration io.Reader) error {
	if s.running.Add(1) > 1 {
		s.together.Add(1)
	}
	defer s.running.Add(-1)
	s.ran.Add(1)
	time.Sleep(50 * time.Millisecond)
	return s.Stub.Run(migration)
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	db, err := migratestub.WithInstance(nil, &migratestub.Config{})
	require.NoError(t, err)
	shared := slow{db.(*migratestub.Stub), new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)}
	migrator := func(wait time.Duration) *migrate.Migrate {
		from, err := sourcestub.WithInstance(nil, &sourcestub.Config{})
		require.NoError(t, err)
		steps := source.NewMigrations()
		for version := range uint(3) {
			steps.Append(&source.Migration{Version: version + 1, Direction: source.Up, Identifier: "CREATE"})
		}
		from.(*sourcestub.Stub).Migrations = steps
		m, err := migrate.NewWithInstance("stub", from, "stub", &Migrated{Driver: shared, Mutex: host(t, s).NewLock("migrations"), Wait: wait})
		require.NoError(t, err)
		return m
	}
	var all sync.WaitGroup
	for range 4 {
		m := migrator(10 * time.Second)
		all.Go(func() {
			if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Zero(t, shared.together.Load())
	require.EqualValues(t, 3, shared.ran.Load())

	_, hold, err := host(t, s).NewLock("migrations").Lock(t.Context())
	require.NoError(t, err)
	m := migrator(200 * time.Millisecond)
	require.ErrorIs(t, m.Up(), migratedb.ErrLocked)
	require.NoError(t, hold.Unlock(t.Context()))
	require.ErrorIs(t, m.Up(), migrate.ErrNoChange, "nobody holds the lock")
}

// Migrations is a lock for goose: goose.WithLocker(&Migrations{Mutex: locks.NewLock("migrations")}). Each
// provider has its own.
type Migrations struct {
	Mutex *rlock.Lock
	hold  *rlock.Hold
}

var _ lock.Locker = (*Migrations)(nil)

// Lock implements [lock.Locker].
func (m *Migrations) Lock(ctx context.Context, _ *sql.DB) (err error) {
	_, m.hold, err = m.Mutex.Lock(ctx)
	return err
}

// Unlock implements [lock.Locker].
func (m *Migrations) Unlock(ctx context.Context, _ *sql.DB) error { return m.hold.Unlock(ctx) }

func TestGoose(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	db := sql.OpenDB(noDatabase{})
	t.Cleanup(func() { _ = db.Close() })
	versions := &versions{}
	var running, together, ran atomic.Int64
	step := &goose.GoFunc{RunDB: func(context.Context, *sql.DB) error {
		if running.Add(1) > 1 {
			together.Add(1)
		}
		defer running.Add(-1)
		ran.Add(1)
		time.Sleep(50 * time.Millisecond)
		return nil
	}}
	var all sync.WaitGroup
	for range 4 {
		provider, err := goose.NewProvider(goose.DialectCustom, db, nil, goose.WithStore(versions), goose.WithDisableGlobalRegistry(true),
			goose.WithGoMigrations(goose.NewGoMigration(1, step, nil), goose.NewGoMigration(2, step, nil)),
			goose.WithLocker(&Migrations{Mutex: host(t, s).NewLock("migrations")}))
		require.NoError(t, err)
		all.Go(func() {
			if _, err := provider.Up(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Zero(t, together.Load())
	require.EqualValues(t, 2, ran.Load())
}

// versions are the migrations that have run, in memory.
type versions struct {
	mu  sync.Mutex // guards ran
	ran []int64
}

func (v *versions) Tablename() string { return "versions" }

func (v *versions) CreateVersionTable(context.Context, database.DBTxConn) error { return nil }

func (v *versions) Insert(_ context.Context, _ database.DBTxConn, r database.InsertRequest) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ran = append(v.ran, r.Version)
	return nil
}

func (v *versions) Delete(context.Context, database.DBTxConn, int64) error { return nil }

func (v *versions) GetMigration(_ context.Context, _ database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, ran := range v.ran {
		if ran == version {
			return &database.GetMigrationResult{IsApplied: true}, nil
		}
	}
	return nil, database.ErrVersionNotFound
}

func (v *versions) GetLatestVersion(context.Context, database.DBTxConn) (int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.ran) == 0 {
		return 0, database.ErrVersionNotFound
	}
	return v.ran[len(v.ran)-1], nil
}

func (v *versions) ListMigrations(context.Context, database.DBTxConn) (all []*database.ListMigrationsResult, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, ran := range v.ran {
		all = append([]*database.ListMigrationsResult{{Version: ran, IsApplied: true}}, all...)
	}
	return all, nil
}

// noDatabase has connections and transactions, and no statements.
type noDatabase struct{}

func (noDatabase) Connect(context.Context) (driver.Conn, error) { return noConn{}, nil }
func (noDatabase) Driver() driver.Driver                        { return nil }

type noConn struct{}

func (noConn) Prepare(query string) (driver.Stmt, error) {
	return nil, errors.New("no statements: " + strings.TrimSpace(query))
}
func (noConn) Close() error              { return nil }
func (noConn) Begin() (driver.Tx, error) { return noTx{}, nil }

type noTx struct{}

func (noTx) Commit() error   { return nil }
func (noTx) Rollback() error { return nil }
