package main

import (
	"context"
	"embed"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
)

// What the shells call prints one candidate a line, a tab, and what it means. The
// scripts of urfave/cli separate by a colon, which names of locks may have, and
// evaluate the command line.
//
//go:embed completion
var completionScripts embed.FS

// Nobody waits for a completion, nor reads a long one.
var completionTime = 500 * time.Millisecond // longer in tests, whose machine may stand still

const completionMost = 100 // names of locks

// completionCommand replaces what urfave/cli prints.
func completionCommand(cmd *cli.Command) {
	cmd.Usage = "print a script for the completion of commands, options and names: bash, zsh, fish"
	cmd.UsageText = "rlock completion bash | zsh | fish"
	cmd.Description, cmd.CustomHelpTemplate = "", localHelp
	cmd.Hidden, cmd.HideHelpCommand = false, true
	cmd.ShellComplete, cmd.OnUsageError = complete, onUsageError
	cmd.Action = func(_ context.Context, cmd *cli.Command) error {
		return usagef(cmd, "expected one of bash, zsh, fish")
	}
	cmd.Commands = nil
	for _, shell := range []string{"bash", "zsh", "fish"} {
		cmd.Commands = append(cmd.Commands, &cli.Command{
			Name: shell, Usage: "for " + shell, CustomHelpTemplate: localHelp,
			ShellComplete: complete, OnUsageError: onUsageError,
			Action: noArguments(func(cmd *cli.Command) error {
				script, err := completionScripts.ReadFile("completion/rlock." + shell)
				if err != nil {
					return err
				}
				_, err = cmd.Root().Writer.Write(script)
				return err
			}),
		})
	}
}

// ofArgument completes the last word of a command line only if it is an argument, or the value
// of an option that has few.
func ofArgument(argv []string, complete cli.ShellCompleteFunc) cli.ShellCompleteFunc {
	return func(ctx context.Context, cmd *cli.Command) {
		word := argv[len(argv)-2] // the last one asks for a completion
		switch argv[max(len(argv)-3, 0)] {
		case "--sort":
			suggestAll(cmd, word, "a column", topOrders())
			return
		case "--by":
			suggestAll(cmd, word, "what a line is", topLines())
			return
		case "--owner":
			suggestAll(cmd, word, "holds it", owners(ctx, cmd))
			return
		}
		if args := cmd.Args(); args.Present() && args.Get(args.Len()-1) == word {
			complete(ctx, cmd)
		}
	}
}

// suggestAll prints those candidates that begin with a word.
func suggestAll(cmd *cli.Command, word, usage string, candidates []string) {
	for _, c := range candidates {
		if strings.HasPrefix(c, word) && printable(c) == c {
			fmt.Fprintf(cmd.Root().Writer, "%s\t%s\n", c, usage)
		}
	}
}

// owners returns those of the lock that the first argument names.
func owners(ctx context.Context, cmd *cli.Command) (names []string) {
	s, err := connect(cmd)
	if err != nil {
		return nil
	}
	defer s.close()
	found := make(chan []lockView, 1)
	go func() { // a server may not answer: see completeName
		locks, _ := s.read(ctx, []string{s.prefix + cmd.Args().First()})
		found <- locks
	}()
	select {
	case locks := <-found:
		for _, v := range locks {
			for _, o := range v.Owners {
				names = append(names, o.Owner)
			}
		}
	case <-time.After(completionTime):
	}
	return names
}

// complete prints what may stand in place of the last argument of cmd, which may
// be empty. It never fails: what goes wrong shows when the command runs.
func complete(ctx context.Context, cmd *cli.Command) {
	args := cmd.Args().Slice()
	if len(args) == 0 {
		return
	}
	word, out := args[len(args)-1], cmd.Root().Writer
	suggest := func(candidate, usage string) {
		if strings.HasPrefix(candidate, word) {
			fmt.Fprintf(out, "%s\t%s\n", candidate, usage)
		}
	}
	switch {
	case strings.HasPrefix(word, "-"):
		for _, flag := range append(cmd.VisibleFlags(), cmd.VisiblePersistentFlags()...) {
			usage, _ := flag.(cli.DocGenerationFlag)
			for _, name := range flag.Names() {
				if len(name) > 1 {
					suggest("--"+name, strings.ReplaceAll(usage.GetUsage(), "`", ""))
				}
			}
		}
	case len(args) == 1: // of a command without commands there is nothing
		for _, c := range cmd.VisibleCommands() {
			suggest(c.Name, c.Usage)
		}
	}
}

// completeName is complete for a command whose arguments are names of locks: those that are
// held.
func completeName(ctx context.Context, cmd *cli.Command) {
	word := cmd.Args().Get(max(cmd.Args().Len()-1, 0))
	if cmd.Args().Len() == 0 || strings.HasPrefix(word, "-") {
		complete(ctx, cmd)
		return
	}
	s, err := connect(cmd)
	if err != nil {
		return
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	names := make(chan string)
	// go-redis looks at ctx only between two requests, and a server may not answer.
	go func() {
		defer close(names)
		_ = s.scan(ctx, escapeGlob(word)+"*", func(locks []lockView) error {
			for _, v := range locks {
				select {
				case names <- v.Name:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	}()
	printed := make(map[string]bool) // a name may come twice
	for len(printed) < completionMost {
		select {
		case name, more := <-names:
			if !more {
				return
			}
			if printable(name) == name && !printed[name] && !strings.HasPrefix(name, "-") {
				printed[name] = true
				fmt.Fprintf(cmd.Root().Writer, "%s\theld\n", name)
			}
		case <-ctx.Done():
			return
		}
	}
}
