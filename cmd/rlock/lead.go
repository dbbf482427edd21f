//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/rlock"
)

func leadCommand(argv []string) *cli.Command {
	return &cli.Command{
		Name:          "lead",
		Usage:         "run a command while this host is the leader",
		UsageText:     "rlock lead [options] NAME -- COMMAND [ARG...]",
		Description:   leadDescription,
		ShellComplete: completeName,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "value", DefaultText: "the name of the host", Usage: "`TEXT` that \"rlock leader\" shows, such as an address"},
			&cli.StringFlag{Name: "takeover-delay", DefaultText: "none", Usage: "wait for `D` before COMMAND runs, if the former leader has not resigned"},
			&cli.StringFlag{Name: "ttl", DefaultText: rlock.DefaultLeaseTime.String(), Usage: "set the length of the lease to `D`; rlock renews it each time a third of it has passed"},
			&cli.StringFlag{Name: "kill-after", Aliases: []string{"k"}, DefaultText: "2/25 of the lease", Usage: "send KILL to processes `D` after TERM; at most half the lease"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, HideDefault: true, Usage: "print no messages about waiting"},
		},
		CustomHelpTemplate: commandHelp + leadHelp,
		Action: func(_ context.Context, cmd *cli.Command) error {
			j, err := newJob(cmd, argv)
			if err != nil {
				return err
			}
			delay, err := duration(cmd, "takeover-delay", 0)
			if err != nil {
				return usagef(cmd, "%w", err)
			}
			value := cmd.String("value")
			if !cmd.IsSet("value") {
				value, _ = os.Hostname()
			}
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			defer s.close()
			return j.lead(s, value, delay)
		},
	}
}

// errStopped ends a term whose command was stopped, as the lock was lost or was about to be.
var errStopped = errors.New("the command was stopped")

// lead is all of `rlock lead`.
func (j *job) lead(s *server, value string, delay time.Duration) error {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // see job.run
	signals := make(chan os.Signal, 16)
	t := new(trouble)
	s.rdb.AddHook(t)
	var waits atomic.Pointer[progress] // the present one
	client, err := rlock.New(s.rdb, &rlock.Options{
		Prefix:   s.prefix,
		Identity: rlock.Identity{Prompt: true},
		Trace:    rlock.Trace{Waiting: func(ctx context.Context, r rlock.Refusal) { waits.Load().waiting(ctx, r) }},
	})
	if err != nil {
		return err
	}
	defer closeWithin(client, closeTimeout)
	name := j.names[0]
	lock := client.NewLock(name, rlock.WithFencing())
	switch e, err := reenter(lock, client.NewLock(name), s, ""); {
	case err != nil:
		return err
	case e != nil:
		return &exitError{exitUsage, fmt.Errorf("lock %q: the rlock run or lead around this one holds it, and the two would wait for each other", name)}
	}
	if err := exportable(locks{lock}, s); err != nil {
		return err
	}
	around := [2]string{os.Getenv(heldVar), os.Getenv(proofVar)}
	e := election.New(client, name, value, election.WithLease(j.lease), election.WithTakeoverDelay(delay))
	for {
		p := newProgress(os.Stderr, j.quiet)
		p.inspect, p.holder = locks{lock}.inspect, s.holder
		waits.Store(p)
		notify(signals, ending...)
		ctx, interrupt := context.WithCancelCause(context.Background())
		stop := interruptedBy(signals, interrupt)
		unexpected := p.expect(func() string { return s.missing(t.seen()) })
		waited := func() { // until the command starts, or there is none
			unexpected()
			stop()
			p.done()
		}
		leads, code := false, 0
		err := e.Run(ctx, func(held context.Context, term *election.Term) error {
			leads = true
			waited()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			enclosing{
				name: name, server: s.name, key: s.prefix + name,
				owner: lock.Owner(held), token: term.Number(), proof: term.Proof(),
			}.export()
			var told syscall.Signal
			var err error
			code, told, err = j.work(held, term.Until, signals)
			switch {
			case stopped(held, err) && told != 0: // this process was told to end, so no other term follows
				return &exitError{code: exitSignal + int(told)}
			case stopped(held, err):
				return errStopped
			}
			return err
		})
		if !leads {
			waited()
		}
		switch {
		case errors.Is(err, errStopped):
			// The next command begins as this one did: with the locks around it, and with a signal that
			// start ignores and the command would inherit. Reset would leave it ignored.
			setenv(heldVar, around[0])
			setenv(proofVar, around[1])
			signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
			continue
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		}
		signal.Stop(signals) // nobody may read what comes now
		if _, ok := errors.AsType[*exitError](err); ok || !leads {
			return err
		}
		return runError(code, nil, err)
	}
}

// stopped reports whether work has stopped the command.
func stopped(held context.Context, err error) bool {
	code, ok := errors.AsType[*exitError](err)
	return ok && code.code == exitLost || errors.Is(err, rlock.ErrLeaseLost) || err != nil && errors.Is(context.Cause(held), rlock.ErrLeaseLost)
}
