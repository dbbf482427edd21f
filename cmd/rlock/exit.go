package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/rlock"
)

// Exit codes: those of sysexits.h, then the shell's.
const (
	exitFailure     = 1   // nothing released; "inspect -q": free; a scene of the demo failed; the output cannot be written
	exitWarnings    = 1   // of the doctor
	exitBroken      = 2   // of the doctor
	exitUsage       = 64  // EX_USAGE
	exitNotALock    = 65  // EX_DATAERR: the key holds something else
	exitUnavailable = 69  // EX_UNAVAILABLE: Redis
	exitBusy        = 75  // EX_TEMPFAIL: somebody else holds the lock
	exitLost        = 79  // the lock was lost; sysexits.h ends at 78
	exitCannotRun   = 126 // the command was found but cannot be run
	exitNotFound    = 127 // the command was not found
	exitSignal      = 128 // plus the number of the signal
)

// exitError is an error with an exit code of its own. Without err it is silent.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef returns a usage error with a hint at the help of cmd.
func usagef(cmd *cli.Command, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &exitError{exitUsage, fmt.Errorf("%w (see %s --help)", err, cmd.FullName())}
}

// onUsageError is for what urfave/cli finds wrong.
func onUsageError(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	unknown, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	switch {
	case !ok:
		return usagef(cmd, "%w", err)
	case cmd.Name == "run" && unknown == "c":
		return usagef(cmd, `there is no option -c: a line of the shell is a command behind "--": rlock run NAME -- sh -c '…'`)
	}
	flags := slices.Concat(cmd.Flags, cmd.Root().Flags)
	return usagef(cmd, "%w%s", err, meant(unknown, cli.SuggestFlag(flags, unknown, false)))
}

// noArguments is an action that takes none.
func noArguments(action func(*cli.Command) error) cli.ActionFunc {
	return func(_ context.Context, cmd *cli.Command) error {
		if cmd.Args().Present() {
			return usagef(cmd, "takes no arguments")
		}
		return action(cmd)
	}
}

// exit returns the exit code for what a command returned, and the text to print.
func exit(err error) (code int, text string) {
	if err == nil {
		return 0, ""
	}
	text = err.Error()
	if own, ok := errors.AsType[*exitError](err); ok {
		return own.code, own.Error()
	}
	if _, ok := errors.AsType[cli.ExitCoder](err); ok { // of "rlock help", an unknown topic
		return exitUsage, text + " (see rlock --help)"
	}
	for _, known := range []struct {
		err  error
		code int
	}{
		{rlock.ErrNotAcquired, exitBusy},
		{rlock.ErrLeaseLost, exitLost},
		{rlock.ErrUnavailable, exitUnavailable},
		{rlock.ErrKeyConflict, exitNotALock},
		{rlock.ErrInvalidOption, exitUsage},
	} {
		if errors.Is(err, known.err) {
			return known.code, trimmed(err)
		}
	}
	return exitFailure, text
}
