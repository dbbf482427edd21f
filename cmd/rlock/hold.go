//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/rlock"
)

func holdCommand() *cli.Command {
	return &cli.Command{
		Name:          "hold",
		Usage:         "hold a lock for a program in any language",
		UsageText:     "rlock hold [options] NAME...",
		Description:   holdDescription,
		ShellComplete: completeName,
		Flags: append(kindFlags(),
			&cli.BoolFlag{Name: "no-wait", Aliases: []string{"n"}, HideDefault: true, Usage: "do not wait if another client holds the lock"},
			&cli.StringFlag{Name: "wait", Aliases: []string{"w"}, DefaultText: "no limit", Usage: "wait for up to `D`, such as 1m30s, or 90 for seconds"},
			&cli.StringFlag{Name: "conflict-exit-code", Aliases: []string{"E"}, DefaultText: "75", Usage: "end with status `N` if another client holds the lock"},
			&cli.StringFlag{Name: "ttl", DefaultText: rlock.DefaultLeaseTime.String(), Usage: "set the length of the lease to `D`; rlock renews it each time a third of it has passed"},
			&cli.StringFlag{Name: "purpose", DefaultText: "hold", Usage: "`TEXT` that \"rlock top\" and \"inspect\" show"},
			&cli.BoolFlag{Name: "until-signal", HideDefault: true, Usage: "do not read standard input; hold the lock until a signal arrives"},
		),
		CustomHelpTemplate: commandHelp + holdHelp,
		Action: func(_ context.Context, cmd *cli.Command) error {
			j := &job{names: cmd.Args().Slice(), purpose: cmd.String("purpose")}
			if len(j.names) == 0 {
				return usagef(cmd, "want NAME")
			}
			if err := j.parse(cmd); err != nil {
				return usagef(cmd, "%w", err)
			}
			if j.purpose == "" {
				j.purpose = "hold"
			}
			var stdin io.Reader
			if !cmd.Bool("until-signal") {
				if !isPipe(os.Stdin) {
					return usagef(cmd, "standard input is no pipe: its other end tells when to release the lock. Or use --until-signal")
				}
				stdin = os.Stdin
			}
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			defer s.close()
			return j.hold(s, stdin, cmd.Root().Writer)
		},
	}
}

// isPipe reports whether a file ends when the processes at its other end have gone. A terminal and /dev/null
// do not, and a regular file has ended from the start.
func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

// holding is the line that says that the locks are held.
type holding struct {
	Names []string   `json:"names"`
	Owner string     `json:"owner"` // this and the next are those of the first name
	Token int64      `json:"token"`
	Proof string     `json:"proof,omitzero"`
	Until time.Time  `json:"until"`
	Locks []heldLock `json:"locks,omitzero"` // of each name, if there are several
}

type heldLock struct {
	Name  string `json:"name"`
	Owner string `json:"owner"`
	Token int64  `json:"token"`
	Proof string `json:"proof,omitzero"`
}

// hold is all of `rlock hold`. It ends when stdin ends. Until it holds the lock, or if stdin is nil, it ends by a
// signal as well.
//
// A signal does not end a hold with stdin, because the program at the other end may have got the same one and may
// still work: systemd sends TERM to all processes of a service, and a terminal sends INT to all of a job. The
// program closes stdin when it ends. A second signal ends the hold, after the line that says so.
func (j *job) hold(s *server, stdin io.Reader, out io.Writer) error {
	// A reader that is gone must not end this process before the lock is released.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signals := make(chan os.Signal, 16)
	notify(signals, ending...)
	ended := make(chan struct{}) // closed when stdin has ended
	if stdin != nil {
		go func() { // it ends with stdin, or with the process
			_, _ = io.Copy(io.Discard, stdin)
			close(ended)
			signals <- syscall.SIGHUP // who has started this process has hung up: this ends the wait
		}()
	}
	client, err := rlock.New(s.rdb, &rlock.Options{Prefix: s.prefix, Identity: rlock.Identity{Prompt: true}})
	if err != nil {
		return err
	}
	defer closeWithin(client, closeTimeout)
	var wanted locks
	for _, name := range j.names {
		lock := j.newLock(client, name)
		switch outer, err := reenter(lock, client.NewLock(name), s, j.kind); {
		case err != nil:
			return err
		case outer != nil:
			return &exitError{exitUsage, fmt.Errorf("lock %q: the rlock run around this process holds it already", name)}
		}
		wanted = append(wanted, lock)
	}
	held, hold, err := j.acquire(rlock.NewMultiLock(wanted...), signals)
	if err != nil {
		return j.refused(s, err)
	}
	line := holding{Until: hold.Until()}
	for _, lock := range wanted {
		line.Names = append(line.Names, lock.Name())
		line.Locks = append(line.Locks, heldLock{lock.Name(), lock.Owner(held), lock.Token(held), lock.Proof(held)})
	}
	first := line.Locks[0]
	line.Owner, line.Token, line.Proof = first.Owner, first.Token, first.Proof
	if len(wanted) == 1 {
		line.Locks = nil
	}
	unread := json.NewEncoder(out).Encode(line)
	var lost error
	signaled := false
	for over := unread != nil; !over; {
		select {
		case <-held.Done():
			over = true
		case <-ended:
			over = true
		case sig := <-signals:
			select {
			case <-ended: // sig may be the one that says so
				over = true
				continue
			default:
			}
			switch {
			case stdin == nil:
				over = true
			case sig == syscall.SIGUSR1, sig == syscall.SIGUSR2:
			case !signaled:
				signaled = true
				say(fmt.Sprintf("rlock: received a signal (%v): the lock stays held until standard input ends. A second signal releases it at once", sig))
			default:
				over = true
				lost = &exitError{exitLost, fmt.Errorf("a second signal (%v) released the lock before standard input ended", sig)}
			}
		}
	}
	// The loss is printed before the Unlock, which may take a while. If the lease is not renewed, it is printed
	// before the lease ends, so before another client can hold the lock.
	if held.Err() != nil {
		lost = context.Cause(held)
	}
	if lost != nil {
		sayLost(out, lost)
	}
	unreleased := hold.Unlock(context.Background())
	switch {
	case lost != nil:
		return lost
	case errors.Is(unreleased, rlock.ErrLeaseLost):
		sayLost(out, unreleased)
		return unreleased
	case unread != nil:
		return unread
	}
	return runError(0, nil, unreleased)
}

// sayLost ignores the error, because out may have no reader any more.
func sayLost(out io.Writer, why error) {
	_ = json.NewEncoder(out).Encode(map[string]string{"lost": trimmed(why)})
}
