//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/rlock"
)

// job is what `rlock run` was asked to do.
type job struct {
	names     []string
	kind      string // "": plain
	path      string // of the command's executable
	argv      []string
	wait      time.Duration // or noWait, noLimit
	oncePer   time.Duration // 0: each time
	lease     time.Duration
	fixed     bool // the lease is not renewed
	killAfter time.Duration
	busy      int // exit code when somebody else holds the lock
	quiet     bool
	purpose   string
}

const (
	noWait  time.Duration = 0
	noLimit time.Duration = -1
)

// newJob reads the command line of cmd; argv is that of the process.
func newJob(cmd *cli.Command, argv []string) (*job, error) {
	names, command := separate(cmd.Args().Slice(), argv)
	switch {
	case cmd.Name == "lead" && len(command) > 0 && len(names) > 1:
		return nil, usagef(cmd, "want one NAME")
	case len(command) == 0 && len(names) > 1:
		return nil, usagef(cmd, `want "--" between NAME and COMMAND`)
	case len(command) == 0, len(names) == 0:
		return nil, usagef(cmd, "want NAME -- COMMAND")
	}
	j := &job{names: names, argv: command, quiet: cmd.Bool("quiet")}
	if err := j.parse(cmd); err != nil {
		return nil, usagef(cmd, "%w", err)
	}
	// The arguments may have what is nobody's business.
	if j.purpose = cmd.String("purpose"); j.purpose == "" {
		j.purpose = filepath.Base(command[0])
	}
	var err error
	if j.path, err = exec.LookPath(j.argv[0]); err != nil && !errors.Is(err, exec.ErrDot) {
		return nil, j.startError(err)
	}
	return j, nil
}

func (j *job) parse(cmd *cli.Command) (err error) {
	switch {
	case cmd.IsSet("no-wait") && cmd.IsSet("wait"):
		return errors.New("--no-wait and --wait exclude each other")
	case cmd.IsSet("ttl") && cmd.IsSet("lease"):
		return errors.New("--ttl and --lease exclude each other")
	}
	for _, kind := range kindFlags() {
		name := kind.Names()[0]
		switch {
		case !cmd.Bool(name):
		case j.kind != "":
			return fmt.Errorf("--%s and --%s exclude each other", j.kind, name)
		default:
			j.kind = name
		}
	}
	if j.wait, err = duration(cmd, "wait", noLimit); err != nil {
		return err
	}
	if cmd.Bool("no-wait") {
		j.wait = noWait
	}
	if j.oncePer, err = duration(cmd, "once-per", 0); err != nil {
		return err
	}
	switch {
	case cmd.IsSet("once-per") && j.oncePer < 10*time.Millisecond:
		return fmt.Errorf("--once-per: %v is too short a period: use at least 10ms", j.oncePer)
	case j.oncePer != 0 && len(j.names) > 1:
		return errors.New("--once-per is for one NAME")
	}
	if j.fixed = cmd.IsSet("lease"); j.fixed {
		j.lease, err = duration(cmd, "lease", 0)
	} else {
		j.lease, err = duration(cmd, "ttl", rlock.DefaultLeaseTime)
	}
	if err != nil {
		return err
	}
	// As the held context ends a tenth of the lease before the trusted window,
	// the default is the longest that does not bring TERM forward.
	if j.killAfter, err = duration(cmd, "kill-after", j.lease/10-margin(j.lease)); err != nil {
		return err
	}
	if j.killAfter > j.lease/2 {
		return fmt.Errorf("--kill-after %v is more than half of the lease of %v: renewal would have no time left", j.killAfter, j.lease)
	}
	j.busy = exitBusy
	if text := cmd.String("conflict-exit-code"); text != "" {
		n, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return fmt.Errorf("--conflict-exit-code: %q is not a number from 0 to 255", text)
		}
		j.busy = int(n)
	}
	return nil
}

// executed has run execute a command. A script without a "#!" line, which the kernel does not
// know, is one for the shell, as it is for env and for shells.
func executed(path string, argv []string, run func(path string, argv []string) error) error {
	err := run(path, argv)
	if !errors.Is(err, syscall.ENOEXEC) || !isText(path) {
		return err
	}
	if !strings.Contains(path, "/") { // the shell would look for it elsewhere, or take it for an option
		path = "./" + path
	}
	return run(posixShell, append([]string{posixShell, path}, argv[1:]...))
}

// posixShell is that of POSIX.
const posixShell = "/bin/sh"

// isText reports whether a file may be a script: its first line has no NUL, as any program of
// another machine has.
func isText(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	beginning := make([]byte, 256)
	n, err := io.ReadFull(f, beginning)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return false
	}
	line, _, _ := bytes.Cut(beginning[:n], []byte("\n"))
	return !bytes.Contains(line, []byte{0})
}

// startError is why the command did not start, with the exit code that a shell
// would give it.
func (j *job) startError(err error) error {
	code := exitCannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code, err = exitNotFound, errors.New("not found"+j.shellHint())
		if _, missing := os.Stat(j.path); missing == nil { // there is the file, which the kernel could do nothing with
			err = errors.New("the interpreter that its first line names was not found")
		}
	} else if errors.Is(err, syscall.ENOEXEC) {
		err = fmt.Errorf("%w: it is no program for this machine, and no script that may be read", syscall.ENOEXEC)
	} else if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno
	}
	return &exitError{code, fmt.Errorf("%s: %w", shown(j.argv[0]), err)}
}

// shellHint says how a line of the shell is run, if the command seems to be one.
func (j *job) shellHint() string {
	line := j.argv[0]
	switch {
	case len(j.argv) > 1 || !strings.ContainsAny(line, " \t\n"):
		return ""
	case strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) }):
		line = "…"
	}
	return " (for a line of the shell: -- sh -c '" + strings.ReplaceAll(line, "'", `'\''`) + "')"
}

// shown is a word of the command line, quoted if it would not be seen as it is.
func shown(word string) string {
	if word == "" {
		return strconv.Quote(word)
	}
	return printable(word)
}
