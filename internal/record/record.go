// Package record writes and reads the record of a client on the server. The record answers the
// questions who holds a lock and who waits: host, process, program, the locks held or waited for
// for longer than a moment, and the names that cost most waiting. A [Writer] repeats the record as long
// as there are entries or hot names. No lock depends on a record, and the package knows no locks: the
// client gives a snapshot to write.
//
// A record is a hash, and all fields are text. A reader leaves out unknown fields: other
// versions may write more.
package record

import (
	"fmt"
	"iter"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Lasts is the lifetime of a record after the writing, unless the record says another.
const Lasts = 30 * time.Second

// Bounds of a record, whatever its client does.
const (
	maxText    = 256       // bytes of a host, a program, a version, a purpose
	maxEntries = 1000      // the oldest
	maxBytes   = 256 << 10 // of entries
	MaxHot     = 10        // hot names
	maxHot     = 32 << 10  // bytes of them
	maxRate    = 1e9       // a rate, or a number of calls, as it is read
	MaxUnder   = 32        // owners of the locks that the calls of a wait own
	maxCycle   = 4 << 10   // bytes of a deadlock
)

// Key is the key of a client's record.
func Key(prefix, client string) string { return prefix + "rlock_client:" + client }

// List is the key of the list of all clients with a record.
func List(prefix string) string { return prefix + "rlock_clients" }

// Who is a client.
type Who struct {
	Host    string
	PID     int
	Program string
	Version string
	Started time.Time
}

// What a client does with a lock.
type What string

// What a client does with a lock: the beginning of a field's name. The lock's name is the rest.
const (
	Holds What = "hold"
	Waits What = "wait"
	Keeps What = "keep" // on the server, without a holder in the client
	Lost  What = "lost"
)

// Entry is one lock of a client.
type Entry struct {
	What What
	Name string

	Kind    string
	Purpose string
	Owner   string    // of the oldest hold, of the kept lock, or of the loss
	Cause   string    // of a loss
	Since   time.Time // by the client's clock
	Count   int       // holds, or waiting calls
	Under   []Under   // of a wait: those of its calls that own locks
	Cycle   string    // of a wait: the deadlock that the client has found, as text
}

// Under says that a call waits while its context owns a lock.
type Under struct {
	Owner string    // of that lock
	Since time.Time // when the call began to wait, by the client's clock
	Ends  bool      // the call ends if it is in a deadlock
}

// same reports whether both are of the same owner.
func (u Under) same(other Under) bool { return u.Owner == other.Owner }

// AddUnder adds calls to those of a wait. It keeps one call of each owner, the one that was added first, and up to MaxUnder
// owners.
func (e *Entry) AddUnder(more ...Under) {
	for _, u := range more {
		if len(e.Under) < MaxUnder && !slices.ContainsFunc(e.Under, u.same) {
			e.Under = append(e.Under, u)
		}
	}
}

// under returns the calls as text: owner@since, and a ! behind that if the call ends. Owners have no space and no comma.
func (e *Entry) under() string {
	b := make([]byte, 0, 64)
	for i, u := range e.Under {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(append(b, u.Owner...), '@'), u.Since.UnixMilli(), 10)
		if u.Ends {
			b = append(b, '!')
		}
	}
	return string(b)
}

// readUnder reads that text. What is unreadable is left out.
func (e *Entry) readUnder(text string) {
	for call := range strings.SplitSeq(text, ",") {
		owner, since, _ := strings.Cut(call, "@")
		since, ends := strings.CutSuffix(since, "!")
		if n, err := strconv.ParseInt(since, 10, 64); err == nil && owner != "" {
			e.AddUnder(Under{owner, moment(n), ends})
		}
	}
}

// value returns the text of the entry's field: words, each with a name. The purpose comes last, and may
// have spaces.
func (e *Entry) value() string {
	b := make([]byte, 0, 128)
	word := func(name, value string) {
		if value != "" {
			b = append(append(append(append(b, name...), '='), value...), ' ')
		}
	}
	word("kind", e.Kind)
	word("since", strconv.FormatInt(e.Since.UnixMilli(), 10))
	word("owner", e.Owner)
	word("cause", e.Cause)
	if e.Count > 1 {
		word("n", strconv.Itoa(e.Count))
	}
	word("under", e.under())
	word("cycle", url.QueryEscape(cut(e.Cycle, maxCycle)))
	word("purpose", Clean(e.Purpose))
	return string(b[:len(b)-1])
}

// words returns the words NAME=TEXT of a value, in their order. The text of the word named last may have spaces: it is
// the rest of the value.
func words(value, last string) iter.Seq2[string, string] {
	return func(yield func(name, text string) bool) {
		for rest := value; rest != ""; {
			if text, ok := strings.CutPrefix(rest, last+"="); ok {
				yield(last, text)
				return
			}
			var word string
			word, rest, _ = strings.Cut(rest, " ")
			if name, text, _ := strings.Cut(word, "="); !yield(name, text) {
				return
			}
		}
	}
}

// read reads the text of a field. Words of other versions are left out.
func (e *Entry) read(value string) (ok bool) {
	for name, text := range words(value, "purpose") {
		switch name {
		case "kind":
			e.Kind = text
		case "since":
			n, err := strconv.ParseInt(text, 10, 64)
			e.Since, ok = moment(n), err == nil
		case "owner":
			e.Owner = text
		case "cause":
			e.Cause = text
		case "n":
			n, _ := strconv.Atoi(text)
			e.Count = min(max(n, 1), maxRate)
		case "under":
			e.readUnder(text)
		case "cycle":
			e.Cycle, _ = url.QueryUnescape(text) // "" after an error
		case "purpose":
			e.Purpose = text
		}
	}
	return ok
}

// hot is the beginning of the field of a hot name.
const hot = "hot"

// Hot is a name that calls of a client have waited for, in the last 10 to 20 s before the record was written.
type Hot struct {
	Name      string
	Group     string  // that Options.Group has made of the name; "" without that function
	PerSecond float64 // waits that have ended, per second
	Waiting   float64 // seconds of waiting per second: so many calls have waited on average
	Most      int     // so many calls have waited at once
}

// value returns the text of the field of a hot name. The group comes last, and may have spaces.
func (h *Hot) value() string {
	text := fmt.Sprintf("per_second=%.2f waiting=%.3f most=%d", h.PerSecond, h.Waiting, h.Most)
	if h.Group != "" {
		text += " group=" + Clean(h.Group)
	}
	return text
}

// read reads the text of the field of a hot name. Words of other versions are left out.
func (h *Hot) read(value string) (ok bool) {
	for name, text := range words(value, "group") {
		switch name {
		case "per_second":
			h.PerSecond = rate(text)
		case "waiting":
			h.Waiting = rate(text)
			ok = h.Waiting > 0
		case "most":
			n, _ := strconv.Atoi(text)
			h.Most = min(max(n, 0), maxRate)
		case "group":
			h.Group = text
		}
	}
	return ok
}

// rate reads a rate. What is no finite number of at least 0 counts as 0, because JSON has no such numbers. A rate above
// maxRate is cut, so that readers can add up those of many clients.
func rate(text string) float64 {
	if r, err := strconv.ParseFloat(text, 64); err == nil && r >= 0 && !math.IsInf(r, 1) {
		return min(r, maxRate)
	}
	return 0
}

// Rates are the counts of a client.
type Rates struct {
	Acquired  int64   // since the start of the client
	Lost      int64   // likewise
	PerSecond float64 // acquired, of late
}

// Record is the record of a client.
type Record struct {
	Who
	Rates
	Written time.Time     // by the client's clock
	Lasts   time.Duration // after that, if it is longer than the constant
	Entries []Entry
	More    int   // number of entries left out
	Hot     []Hot // those that cost most waiting
}

// Fields returns the fields of the hash, each followed by its value. Entries beyond the
// bounds are left out and counted, from the end.
func (r *Record) Fields() []any {
	var entries []any
	size, more := 0, r.More
	for i := range r.Entries {
		e := &r.Entries[i]
		value := e.value()
		if size += len(e.Name) + len(value); i >= maxEntries || size > maxBytes {
			more += len(r.Entries) - i
			break
		}
		entries = append(entries, string(e.What)+":"+e.Name, value)
	}
	fields := []any{
		"host", Clean(r.Host), "pid", strconv.Itoa(r.PID), "program", Clean(r.Program), "version", Clean(r.Version),
		"started", strconv.FormatInt(r.Started.UnixMilli(), 10), "written", strconv.FormatInt(r.Written.UnixMilli(), 10),
		"acquired", strconv.FormatInt(r.Acquired, 10), "lost", strconv.FormatInt(r.Lost, 10),
		"per_second", strconv.FormatFloat(r.PerSecond, 'f', 1, 64),
	}
	if more > 0 {
		fields = append(fields, "more", strconv.Itoa(more))
	}
	if r.Lasts > Lasts {
		fields = append(fields, "lasts", strconv.FormatInt(r.Lasts.Milliseconds(), 10))
	}
	size = 0
	for i := range r.Hot[:min(len(r.Hot), MaxHot)] {
		h := &r.Hot[i]
		value := h.value()
		if n := len(h.Name) + len(value); size+n <= maxHot {
			size, fields = size+n, append(fields, hot+":"+h.Name, value)
		}
	}
	return append(fields, entries...)
}

// Clean returns a text in the form for a record: cut after 256 bytes, valid UTF-8.
func Clean(text string) string {
	return strings.ToValidUTF8(cut(text, maxText), "\uFFFD")
}

// cut returns a text without what is beyond so many bytes.
func cut(text string, most int) string {
	if len(text) > most {
		end := most
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	return text
}

// moment is the time of a record. JSON has no years of five digits.
func moment(milli int64) time.Time {
	const last = 253402300799999 // of the year 9999
	return time.UnixMilli(min(max(milli, 0), last))
}

// Read reads the fields of a hash. Unknown and unreadable fields are left out.
func Read(fields map[string]string) Record {
	number := func(field string) int64 {
		n, _ := strconv.ParseInt(fields[field], 10, 64)
		return n
	}
	r := Record{
		Who: Who{
			Host: fields["host"], PID: int(number("pid")), Program: fields["program"], Version: fields["version"],
			Started: moment(number("started")),
		},
		Rates:   Rates{Acquired: number("acquired"), Lost: number("lost"), PerSecond: rate(fields["per_second"])},
		Written: moment(number("written")), More: int(number("more")),
	}
	if n := number("lasts"); n > 0 && n <= slowest.Milliseconds()*lives {
		r.Lasts = time.Duration(n) * time.Millisecond
	}
	for field, value := range fields {
		what, name, ok := strings.Cut(field, ":")
		e := Entry{What: What(what), Name: name, Count: 1}
		if ok && slices.Contains([]What{Holds, Waits, Keeps, Lost}, e.What) && e.read(value) {
			r.Entries = append(r.Entries, e)
		}
		if h := (Hot{Name: name}); ok && what == hot && h.read(value) {
			r.Hot = append(r.Hot, h)
		}
	}
	return r
}

// Age returns how long ago an entry began, from the rest of the record's lifetime. The clock of the
// reader does not matter.
func (r *Record) Age(e Entry, rest time.Duration) time.Duration {
	return max(r.Written.Sub(e.Since)+max(max(r.Lasts, Lasts)-rest, 0), 0)
}
