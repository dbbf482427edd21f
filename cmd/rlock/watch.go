package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
)

func watchCommand() *cli.Command {
	return &cli.Command{
		Name:      "watch",
		Usage:     "print what happens to locks",
		UsageText: "rlock watch [--json] [--only GLOB]... [--not GLOB]... [--interval D] [GLOB]",
		Description: `Prints a line for each event of the locks whose names match GLOB:

   released  the lock was released and no client waited for it. For a read/write lock
             also: a writer has become a reader, or has given up waiting
   held      a record shows that the lock is held for long
   passed    another owner holds the lock now
   free      the lock is no longer held, but there was no message about a release
   waits     calls of a client have waited for longer than a second
   lost      a holder has lost the lock; the line contains the reason

"released" is printed at once, because Redis sends a message. If a release passes the
lock to a waiter, only this waiter gets a message, and "watch" prints "passed" when it
next reads the lock. The other events come from the records of clients, which are
written at most every 10s, and from their locks, which "watch" reads every D. So a short
hold appears only as "released", and changes between two readings do not appear. In
a cluster with sharded channels, "watch" receives no messages.

If a lock is released repeatedly, "watch" prints the first release at once, and then one
line per second with the number of further releases. With --json it prints each release.

You can repeat --only and --not. "watch" then prints locks whose names match GLOB, at
least one GLOB of --only, and no GLOB of --not.`,
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.StringSliceFlag{Name: "only", Usage: "print only locks whose names match `GLOB`"},
			&cli.StringSliceFlag{Name: "not", Usage: "do not print locks whose names match `GLOB`"},
			intervalFlag(watchInterval),
		},
		DisableSliceFlagSeparator: true, // a name can contain a comma
		Action:                    runWatch,
	}
}

// event is a line of `rlock watch`.
type event struct {
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	Lock   string    `json:"lock"`
	Quoted string    `json:"lock_quoted,omitempty"` // see quoted
	Kind   string    `json:"kind,omitempty"`
	Owner  string    `json:"owner,omitempty"`
	hostView
	Purpose string `json:"purpose,omitempty"`
	Cause   string `json:"cause,omitempty"`
	Calls   int    `json:"calls,omitempty"`
	ForMS   *int64 `json:"for_ms,omitempty"` // held, or waited

	times  int           // how many events the line is about, if there is more than one
	within time.Duration // in which they have happened
}

// watch is one run of `rlock watch`.
type watch struct {
	top
	show func(event) error
	errs io.Writer
	seen seen
	sums map[string]*sum // of releases, by lock; nil if each is shown
}

// sum counts the releases of a lock since the newest line about them.
type sum struct {
	since  time.Time // of that line
	times  int
	newest time.Time
}

func runWatch(ctx context.Context, cmd *cli.Command) error {
	glob := cmp.Or(cmd.Args().First(), "*")
	w := &watch{top: top{order: "lock"}, errs: cmd.Root().ErrWriter, sums: make(map[string]*sum)}
	if cmd.Args().Len() > 1 {
		return usagef(cmd, "expected at most one GLOB: quote it")
	}
	var err error
	if w.interval, err = interval(cmd, watchInterval); err != nil {
		return err
	}
	if w.keep, err = wantedNames(cmd, glob); err != nil {
		return err
	}
	if w.server, err = connect(cmd); err != nil {
		return err
	}
	defer w.server.close()
	out := cmd.Root().Writer
	w.show = func(e event) error { return printEvent(out, e) }
	if cmd.Bool("json") {
		w.show = func(e event) error { return printEventJSON(out, e) }
		w.sums = nil // a program can add up, but it cannot take a sum apart
	}
	ctx, stop := untilInterrupt(ctx)
	defer stop()
	defer exitAfter(ctx)()
	return ended(ctx, w.run(ctx, glob))
}

// wantedNames tells which names are shown: those that match glob, one of --only if there is any,
// and none of --not.
func wantedNames(cmd *cli.Command, glob string) (func(string) bool, error) {
	for _, flag := range []string{"only", "not"} {
		if slices.Contains(cmd.StringSlice(flag), "") { // a variable of a shell that is not set
			return nil, usagef(cmd, "--%s: the GLOB is empty, and matches no name", flag)
		}
	}
	only, not := cmd.StringSlice("only"), cmd.StringSlice("not")
	return func(name string) bool {
		matching := func(glob string) bool { return matches(glob, name) }
		return matching(glob) && (len(only) == 0 || slices.ContainsFunc(only, matching)) && !slices.ContainsFunc(not, matching)
	}, nil
}

func (w *watch) run(ctx context.Context, glob string) error {
	v, err := w.look(ctx)
	if err != nil {
		return err
	}
	releases := w.listen(ctx, glob)
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	trouble := "" // of the newest look
	for err = w.compare(v); err == nil; {
		select {
		case name := <-releases:
			w.seen.release(name)
			err = w.released(name, time.Now())
		case <-second.C:
			err = w.tell(w.summed(time.Now(), time.Second/2))
		case <-tick.C:
			v, lookErr := w.look(ctx)
			if ctx.Err() != nil {
				continue // to the end
			}
			if now := troubleOf(lookErr); now != trouble {
				trouble = now
				fmt.Fprintf(w.errs, "rlock: %s\n", cmp.Or(trouble, "the server can be looked at again"))
			}
			if lookErr == nil {
				err = w.compare(v)
			}
		case <-ctx.Done():
			return w.tell(w.summed(time.Now(), 0))
		}
	}
	return err
}

// released shows a release at once. If the lock was released a moment ago, the release is counted
// instead, and summed shows the count.
func (w *watch) released(name string, now time.Time) error {
	if s := w.sums[name]; s != nil {
		s.times++
		s.newest = now
		return nil
	}
	if w.sums != nil {
		w.sums[name] = &sum{since: now}
	}
	return w.tell([]event{{At: now, Event: "released", Lock: name}})
}

// summed returns what has been counted for at least such a time, in the order of the names. It
// forgets locks that were not released again, so their next release is shown at once.
func (w *watch) summed(now time.Time, least time.Duration) (events []event) {
	for _, name := range slices.Sorted(maps.Keys(w.sums)) {
		s := w.sums[name]
		if now.Sub(s.since) < least {
			continue
		}
		switch s.times {
		case 0:
			delete(w.sums, name)
			continue
		case 1:
			events = append(events, event{At: s.newest, Event: "released", Lock: name})
		default:
			events = append(events, event{At: now, Event: "released", Lock: name, times: s.times, within: now.Sub(s.since)})
		}
		*s = sum{since: now}
	}
	return events
}

// troubleOf is what is printed of a look that has failed, "" if it has not.
func troubleOf(err error) string {
	if err == nil {
		return ""
	}
	return trimmed(err)
}

// compare tells what a look has shown. What is held is looked at until it is free, also if no
// record names it any more: its client may have died.
func (w *watch) compare(v *topView) error {
	events := w.seen.compare(v)
	w.also = w.seen.held()
	return w.tell(events)
}

func (w *watch) tell(events []event) error {
	for _, e := range events {
		if err := w.show(e); err != nil {
			return err
		}
	}
	return nil
}

// unlockChannels are what the names of channels on which releases are announced begin with.
func unlockChannels() []string { return []string{"redisson_lock__channel", "redisson_rwlock"} }

// listen subscribes to releases. Whoever announces one does not count who listens by a
// pattern, so nobody takes this process for one that waits.
func (w *watch) listen(ctx context.Context, glob string) <-chan string {
	releases := make(chan string, 1024)
	if cluster, ok := w.server.rdb.(*redis.ClusterClient); ok {
		if sharded, err := pubsub.HasSharded(ctx, cluster); err == nil && sharded {
			fmt.Fprintln(w.errs, "rlock: releases are not heard in a cluster with sharded channels, unless clients do without them")
		}
	}
	pattern := escapeGlob(w.server.prefix) + glob
	for _, kind := range unlockChannels() {
		all := escapeGlob(w.server.prefix) + "*"
		go w.hear(ctx, unlocks{kind, false}, releases, kind+":{"+pattern+"}", kind+":{"+all+"}")
		go w.hear(ctx, unlocks{kind, true}, releases, kind+":"+pattern, kind+":"+all)
	}
	return releases
}

// unlocks are channels on which releases are announced.
type unlocks struct {
	kind   string // what their names begin with
	tagged bool   // of locks whose names have a hash tag
}

// hear subscribes to a pattern, as long as ctx allows, or to the other one: a user with few
// rights may subscribe to no other pattern than a rule has. go-redis may not return at once
// when ctx ends, and so nobody waits for the goroutine.
func (w *watch) hear(ctx context.Context, of unlocks, releases chan<- string, pattern, other string) {
	ps := w.server.rdb.PSubscribe(ctx, pattern)
	defer func() { _ = ps.Close() }()
	for ctx.Err() == nil {
		message, err := ps.Receive(ctx)
		switch m := message.(type) {
		case nil:
			if redis.IsPermissionError(err) && other != "" {
				go w.hear(ctx, of, releases, other, "")
				return
			}
			if redis.IsPermissionError(err) {
				fmt.Fprintf(w.errs, "rlock: releases on %s are not heard: %v\n", printable(pattern), err)
				return
			}
			time.Sleep(w.interval) // without a connection
		case *redis.Message:
			name, tagged, ok := lockOf(m.Channel, of.kind, w.server.prefix)
			if ok && tagged == of.tagged && w.keep(name) { // the pattern of the others may match as well
				select {
				case releases <- name:
				case <-ctx.Done():
				}
			}
		}
	}
}

// lockOf returns the name of the lock whose releases a channel announces, and whether that
// has a hash tag.
func lockOf(channel, kind, prefix string) (name string, tagged, ok bool) {
	rest, ok := strings.CutPrefix(channel, kind+":")
	tagged = true
	if n := len(rest); n > 2 && rest[0] == '{' && rest[n-1] == '}' && lua.Related(kind, rest[1:n-1]) == channel {
		rest, tagged = rest[1:n-1], false
	}
	name, own := strings.CutPrefix(rest, prefix)
	return name, tagged, ok && own && !strings.HasPrefix(rest, "rlock-probe:")
}

// printEvent prints a line of words. None has anything that a terminal would obey.
func printEvent(w io.Writer, e event) error {
	words := []string{e.At.Format("15:04:05.000"), fit(e.Event, 8), printable(e.Lock)}
	add := func(format string, value string) {
		if value != "" {
			words = append(words, fmt.Sprintf(format, printable(value)))
		}
	}
	add("%s", e.Kind)
	by := e.hostView.String() // printable as it is
	if by == "" && e.Owner != "" {
		by = printable(e.Owner)
	}
	if by != "" {
		words = append(words, "by "+by)
	}
	if e.Purpose != "" {
		words[len(words)-1] += fmt.Sprintf(": %q", e.Purpose)
	}
	if e.times > 1 {
		words = append(words, fmt.Sprintf("%d times in %s", e.times, short(e.within.Round(100*time.Millisecond))))
	}
	if e.Calls > 1 {
		words = append(words, fmt.Sprintf("%d calls", e.Calls))
	}
	if e.ForMS != nil {
		words = append(words, "for "+short(time.Duration(*e.ForMS)*time.Millisecond))
	}
	add("(%s)", e.Cause)
	_, err := fmt.Fprintln(w, strings.Join(words, "  "))
	return err
}

func printEventJSON(w io.Writer, e event) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // it is read by people as well
	e.Quoted = quoted(e.Lock)
	return enc.Encode(e)
}
