// Command rlock holds a lock on Redis while a command runs, shows locks and
// frees them. `rlock --help` is its manual. What runs commands needs a Unix: process
// groups, signals, terminals.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9/logging"
	"github.com/urfave/cli/v3"
)

func main() {
	os.Exit(execute(os.Args, os.Stdout, os.Stderr))
}

// execute is the whole program. It returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	logging.Disable() // go-redis': whatever it logs comes back as an error as well
	app := newApp(args)
	if apart := unbundled(app, args); len(apart) > len(args) {
		args = apart
		app = newApp(args)
	}
	out := &output{Writer: stdout}
	app.Writer, app.ErrWriter = out, stderr
	err := app.Run(context.Background(), args)
	code, text := exit(err)
	if code == 0 && out.err != nil {
		code, text = exitFailure, out.err.Error()
	}
	if text != "" {
		fmt.Fprintln(stderr, "rlock: "+text+rightsHint(err)+accessHint(err)+masterHint(err)+schemeHint(app, err))
	}
	return code
}

// output remembers the first write that failed: who prints a help or the version does not
// look.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// file returns the file that is written to, nil if it is none.
func (o *output) file() *os.File {
	f, _ := o.Writer.(*os.File)
	return f
}

// columns are those of a terminal, 0 if it is none.
func (o *output) columns() int {
	if f := o.file(); f != nil {
		return width(f)
	}
	return 0
}

func newApp(args []string) *cli.Command {
	app := &cli.Command{
		Name:      "rlock",
		Usage:     "distributed locks on Redis, for shells and cron",
		UsageText: "rlock [--url URL] [--prefix P] COMMAND [options]",
		Version:   version(),
		Flags:     serverFlags(),

		// Behind a "--" is a command with options of its own: the scripts do not ask there.
		// The last word but one may be "--", to be completed.
		EnableShellCompletion:           !slices.Contains(args[:max(len(args)-2, 0)], "--"),
		ConfigureShellCompletionCommand: completionCommand,
		Commands: []*cli.Command{
			runCommand(args),
			leadCommand(args), leaderCommand(),
			holdCommand(),
			inspectCommand(),
			lsCommand(),
			topCommand(), watchCommand(),
			unlockCommand(),
			doctorCommand(),
			demoCommand(),
			demoActorCommand(),
			benchCommand(), benchWorkerCommand(),
			manCommand(),
			{Name: "version", Usage: "print the version", CustomHelpTemplate: localHelp, Action: noArguments(func(cmd *cli.Command) error {
				cli.ShowVersion(cmd.Root())
				return nil
			})},
		},
		Action: func(_ context.Context, cmd *cli.Command) error {
			if name := cmd.Args().First(); name != "" {
				return usagef(cmd, "there is no command %q%s", name, meant(name, cli.SuggestCommand(cmd.VisibleCommands(), name)))
			}
			return usagef(cmd, "no command given")
		},
		CustomRootCommandHelpTemplate: rootHelp,
		ExitErrHandler:                func(context.Context, *cli.Command, error) {}, // execute does it
	}
	for _, cmd := range append(app.Commands, app) {
		cmd.OnUsageError = onUsageError
		cmd.HideHelpCommand = cmd != app // or a lock could not be named h, or help
		if cmd.CustomHelpTemplate == "" {
			cmd.CustomHelpTemplate = commandHelp
		}
		if cmd.ShellComplete == nil {
			cmd.ShellComplete = complete
		}
		cmd.ShellComplete = ofArgument(args, cmd.ShellComplete)
	}
	return app
}

// version is what the go command knows of the binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	return versionOf(info)
}

// versionOf has commit and date of a build in a repository; what was installed from
// a module's zip has neither.
func versionOf(info *debug.BuildInfo) string {
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	words := []string{info.Main.Version}
	if commit := settings["vcs.revision"]; commit != "" {
		if words = append(words, commit[:min(len(commit), 12)]); settings["vcs.modified"] == "true" {
			words = append(words, "with changes")
		}
	}
	if date, _, _ := strings.Cut(settings["vcs.time"], "T"); date != "" {
		words = append(words, date)
	}
	return strings.Join(append(words, info.GoVersion, runtime.GOOS+"/"+runtime.GOARCH), " ")
}
