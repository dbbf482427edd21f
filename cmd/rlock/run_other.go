//go:build !unix

package main

import (
	"context"
	"errors"
	"os"

	"github.com/urfave/cli/v3"
)

func runCommand([]string) *cli.Command { return unixOnly("run", "run a command while holding a lock") }

func leadCommand([]string) *cli.Command {
	return unixOnly("lead", "run a command while this host is the leader")
}

// unixOnly: what guards a command are process groups and signals, which are Unix's.
func unixOnly(name, usage string) *cli.Command {
	return &cli.Command{
		Name:  name,
		Usage: usage + " (Unix only)",
		Action: func(context.Context, *cli.Command) error {
			return errors.New(name + " needs a Unix: process groups and signals")
		},
		SkipFlagParsing: true,
	}
}

// holdCommand: its end is that of a pipe, or a signal.
func holdCommand() *cli.Command {
	return &cli.Command{
		Name:  "hold",
		Usage: "hold a lock for a program in any language (Unix only)",
		Action: func(context.Context, *cli.Command) error {
			return errors.New("hold needs a Unix: signals")
		},
		SkipFlagParsing: true,
	}
}

// width is that of no terminal.
func width(*os.File) int { return 0 }
