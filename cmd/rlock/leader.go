package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/rlock"
)

// leaderTimeout is how long a server may take to say who leads. The library would try for as long as a lease.
const leaderTimeout = 5 * time.Second

func leaderCommand() *cli.Command {
	return &cli.Command{
		Name:      "leader",
		Usage:     "show who leads an election",
		UsageText: "rlock leader [--json] [--watch] NAME",
		Description: `Shows the value that the leader has set (--value of "rlock lead"), the number of its term
and the owner of its lock. With --watch it prints a line for the present leader, and a
line each time the leader changes or there is none. If a leader has died, it is shown
until its lease ends.

Exit status: 0 there is a leader; 1 there is none; others as in "rlock --help".`,
		ShellComplete: completeName,
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, HideDefault: true, Usage: "print a line for each change, until a signal arrives"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() != 1 {
				return usagef(cmd, "expected one NAME")
			}
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			defer s.close()
			client, err := rlock.New(s.rdb, &rlock.Options{Prefix: s.prefix, Identity: rlock.Anonymous()})
			if err != nil {
				return err
			}
			defer closeWithin(client, closeTimeout)
			name, out, asJSON := cmd.Args().First(), cmd.Root().Writer, cmd.Bool("json")
			e := election.New(client, name, "")
			if cmd.Bool("watch") {
				return watchLeader(ctx, cmd, e, func(l election.Leader) error { return printChange(out, time.Now(), name, l, asJSON) })
			}
			ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
			defer cancel()
			l, err := e.Leader(ctx)
			switch {
			case errors.Is(err, election.ErrNoLeader):
				if err = printLeader(out, name, election.Leader{}, asJSON); err == nil {
					err = &exitError{code: exitFailure}
				}
				return err
			case err != nil:
				return err
			}
			return printLeader(out, name, l, asJSON)
		},
	}
}

// watchLeader shows each change until a signal. What goes wrong is said once, until it goes right again.
func watchLeader(ctx context.Context, cmd *cli.Command, e *election.Election, show func(election.Leader) error) error {
	ctx, stop := untilInterrupt(ctx)
	defer stop()
	defer exitAfter(ctx)()
	trouble := ""
	for l, err := range e.Observe(ctx) {
		switch {
		case err == nil:
			trouble = ""
			if err := show(l); err != nil {
				return err
			}
		case !errors.Is(err, rlock.ErrUnavailable):
			return err
		case troubleOf(err) != trouble:
			trouble = troubleOf(err)
			fmt.Fprintf(cmd.Root().ErrWriter, "rlock: %s\n", trouble)
		}
	}
	return ended(ctx, nil)
}

// leaderView is a leader as JSON shows it; without a leader, Term is 0.
type leaderView struct {
	At          *time.Time `json:"at,omitempty"` // with --watch
	Name        string     `json:"name"`
	Quoted      string     `json:"name_quoted,omitempty"` // see quoted
	Value       string     `json:"value"`
	ValueQuoted string     `json:"value_quoted,omitempty"`
	Term        int64      `json:"term"`
	Owner       string     `json:"owner"`
}

func newLeaderView(name string, l election.Leader) leaderView {
	return leaderView{Name: name, Quoted: quoted(name), Value: l.Value, ValueQuoted: quoted(l.Value), Term: l.Term, Owner: l.Owner}
}

func printLeader(w io.Writer, name string, l election.Leader, asJSON bool) error {
	if asJSON {
		return printJSON(w, newLeaderView(name, l))
	}
	if l.Term == 0 {
		_, err := fmt.Fprintf(w, "nobody leads %s\n", printable(name))
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "leader\t%s\nterm\t%d\nowner\t%s\n", printable(l.Value), l.Term, printable(l.Owner))
	return t.Flush()
}

func printChange(w io.Writer, at time.Time, name string, l election.Leader, asJSON bool) (err error) {
	switch {
	case asJSON:
		v := newLeaderView(name, l)
		v.At = &at
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false) // it is read by people as well
		err = enc.Encode(v)
	case l.Term == 0:
		_, err = fmt.Fprintf(w, "%s  nobody\n", at.Format("15:04:05.000"))
	default:
		_, err = fmt.Fprintf(w, "%s  term %d  %s\n", at.Format("15:04:05.000"), l.Term, printable(l.Value))
	}
	return err
}
