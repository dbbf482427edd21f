package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/rlock"
)

func topCommand() *cli.Command {
	return &cli.Command{
		Name:      "top",
		Usage:     "show who holds locks for long, and who waits",
		UsageText: "rlock top [--once] [--json] [--by name|group] [--sort COLUMN] [--interval D] [GLOB]",
		Description: `Shows the locks that clients have written into their records in Redis: locks that were
held for 10s or until their first renewal was due, all locks of "rlock run", and locks
that a call has waited for longer than a second. With GLOB it shows only names that
match. Each client writes its record at most every 10s, so "top" can miss new holds and
waits, and can show calls that have ended. It reads the holder and the remaining lease
from Redis each time. It shows a lock of a client without a record, such as Redisson, if
others wait for it. It does not scan all keys.

HELD is the time since the holder has acquired the lock, or "kept" if its client keeps
the lock for its next use. TTL is the remaining lease. WAIT is the number of calls that
wait. ACQ/S is the number of locks of any name that the client of the holder acquires
per second. The lines below the table show deadlocks, and the locks that were lost in the
last 30s. On a terminal, the key s sorts by the next column, / filters, q quits, and h
shows all keys. Elsewhere, "top" prints plain lines repeatedly.

"top --by name" shows the ten names of all clients that cost most waiting, even if each
single wait is short. WAITING is the number of calls that wait on average: if it is 20,
calls wait for 20 seconds in each second. WAITS/S is the number of waits that end per
second. MOST is the number of calls that wait at the same time, at most: the sum of the
largest numbers of the clients. CLIENTS is the number of clients that wait. Each client
reports up to ten hot names, with figures from the last 10s to 20s. A name is hot if its
calls have waited for at least 1% of the time. "top --by group" sums up the hot names by
group. The group of a name is that of Options.Group in the client. Without it, the group
is the name with its numbers and ids replaced by "*".`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "once", HideDefault: true, Usage: "print once and end"},
			&cli.BoolFlag{Name: "json", HideDefault: true, Usage: "print JSON, one line for each reading"},
			&cli.StringFlag{Name: "by", Value: byLock, Usage: "show `LINES` for locks, or for the hottest names or groups: " + strings.Join(topLines(), ", ")},
			&cli.StringFlag{Name: "sort", Value: "wait", Usage: "sort by `COLUMN`: " + strings.Join(topOrders(), ", ")},
			intervalFlag(topInterval),
		},
		Action: runTop,
	}
}

// top is one run of `rlock top`.
type top struct {
	server   *server
	keep     func(name string) bool
	also     []string // looked at, although no record may name them
	order    string
	by       string // what a line is: see topLines
	interval time.Duration
}

// How often they look unless told otherwise.
const topInterval, watchInterval = 2 * time.Second, time.Second

func intervalFlag(unset time.Duration) cli.Flag {
	return &cli.StringFlag{Name: "interval", DefaultText: unset.String(), Usage: "read the locks every `D`"}
}

// interval is the value of that flag.
func interval(cmd *cli.Command, unset time.Duration) (time.Duration, error) {
	d, err := duration(cmd, "interval", unset)
	switch {
	case err != nil:
		return 0, usagef(cmd, "%w", err)
	case d < 100*time.Millisecond:
		return 0, usagef(cmd, "--interval: %v is too short: at least 100ms", d)
	}
	return d, nil
}

func runTop(ctx context.Context, cmd *cli.Command) error {
	t := &top{keep: wantedBy(cmd.Args().First()), order: cmd.String("sort"), by: cmd.String("by")}
	switch {
	case cmd.Args().Len() > 1:
		return usagef(cmd, "expected at most one GLOB: quote it")
	case !slices.Contains(topLines(), t.by):
		return usagef(cmd, "--by: %q is none of %s", t.by, strings.Join(topLines(), ", "))
	case t.by != byLock && cmd.IsSet("sort"):
		return usagef(cmd, "--sort: leave it out, --by %s sorts by WAITING", t.by)
	case !slices.Contains(topOrders(), t.order):
		return usagef(cmd, "--sort: %q is none of %s", t.order, strings.Join(topOrders(), ", "))
	}
	var err error
	if t.interval, err = interval(cmd, topInterval); err != nil {
		return err
	}
	if t.server, err = connect(cmd); err != nil {
		return err
	}
	defer t.server.close()
	ctx, stop := untilInterrupt(ctx)
	defer stop()
	first, err := t.look(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	out, show, next := cmd.Root().Writer, printTop, "\n"
	if t.by != byLock {
		show = func(w io.Writer, v *topView) error { return printHot(w, t.by, v) }
	}
	if cmd.Bool("json") {
		show, next = printTopJSON, ""
	}
	if file := out.(*output).file(); file != nil && !cmd.Bool("once") && !cmd.Bool("json") && width(file) > 0 {
		return t.live(ctx, os.Stdin, file, first)
	}
	defer exitAfter(ctx)()
	if err := show(out, first); err != nil || cmd.Bool("once") {
		return err
	}
	return t.repeat(ctx, cmd.Root().ErrWriter, func(v *topView) error {
		_, err := io.WriteString(out, next)
		return errors.Join(err, show(out, v))
	})
}

// exitAfter ends the process a moment after a signal has ended ctx, unless it has ended by
// then: whoever reads what is printed may stand still.
func exitAfter(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		time.Sleep(patientWrite)
		os.Exit(0)
	})
}

// ended is the error of a look, unless the user has ended it.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// wantedBy tells which names are shown.
func wantedBy(glob string) func(string) bool {
	if glob == "" {
		return func(string) bool { return true }
	}
	return func(name string) bool { return matches(glob, name) }
}

func (t *top) look(ctx context.Context) (*topView, error) {
	v, err := t.server.top(ctx, t.keep, t.also...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rlock.ErrUnavailable, err)
	}
	sortTop(v, t.order)
	return v, nil
}

// repeat shows look after look.
func (t *top) repeat(ctx context.Context, errs io.Writer, show func(*topView) error) error {
	for tick := time.NewTicker(t.interval); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
		v, err := t.look(ctx)
		if err != nil {
			if ctx.Err() == nil {
				fmt.Fprintf(errs, "rlock: %s\n", trimmed(err))
			}
			continue
		}
		if err := show(v); err != nil {
			tick.Stop()
			return err
		}
	}
}

func printTopJSON(w io.Writer, v *topView) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // it is read by people as well
	return e.Encode(v)
}
