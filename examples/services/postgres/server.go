//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/examples/internal/demo"
)

// start shows it with the servers that are named, or some of its own.
func start(ctx context.Context, out io.Writer, url, database string) error {
	if database == "" {
		dsn, stop, err := startPostgres(ctx)
		if err != nil {
			return err
		}
		defer stop()
		database = dsn
	}
	opts, stop, err := demo.Server(url)
	if err != nil {
		return err
	}
	defer stop()
	db, err := sql.Open("postgres", database)
	if err != nil {
		return err
	}
	defer db.Close()
	return show(ctx, out, db, func() *redis.Client { return redis.NewClient(opts) })
}

// errNoPostgres says that there is no PostgreSQL on this machine.
var errNoPostgres = errors.New("initdb was not found: install PostgreSQL (Debian: apt-get install postgresql), or give a -database")

// startPostgres starts a server in a directory of its own, on a socket in it.
func startPostgres(ctx context.Context) (dsn string, stop func(), err error) {
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // where Debian has it
		if len(found) == 0 {
			return "", nil, errNoPostgres
		}
		initdb = found[len(found)-1]
	}
	dir, err := os.MkdirTemp("", "rlock-postgres")
	if err != nil {
		return "", nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	as, err := owner(dir)
	if err != nil {
		remove()
		return "", nil, err
	}
	run := func(program string, args ...string) error {
		cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(initdb), program), args...)
		cmd.Dir, cmd.SysProcAttr = dir, as
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", program, err, out)
		}
		return nil
	}
	data := filepath.Join(dir, "data")
	err = run("initdb", "--no-sync", "--auth=trust", "--username=rlock", "-D", data)
	if err == nil {
		err = run("pg_ctl", "start", "--wait", "-D", data, "-l", filepath.Join(dir, "log"),
			"-o", "-c listen_addresses='' -c fsync=off -c unix_socket_directories='"+dir+"'")
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return "host=" + dir + " user=rlock dbname=postgres sslmode=disable", func() {
		ctx = context.WithoutCancel(ctx)
		_ = run("pg_ctl", "stop", "--wait", "-m", "immediate", "-D", data)
		remove()
	}, nil
}

// owner gives a directory to the user postgres, if this one is root: PostgreSQL refuses to run as root.
func owner(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, os.Chown(dir, int(uid), int(gid))
}
