package verify

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// event is a line of a journal: a call of an operation, or its return.
type event struct {
	At     int64    `json:"at"`
	Lock   string   `json:"lock"`
	Client int      `json:"client"`
	ID     string   `json:"id"` // of the operation: its call and return share it
	Kind   kind     `json:"kind"`
	Return bool     `json:"return,omitzero"`
	Seen   int64    `json:"seen,omitzero"`   // a moment after which the grant's context had not ended
	Grant  string   `json:"grant,omitzero"`  // the operation that acquired it
	Owner  string   `json:"owner,omitzero"`  // of a grant that was got: its name on the server
	Result result   `json:"result,omitzero"` // of a return
	Must   bool     `json:"must,omitzero"`   // it has to succeed
	Token  int64    `json:"token,omitzero"`
	Value  int64    `json:"value,omitzero"`  // read or written
	Due    int64    `json:"due,omitzero"`    // of a fire: its scheduled time, on the clock of At
	Shared bool     `json:"shared,omitzero"` // the hold is, or would be, a reader's
	All    []string `json:"all,omitzero"`    // the locks that it is about, if more than one
	Err    string   `json:"err,omitzero"`    // for whoever reads the journal

	on []target // in place of Lock, Owner and Token, until it is written
}

type kind string

const (
	opLock   kind = "lock"   // waits
	opQueued kind = "queued" // it was refused once, and has its place if there is a queue
	opTry    kind = "try"    // does not
	opNest   kind = "nest"   // a further hold
	opUnlock kind = "unlock" // of any hold
	opLost   kind = "lost"   // the holder saw that its context had ended by loss
	opRead   kind = "read"   // of the resource that the lock protects
	opWrite  kind = "write"
	opResult kind = "result" // of package once
	opRun    kind = "run"    // of its function
	opStall  kind = "stall"  // of a process: no operation; until Seen
)

type result string

const (
	ok      result = "ok"
	denied  result = "denied"  // somebody else holds the lock
	lost    result = "lost"    // ErrLeaseLost
	unknown result = "unknown" // no answer, or the wait was over
	stale   result = "stale"   // the resource has seen a greater token
	upgrade result = "upgrade" // ErrUpgrade
)

// listing is what happened to a lock, in milliseconds from the first event, for whoever has only
// the output of a failed test.
func listing(events []event, lock string) string {
	var b strings.Builder
	first := int64(-1)
	for _, e := range events {
		if e.Lock != lock || e.Kind == opQueued || e.Kind == opStall {
			continue
		}
		if first < 0 {
			first = e.At
		}
		fmt.Fprintf(&b, "%9.3f client %d %s %s %s", float64(e.At-first)/1e6, e.Client, e.ID, e.Kind, cmp.Or(string(e.Result), "called"))
		if e.Shared {
			b.WriteString(", as a reader")
		}
		if e.Grant != "" {
			fmt.Fprintf(&b, ", under %s", e.Grant)
		}
		if e.Owner != "" {
			fmt.Fprintf(&b, ", owner %s, token %d", e.Owner, e.Token)
		}
		if e.Return && (e.Kind == opRead || e.Kind == opWrite) {
			fmt.Fprintf(&b, ", value %d", e.Value)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// journal is written by a party. Each event is one write to a file, so it stays
// when the process is killed.
type journal struct{ f *os.File }

func openJournal(path string) journal {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return journal{f}
}

func (j journal) write(e event) {
	if e.At == 0 {
		e.At = now()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = j.f.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

// readJournal returns what a party has written so far.
func readJournal(path string) ([]event, error) {
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var events []event
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}
