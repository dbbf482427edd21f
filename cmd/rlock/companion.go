package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/rlock"
)

// companionView is what packages election, jobs and once keep next to a lock. One field is there at most.
type companionView struct {
	Election *electionView `json:"election,omitempty"`
	Job      *jobView      `json:"job,omitempty"`
	Result   *resultView   `json:"result,omitempty"`
}

type electionView struct {
	Term        int64  `json:"term"` // 0: nobody leads
	Value       string `json:"value"`
	ValueQuoted string `json:"value_quoted,omitempty"` // see quoted
	Waits       bool   `json:"waits,omitempty"`        // the holder of the lock, for a leader that has not resigned
}

type jobView struct {
	Fire     time.Time `json:"fire"`          // the newest that was claimed or finished
	Next     time.Time `json:"next,omitzero"` // zero: none
	Finished bool      `json:"finished"`      // of a job that runs at least once; otherwise the fire was claimed
}

type resultView struct {
	State string `json:"state"` // stored, running, or ended: a run has ended without a result
	Bytes int    `json:"bytes"`
	TTL   int64  `json:"ttl_ms"`
}

// companion reads what is next to a lock. It is nothing if the user of Redis may not read that.
func (s *server) companion(ctx context.Context, state rlock.State) (v companionView) {
	pipe, key := s.rdb.Pipeline(), companion.Key(s.prefix+state.Name)
	read := pipe.HMGet(ctx, key, "is", "owner", "term", "value", "wait", "fire", "next", "by", "result")
	ttl := pipe.PTTL(ctx, key)
	_, _ = pipe.Exec(ctx) // each command has its own error
	if read.Err() != nil {
		return v
	}
	text := make([]string, len(read.Val()))
	for i, field := range read.Val() {
		text[i], _ = field.(string)
	}
	number := func(text string) int64 {
		n, _ := strconv.ParseInt(text, 10, 64)
		return n
	}
	is, owner, term, value, wait, fire, next, by, result := text[0], text[1], text[2], text[3], text[4], text[5], text[6], text[7], text[8]
	_, held := state.Holds[owner]
	switch is {
	case "election":
		v.Election = &electionView{Waits: held && wait == "1" && read.Val()[3] == nil}
		if held && !v.Election.Waits {
			v.Election.Term, v.Election.Value, v.Election.ValueQuoted = number(term), value, quoted(value)
		}
	case "fire":
		v.Job = &jobView{Fire: time.UnixMilli(number(fire)), Finished: strings.Contains(by, ":")} // by an owner
		if next != "0" {
			v.Job.Next = time.UnixMilli(number(next))
		}
	case "result":
		v.Result = &resultView{State: "ended", Bytes: len(result), TTL: max(ttl.Val().Milliseconds(), 0)}
		if read.Val()[8] != nil {
			v.Result.State = "stored"
		} else if held {
			v.Result.State = "running"
		}
	}
	return v
}

// print writes a line, if there is something to tell.
func (v companionView) print(w io.Writer, now time.Time) {
	switch e, j, r := v.Election, v.Job, v.Result; {
	case e != nil && e.Term != 0:
		fmt.Fprintf(w, "election\tterm %d, led by %s\n", e.Term, strconv.Quote(e.Value))
	case e != nil && e.Waits:
		fmt.Fprint(w, "election\tthe holder waits, because the leader before has not resigned\n")
	case e != nil:
		fmt.Fprint(w, "election\tnobody leads\n")
	case j != nil:
		state, next := "claimed", "no further fire"
		if j.Finished {
			state = "finished"
		}
		if !j.Next.IsZero() {
			next = "the next is " + j.Next.Format(time.DateTime)
		}
		ago := brief(now.Sub(j.Fire)) + " ago"
		if j.Fire.After(now) {
			ago = "in " + brief(j.Fire.Sub(now))
		}
		fmt.Fprintf(w, "job\tfire of %s (%s) %s, %s\n", j.Fire.Format(time.DateTime), ago, state, next)
	case r != nil && r.State == "stored":
		fmt.Fprintf(w, "result\t%d bytes, for another %s\n", r.Bytes, brief(time.Duration(r.TTL)*time.Millisecond))
	case r != nil && r.State == "running":
		fmt.Fprint(w, "result\tis being computed\n")
	case r != nil:
		fmt.Fprintf(w, "result\ta run has ended without one; its trace stays for another %s\n", brief(time.Duration(r.TTL)*time.Millisecond))
	}
}
