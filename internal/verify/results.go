package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-rlock/rlock/once"
	"github.com/go-rlock/rlock/rlock"
)

// A history of results is about one name: who was given which result, and who computed it when. Each
// step of a client is about the next name of its history, so all clients come to a name at about the same
// time. When everything is healed, each asks once more for all of them.

// resultsFor is how many names the clients of a history share results of.
func (j *job) resultsFor() int { return j.Steps + 2 }

// share is what the client does in a history of results.
func (c *client) share() {
	for _, name := range c.agenda.locks {
		select {
		case <-c.p.healed:
		default:
			c.result(name, draw(c.r, &c.p.job, c.agenda))
		}
	}
	<-c.p.healed
	for _, name := range c.agenda.locks {
		s := last(c.r, &c.p.job, c.agenda)
		s.again = 5 // a machine that stands still costs each call that waits for the run that is lost
		c.result(name, s)
	}
}

// result gets one result. Its function may go on when the call has been given up.
func (c *client) result(name string, s step) {
	ctx, cancel := context.WithTimeout(context.Background(), s.wait+s.pause)
	defer cancel()
	if pause(ctx, s.pause); s.cancel > 0 {
		stop := time.AfterFunc(s.cancel, cancel)
		defer stop.Stop()
	}
	e := c.call(event{on: []target{{lock: name}}, Kind: opResult, Must: s.must})
	g := once.New(c.p.locks.Load().clients[0], once.Options{TTL: time.Hour, Lease: c.agenda.lease})
	value, err := g.Do(ctx, name, func(ctx context.Context) ([]byte, error) {
		run := event{Lock: name, Client: c.number, ID: e.ID + " run", Kind: opRun, Seen: now()}
		c.p.journal.write(run)
		pause(ctx, s.hold)
		run.Return, run.Result = true, lost
		if seen := now(); ctx.Err() == nil {
			run.Seen, run.Result = seen, ok
		}
		c.p.journal.write(run)
		return strconv.AppendInt(nil, run.Seen, 10), ctx.Err()
	})
	again := s.again > 0 && (errors.Is(err, rlock.ErrUnavailable) || errors.Is(err, rlock.ErrLeaseLost))
	e.Must = s.must && !again
	switch {
	case err == nil:
		e.Value, _ = strconv.ParseInt(string(value), 10, 64)
		c.returned(e, ok, nil)
	default:
		c.returned(e, refusal(err), err)
	}
	if again {
		s.again--
		c.result(name, s)
	}
}

// checkResults judges the histories of a round.
func (w *world) checkResults(f *figures, events []event) {
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	all := make(map[string][]event)
	for _, e := range events {
		all[e.Lock] = append(all[e.Lock], e)
	}
	for name, events := range all {
		h := readResults(events)
		f.operations += h.calls
		f.grants += len(h.runs)
		f.losses += h.losses
		if h.unserved > 0 {
			f.missed++
			f.notes = append(f.notes, name+": a caller got no result after healing")
		}
		for _, wrong := range h.check(name, w.gone) {
			f.violations++
			w.keep(events)
			w.Errorf("seed %d, %s, round %d: %s\n%s", w.seed, w.row.name, w.job.Round, wrong, listing(events, name))
		}
	}
}

// resultHistory is what happened to one name.
type resultHistory struct {
	given                   []given
	runs                    []resultRun
	calls, losses, unserved int
}

// resultRun is the time of a function until its context was last seen alive.
type resultRun struct {
	span
	asked int64 // when its call began: the lock was acquired after that
}

// given is a result that a call has returned.
type given struct {
	span
	value int64
}

func readResults(events []event) (h resultHistory) {
	calls, runs := make(map[string]event), make(map[string]int)
	for _, e := range events {
		switch {
		case e.Kind == opRun && !e.Return:
			runs[e.ID] = len(h.runs)
			h.runs = append(h.runs, resultRun{span{e.At, e.Seen}, calls[strings.TrimSuffix(e.ID, " run")].At})
		case e.Kind == opRun:
			h.runs[runs[e.ID]].ret = e.Seen
			if e.Result == lost {
				h.losses++
			}
		case e.Kind == opResult && !e.Return:
			h.calls++
			calls[e.ID] = e
		case e.Kind == opResult && e.Result == ok:
			h.given = append(h.given, given{span{calls[e.ID].At, e.At}, e.Value})
		case e.Kind == opResult && e.Must:
			h.unserved++
		}
	}
	return h
}

// check returns what must not be. If the server has forgotten everything, there may be another result. If it
// has forgotten the lock alone, two runs may overlap, but only one result is stored:
//
//	a has the lock, and asks whether there is a result
//	the lock is deleted
//	b has the lock, and its function begins
//	a is told that there is no result, and its function begins
//	b stores its result; a stores nothing
func (h resultHistory) check(name string, gone []oblivion) (wrong []string) {
	forgotten := func(from, to int64, lock bool) bool {
		return slices.ContainsFunc(gone, func(g oblivion) bool {
			return (g.lock == "" || lock && g.lock == name) && g.call <= to && g.ret >= from
		})
	}
	for i, a := range h.given {
		for _, b := range h.given[:i] {
			if a.value != b.value && !forgotten(min(a.call, b.call, a.value, b.value), max(a.ret, b.ret), false) {
				wrong = append(wrong, fmt.Sprintf("two results of %s: %d and %d", name, a.value, b.value))
			}
		}
		for _, run := range h.runs {
			if run.call > a.ret && !forgotten(a.value, run.call, false) {
				wrong = append(wrong, fmt.Sprintf("a run of %s after its result had been given", name))
			}
		}
	}
	for i, a := range h.runs {
		for _, b := range h.runs[:i] {
			if from, to := max(a.call, b.call), min(a.ret, b.ret); from < to && !forgotten(min(a.asked, b.asked), to, true) {
				wrong = append(wrong, fmt.Sprintf("two runs of %s at a time", name))
			}
		}
	}
	return wrong
}
