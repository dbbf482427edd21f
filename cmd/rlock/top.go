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
		UsageText: "rlock top [--once] [--json] [--sort COLUMN] [--interval D] [GLOB]",
		Description: `Shows the locks in the records of clients: those that were held when their first
renewal was due, or for 10s, those of "rlock run", and those that a call waits for
longer than a second. With GLOB it shows only the names that match. Each client writes
its record up to every 10s, so newer holds and waits are missing, and calls that have
ended since are still shown. The holder and its remaining lease are read each time. A
lock of a client without a record, such as Redisson, is shown if others wait for it. The
keyspace is not scanned.

HELD is the time since the holder acquired it, or "kept" if its client keeps it for its
next use. TTL is the remaining lease, WAIT the number of calls that wait, and ACQ/S the
number of locks of any name that the holder's client acquires per second. Below are the
locks that were lost in the last half minute. On a terminal: s sorts by the next column,
/ filters, q quits, h shows all keys. Elsewhere it prints plain lines repeatedly.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "once", HideDefault: true, Usage: "print once and end"},
			&cli.BoolFlag{Name: "json", HideDefault: true, Usage: "print JSON, one line each time"},
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
	interval time.Duration
}

// How often they look unless told otherwise.
const topInterval, watchInterval = 2 * time.Second, time.Second

func intervalFlag(unset time.Duration) cli.Flag {
	return &cli.StringFlag{Name: "interval", DefaultText: unset.String(), Usage: "look every `D`"}
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
	t := &top{keep: wantedBy(cmd.Args().First()), order: cmd.String("sort")}
	switch {
	case cmd.Args().Len() > 1:
		return usagef(cmd, "expected at most one GLOB: quote it")
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
