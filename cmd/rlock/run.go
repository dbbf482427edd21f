//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/jobs"
	"github.com/go-rlock/rlock/rlock"
)

func runCommand(argv []string) *cli.Command {
	return &cli.Command{
		Name:          "run",
		Usage:         "run a command while holding a lock",
		UsageText:     "rlock run [options] NAME... -- COMMAND [ARG...]",
		Description:   runDescription,
		ShellComplete: completeName,
		Flags: append(kindFlags(),
			&cli.BoolFlag{Name: "no-wait", Aliases: []string{"n"}, HideDefault: true, Usage: "do not wait if another client holds the lock"},
			&cli.StringFlag{Name: "wait", Aliases: []string{"w"}, DefaultText: "no limit", Usage: "wait for up to `D`, such as 1m30s, or 90 for seconds"},
			&cli.StringFlag{Name: "conflict-exit-code", Aliases: []string{"E"}, DefaultText: "75", Usage: "end with status `N` if another client holds the lock"},
			&cli.StringFlag{Name: "once-per", Usage: "run COMMAND once in each period of length `D`, on one host; the periods begin at multiples of D since 1970 in UTC"},
			&cli.StringFlag{Name: "ttl", DefaultText: rlock.DefaultLeaseTime.String(), Usage: "set the length of the lease to `D`; rlock renews it each time a third of it has passed"},
			&cli.StringFlag{Name: "lease", Usage: "set the length of the lease to `D`, and do not renew it"},
			&cli.StringFlag{Name: "kill-after", Aliases: []string{"k"}, DefaultText: "2/25 of the lease", Usage: "send KILL to processes `D` after TERM; at most half the lease"},
			&cli.StringFlag{Name: "purpose", DefaultText: "the name of the command", Usage: "`TEXT` that \"rlock top\" and \"inspect\" show"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, HideDefault: true, Usage: "print no messages about waiting or about another holder"},
		),
		CustomHelpTemplate: commandHelp + runHelp,
		Action: func(_ context.Context, cmd *cli.Command) error {
			j, err := newJob(cmd, argv)
			if err != nil {
				return err
			}
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			defer s.close()
			return j.run(s)
		},
	}
}

// run is all of `rlock run`.
func (j *job) run(s *server) error {
	// A reader of our messages that is gone ends neither the wait nor the supervision. To be
	// told of the signal is not to ignore it, which the command would inherit.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signals := make(chan os.Signal, 16)
	p := newProgress(os.Stderr, j.quiet)
	t := new(trouble)
	s.rdb.AddHook(t)
	client, err := rlock.New(s.rdb, &rlock.Options{
		Prefix:   s.prefix,
		Identity: rlock.Identity{Prompt: true},
		Trace:    rlock.Trace{Waiting: p.waiting},
	})
	if err != nil {
		return err
	}
	defer closeWithin(client, closeTimeout)
	if claimed, err := j.claim(client); !claimed {
		return err
	}
	var wanted locks // and not held by a run around this one
	var outer, first *enclosing
	for i, name := range j.names {
		lock := j.newLock(client, name)
		e, err := reenter(lock, client.NewLock(name), s, j.kind)
		switch {
		case err != nil:
			return err
		case e == nil:
			wanted = append(wanted, lock)
		case outer == nil:
			outer = e
		}
		if i == 0 {
			first = e
		}
	}
	if len(wanted) == 0 {
		return j.replace(outer)
	}
	if err := exportable(wanted, s); err != nil {
		return err
	}
	p.inspect, p.holder = wanted.inspect, s.holder

	notify(signals, ending...)
	stop := p.expect(func() string { return s.missing(t.seen()) })
	held, hold, err := j.acquire(rlock.NewMultiLock(wanted...), signals)
	stop()
	p.done()
	if err != nil {
		signal.Stop(signals) // nobody may read why
		return j.refused(s, err)
	}
	for _, lock := range slices.Backward(wanted) { // the command sees the first as its own
		enclosing{
			name: lock.Name(), server: s.name, key: s.prefix + lock.Name(),
			owner: lock.Owner(held), token: lock.Token(held), shared: j.kind == "shared", proof: lock.Proof(held),
		}.export()
	}
	if first != nil { // the run around this one has exported it
		first.introduce()
	}
	code, _, lost := j.work(held, hold.Until, signals)
	unreleased := hold.Unlock(context.Background())
	if lost != nil || unreleased != nil {
		// Nobody may read it. Who has nothing to say ends with code, however late a signal comes.
		signal.Stop(signals)
	}
	return runError(code, lost, unreleased)
}

// claim reports whether it is this run's turn, as --once-per says.
func (j *job) claim(client *rlock.Client) (bool, error) {
	if j.oncePer == 0 {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	_, err := jobs.New(client, j.names[0], jobs.Every(j.oncePer)).Claim(ctx)
	if errors.Is(err, jobs.ErrClaimed) {
		if !j.quiet {
			fmt.Fprintf(os.Stderr, "rlock: %s was begun elsewhere for this %v: the command is not run\n", printable(j.names[0]), j.oncePer)
		}
		return false, nil
	}
	return err == nil, err
}

// claimTimeout is how long a claim is tried.
const claimTimeout = 5 * time.Second

// runError is the error of a run whose command has ended with code, or lost its lock.
func runError(code int, lost, unreleased error) error {
	switch {
	case lost != nil:
		return lost
	case errors.Is(unreleased, rlock.ErrLeaseLost):
		return unreleased
	case unreleased != nil:
		fmt.Fprintf(os.Stderr, "rlock: the lock was not released and ends with its lease: %s%s\n", trimmed(unreleased), rightsHint(unreleased))
	}
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// acquire takes the locks, waiting for it as the flags say. A signal ends the
// wait, and is the error.
func (j *job) acquire(lock *rlock.MultiLock, signals <-chan os.Signal) (context.Context, *rlock.MultiHold, error) {
	ctx, interrupt := context.WithCancelCause(context.Background())
	stop := interruptedBy(signals, interrupt)
	var held context.Context
	var hold *rlock.MultiHold
	var err error
	switch j.wait {
	case noWait:
		held, hold, err = lock.TryLock(ctx)
	case noLimit:
		held, hold, err = lock.Lock(ctx)
	default:
		held, hold, err = lock.TryLockFor(ctx, j.wait)
	}
	stop()
	if ctx.Err() != nil {
		if err == nil {
			_ = hold.Unlock(ctx) // the signal is what is reported
		}
		return nil, nil, context.Cause(ctx)
	}
	return held, hold, err
}

// interruptedBy has a signal end a wait, with the error as its cause, until stop is called. After a command, this
// process still receives the signals of job control, which end nothing. SIGTSTP stops it, as it did before the command.
func interruptedBy(signals <-chan os.Signal, interrupt context.CancelCauseFunc) (stop func()) {
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case sig := <-signals:
				if sig == syscall.SIGTSTP {
					_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
				}
				if slices.Contains(jobControl, sig) {
					continue
				}
				interrupt(&exitError{code: exitSignal + int(sig.(syscall.Signal))})
			case <-over:
			}
			return
		}
	}()
	return func() {
		close(over)
		<-stopped
	}
}

// refused is the error of a lock that was not acquired. That a wait was over
// goes without saying.
func (j *job) refused(s *server, err error) error {
	busy, ok := errors.AsType[*rlock.NotAcquiredError](err)
	switch {
	case !ok:
		return err
	case j.quiet:
		return &exitError{code: j.busy}
	}
	text := trimmed(&rlock.NotAcquiredError{Name: busy.Name, TTL: busy.TTL})
	if busy.Holder != "" {
		text = trimmed(&rlock.NotAcquiredError{Name: busy.Name})
		h := s.holder(context.Background(), busy.Name, busy.Holder)
		h.ttl = busy.TTL
		text += ": " + h.describe(time.Now())
	}
	return &exitError{j.busy, errors.New(text)}
}

// work runs the command under locks, which are trusted until then and are in the environment. The error says that
// a lock was lost meanwhile, or that the command could not be started; told is the signal by which the command was
// told to end, 0 without one.
func (j *job) work(held context.Context, until func() time.Time, signals chan os.Signal) (code int, told syscall.Signal, err error) {
	l := newLeash(held, until, j.killAfter, j.lease)
	notify(signals, jobControl...)
	c, err := start(j.path, j.argv, l)
	if err != nil {
		return 0, 0, j.startError(err)
	}
	status := c.supervise(signals) // from now on signals are of no use: what is left to do, the Unlock, has an end
	switch {
	case c.lost != nil:
		return 0, c.told, &exitError{code: exitLost} // supervise has said why
	case held.Err() != nil:
		return 0, c.told, context.Cause(held)
	}
	if status.Signaled() {
		return exitSignal + int(status.Signal()), c.told, nil
	}
	return status.ExitStatus(), c.told, nil
}
