package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/rlock"
)

func unlockCommand() *cli.Command {
	return &cli.Command{
		Name:      "unlock",
		Usage:     "free a lock whose holder is gone",
		UsageText: "rlock unlock NAME --owner ID | NAME... --force",
		Description: `Releases the lock and wakes a waiter. A holder that is still alive notices at its
next renewal, within a third of its lease, or when a lease that is not renewed ends.
Until then two clients can work at the same time. --owner releases the lock only if that
owner still holds it, and not if the next one does. "rlock inspect" shows the owner. A
read/write lock is recognized by its data: --force ends all readers, or the writer.

Exit status: 0 the lock was released; 1 one was not, because it is free or held by
another owner; others as in "rlock --help". After 69 it may have been released.`,
		ShellComplete: completeName,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "owner", Usage: "free the lock only if the owner `ID` holds it"},
			&cli.BoolFlag{Name: "force", HideDefault: true, Usage: "free the lock whoever holds it"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			owner, force := cmd.String("owner"), cmd.Bool("force")
			switch {
			case force == (owner != ""):
				return usagef(cmd, "use either --owner ID or --force")
			case owner != "" && cmd.Args().Len() > 1:
				return usagef(cmd, "expected one NAME: an owner holds one lock")
			}
			return withLocks(ctx, cmd, func(_ *server, lock *rlock.Lock, state rlock.State) error {
				if force {
					freed, err := lock.ForceUnlock(ctx)
					return reportFreed(cmd, lock, freed, err, "is free")
				}
				held := owner
				if state.Shared != nil { // as ls shows a writer
					held = strings.TrimSuffix(owner, ":write")
				}
				freed, err := lock.UnlockOwner(ctx, held)
				return reportFreed(cmd, lock, freed, err, "is not held by "+printable(owner))
			})
		},
	}
}

func reportFreed(cmd *cli.Command, lock *rlock.Lock, freed bool, err error, otherwise string) error {
	switch {
	case err != nil:
		return err
	case !freed:
		return &exitError{exitFailure, fmt.Errorf("lock %q %s: nothing was released", lock.Name(), otherwise)}
	}
	_, err = fmt.Fprintf(cmd.Root().Writer, "released %s\n", printable(lock.Name()))
	return err
}
