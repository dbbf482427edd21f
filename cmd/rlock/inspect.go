package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/rlock"
)

// lockView is a lock as JSON shows it, in `ls` and in `inspect`.
type lockView struct {
	Name   string      `json:"name"`
	Quoted string      `json:"name_quoted,omitempty"` // see quoted
	Owners []ownerView `json:"owners"`                // empty: free
	TTL    *int64      `json:"ttl_ms"`                // null: free, or no end
	Queued *int64      `json:"queued,omitempty"`      // in `ls`; not there: not known

	Waiting []waitingView `json:"waiting,omitempty"` // those that have a record
}

type ownerView struct {
	Owner  string `json:"owner"`
	Quoted string `json:"owner_quoted,omitempty"` // see quoted
	Holds  int64  `json:"holds"`
	Reads  int64  `json:"reads,omitempty"` // of Holds, in a read/write lock

	Since time.Time `json:"since,omitzero"` // zero: not known, and in `ls`

	hostView        // from the record of its client
	Purpose  string `json:"purpose,omitempty"`
	HeldMS   *int64 `json:"held_ms,omitempty"`
	KeptMS   *int64 `json:"kept_ms,omitempty"` // no goroutine of the client holds it
}

// explain adds to locks what the records of clients contain.
func explain(locks []lockView, records clientRecords) {
	holds, waiting := records.holds(), records.waiting()
	for i := range locks {
		locks[i].explain(records, holds)
		locks[i].Waiting = waiting[locks[i].Name]
	}
}

// explain adds to the owners of a lock what the records of clients contain.
func (v *lockView) explain(records clientRecords, holds map[holdKey]toldHold) {
	for i := range v.Owners {
		o := &v.Owners[i]
		if o.hostView = records.host(clientOf(o.Owner)); o.String() == "" {
			o.hostView = hostView{}
		}
		if told, ok := holds[holdKey{strings.TrimSuffix(o.Owner, ":write"), v.Name}]; ok {
			o.Purpose = told.Purpose
			o.HeldMS, o.KeptMS = told.ages()
		}
	}
}

// tells puts what the record of an owner's client contains into words; "" if that is nothing.
func (o *ownerView) tells() string {
	text := o.hostView.String()
	if text != "" && o.Version != "" && o.Version != "(devel)" {
		text += " " + printable(o.Version)
	}
	if o.Purpose != "" {
		text += fmt.Sprintf(": %q", o.Purpose)
	}
	switch {
	case o.HeldMS != nil:
		text += ", held for " + short(time.Duration(*o.HeldMS)*time.Millisecond)
	case o.KeptMS != nil:
		text += ", kept for " + short(time.Duration(*o.KeptMS)*time.Millisecond) + ", held by nobody"
	}
	return text
}

// tells puts what the record of a waiting client contains into words.
func (w *waitingView) tells() string {
	text := cmp.Or(w.hostView.String(), printable(w.Client))
	if w.Purpose != "" {
		text += fmt.Sprintf(": %q", w.Purpose)
	}
	text += ", waiting for " + short(time.Duration(w.WaitedMS)*time.Millisecond)
	if w.Calls > 1 {
		text += fmt.Sprintf(", %d calls", w.Calls)
	}
	return text
}

// newLockView makes the view of a lock; ttl is negative if it has no end.
func newLockView(name string, holds map[string]int64, ttl time.Duration) lockView {
	v := lockView{Name: name, Quoted: quoted(name), Owners: []ownerView{}}
	for _, owner := range slices.Sorted(maps.Keys(holds)) {
		v.Owners = append(v.Owners, ownerView{Owner: owner, Quoted: quoted(owner), Holds: holds[owner]})
	}
	if len(holds) > 0 && ttl >= 0 {
		v.TTL = new(ttl.Milliseconds())
	}
	return v
}

// lease puts the TTL into words.
func (v lockView) lease() string {
	if v.TTL == nil {
		return remaining(-1)
	}
	return remaining(time.Duration(*v.TTL) * time.Millisecond)
}

// queued puts the places in the queue into words.
func (v lockView) queued() string {
	if v.Queued == nil {
		return "-"
	}
	return strconv.FormatInt(*v.Queued, 10)
}

// access says what the owner of a read/write lock does.
func (o ownerView) access() string {
	switch o.Reads {
	case o.Holds:
		return ", reads"
	case 0:
		return ", writes"
	}
	return fmt.Sprintf(", writes, and reads %d of them", o.Reads)
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", HideDefault: true, Usage: "print JSON"}
}

func inspectCommand() *cli.Command {
	return &cli.Command{
		Name:      "inspect",
		Usage:     "show who holds a lock",
		UsageText: "rlock inspect [--json | -q] NAME...",
		Description: `Shows the owners of the lock, how often each of them holds it, the remaining lease, the
newest fencing token, and the number of waiters. The waiters are counted as tickets in
the queue (one per waiting client, or per call for a fair lock), and as connections that
wait for the message of a release. If holders or waiters have records (see "top"), it
shows them too. For an election it also shows the leader, for a job its newest run, and
for a stored result its size. It recognizes a read/write lock by its data. With several
names, --json prints a value for each.

Exit status: 0 the locks were shown; with -q 0 all locks are held, 1 one of them is free;
others as in "rlock --help".`,
		ShellComplete: completeName,
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, HideDefault: true, Usage: "print nothing; only the exit status shows whether the locks are held"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			out, asJSON, before := cmd.Root().Writer, cmd.Bool("json"), ""
			return withLocks(ctx, cmd, func(s *server, _ *rlock.Lock, state rlock.State) error {
				switch {
				case !cmd.Bool("quiet"):
				case len(state.Holds) == 0:
					return &exitError{code: exitFailure}
				default:
					return nil
				}
				if !asJSON {
					fmt.Fprint(out, before)
					before = "\n"
				}
				records, _ := s.records(ctx) // who may look at locks only is still shown those
				return printState(out, state, records, s.companion(ctx, state), asJSON, time.Now())
			})
		},
	}
}

// withLocks calls f with each lock that the arguments of cmd name, and its state. An error does
// not keep it from the others, unless they would have the same.
func withLocks(ctx context.Context, cmd *cli.Command, f func(*server, *rlock.Lock, rlock.State) error) (failed error) {
	if !cmd.Args().Present() {
		return usagef(cmd, "expected a NAME")
	}
	s, err := connect(cmd)
	if err != nil {
		return err
	}
	defer s.close()
	client, err := rlock.New(s.rdb, &rlock.Options{Prefix: s.prefix})
	if err != nil {
		return err
	}
	defer closeWithin(client, closeTimeout)
	for _, name := range cmd.Args().Slice() {
		lock, state, err := find(ctx, client, name)
		if err == nil {
			err = f(s, lock, state)
		}
		if errors.Is(err, rlock.ErrUnavailable) {
			return err
		}
		if err == nil {
			continue
		}
		if _, text := exit(failed); text != "" { // there is one to return
			fmt.Fprintln(cmd.Root().ErrWriter, "rlock: "+text)
		}
		failed = err
	}
	return failed
}

// find returns the lock of a name, of which kind its data is. A lock that is free may
// be taken for a plain one.
func find(ctx context.Context, client *rlock.Client, name string) (*rlock.Lock, rlock.State, error) {
	plain := client.NewLock(name, rlock.WithFencing())
	state, err := plain.Inspect(ctx)
	if !errors.Is(err, rlock.ErrKeyConflict) {
		return plain, state, err
	}
	shared := client.NewRWLock(name, rlock.WithFencing()).Writer()
	both, again := shared.Inspect(ctx)
	switch {
	case again == nil && len(both.Holds) > 0:
		return shared, both, nil
	case again != nil && !errors.Is(again, rlock.ErrKeyConflict):
		return nil, both, again // such as a right that is missing, and not that it is no plain lock
	}
	return nil, state, err
}

func printState(w io.Writer, state rlock.State, records clientRecords, beside companionView, asJSON bool, now time.Time) error {
	one := []lockView{newLockView(state.Name, state.Holds, state.TTL)}
	explain(one, records)
	v := one[0]
	for i := range v.Owners {
		o := &v.Owners[i]
		o.Reads = state.Shared[o.Owner]
		if at, ok := granted(o.Owner, state.Token, now); ok && o.Reads == 0 { // a reader has the token of a writer
			o.Since = at
		}
	}
	if asJSON {
		return printJSON(w, struct {
			lockView
			Token   int64 `json:"token"`
			Waiters int64 `json:"waiters"`
			companionView
		}{v, state.Token, state.Waiters, beside})
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(v.Owners) == 0 {
		fmt.Fprintf(t, "%s is free\n", printable(v.Name))
		beside.print(t, now)
		return t.Flush()
	}
	fmt.Fprintf(t, "lock\t%s\n", printable(v.Name))
	for _, o := range v.Owners {
		fmt.Fprintf(t, "owner\t%s, hold count %d", printable(o.Owner), o.Holds)
		if state.Shared != nil {
			fmt.Fprint(t, o.access())
		}
		if !o.Since.IsZero() {
			fmt.Fprintf(t, ", since %s (%s)", o.Since.Format(time.DateTime), brief(now.Sub(o.Since)))
		}
		fmt.Fprintln(t)
		if told := o.tells(); told != "" {
			fmt.Fprintf(t, "holder\t%s\n", told)
		}
	}
	fmt.Fprintf(t, "lease\t%s\n", v.lease())
	if state.Token != 0 {
		fmt.Fprintf(t, "token\t%d\n", state.Token)
	}
	if state.Waiters >= 0 {
		fmt.Fprintf(t, "waiting\t%d\n", state.Waiters)
	}
	for i := range v.Waiting {
		fmt.Fprintf(t, "waiter\t%s\n", v.Waiting[i].tells())
	}
	beside.print(t, now)
	return t.Flush()
}
