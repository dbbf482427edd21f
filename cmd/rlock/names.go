//go:build unix

package main

import (
	"context"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/rlock"
)

// kindFlags say which locks `rlock run` takes: plain ones without any of them.
func kindFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "fair", HideDefault: true, Usage: "wait in the order of arrival among all waiters with --fair"},
		&cli.BoolFlag{Name: "shared", Aliases: []string{"s"}, HideDefault: true, Usage: "acquire a read/write lock as a reader, together with other readers"},
		&cli.BoolFlag{Name: "exclusive", Aliases: []string{"x"}, HideDefault: true, Usage: "acquire a read/write lock as a writer, which excludes readers and other writers"},
	}
}

// newLock returns a lock of the kind that the flags name.
func (j *job) newLock(client *rlock.Client, name string) *rlock.Lock {
	opts := []rlock.LockOption{rlock.WithFencing(), rlock.WithLeaseTime(j.lease), rlock.WithPurpose(j.purpose)}
	if j.fixed {
		opts = append(opts, rlock.WithoutRenewal())
	}
	switch j.kind {
	case "fair":
		return client.NewFairLock(name, opts...)
	case "shared":
		return client.NewRWLock(name, opts...).Reader()
	case "exclusive":
		return client.NewRWLock(name, opts...).Writer()
	}
	return client.NewLock(name, opts...)
}

// locks are those that `rlock run` takes.
type locks []*rlock.Lock

// inspect tells about the one that is waited for.
func (l locks) inspect(ctx context.Context, name string) (rlock.State, error) {
	return l[slices.IndexFunc(l, func(lock *rlock.Lock) bool { return lock.Name() == name })].Inspect(ctx)
}

// separate returns the names and the command among the arguments. argv is the
// command line of the process: urfave/cli drops the first "--", without which an
// option of the command would be one of ours. If nothing is before that, it is
// there for names that begin with "-", and the next one separates.
func separate(args, argv []string) (names, command []string) {
	first := slices.Index(argv, "--")
	if first < 0 {
		return args, nil
	}
	command = argv[first+1:]
	before := len(args) - len(command)
	if before < 0 || !slices.Equal(args[before:], command) { // it is the value of an option
		return args, nil
	}
	if before > 0 {
		return args[:before], command
	}
	if second := slices.Index(command, "--"); second >= 0 {
		return command[:second], command[second+1:]
	}
	return args, nil
}
