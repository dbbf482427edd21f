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
		Usage:     "release a lock whose holder is gone",
		UsageText: "rlock unlock NAME --owner ID | NAME... --force",
		Description: `Releases the lock and wakes a waiter. If the holder still runs, it notices this at its
next renewal, within a third of its lease, or at the end of a lease that is not renewed.
Until then, two clients can work at the same time. With --owner it releases the lock only
if this owner still holds it. "rlock inspect" shows the owner. For a read/write lock,
--force ends the holds of all readers, or of the writer.

Exit status: 0 all locks were released; 1 a lock was not released, because it was free or
had another owner; others as in "rlock --help". After 69, the lock may have been released.`,
		ShellComplete: completeName,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "owner", Usage: "release the lock only if the owner `ID` holds it"},
			&cli.BoolFlag{Name: "force", HideDefault: true, Usage: "release the lock, whatever its owner is"},
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
