package record

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Every is the shortest time between requests to write or remove a record, as long as perSecond
	// clients or less write one in a second. More clients write less often, down to slowest: the list of
	// clients is a single key.
	Every     = 10 * time.Second
	perSecond = 1000
	slowest   = 5 * time.Minute
	lives     = 3 // intervals until a record ends
	// look is the shortest time until a writer takes a new snapshot.
	look = time.Second
	// peace is the pause after a server has refused records.
	peace = 10 * time.Minute
	// bound is the time for a request. A longer request ends by the time-outs of the client
	// underneath.
	bound = 2 * time.Second
)

// Snapshot is the content of a record at a moment.
type Snapshot struct {
	Entries []Entry   // without an entry or a hot name, no record is needed
	Hot     []Hot     // those that cost most waiting first
	Rates   Rates     // without PerSecond
	Next    time.Time // when there may be an entry, if nothing else happens; zero: never
}

// Source takes snapshots, and sends records.
type Source struct {
	Who  func() Who                                               // called once, before the first record is written
	Take func(now time.Time, lasts time.Duration) Snapshot        // takes a snapshot for a record that lasts so long
	Send func(context.Context, *Record) (listed int64, err error) // writes the record, and counts those with one; nil: removes the record

	Final   func(error) bool // whether an error of Send means that the server refuses records
	Refused func(error)      // called once with such an error
}

// Writer writes the record of a client. A Writer has a goroutine as long as there are entries or hot names,
// or may be soon. The goroutine writes at most every ten seconds, after a [Writer.Hurry] every second, and
// removes the record when none are left. Close removes the record as well, but leaves the losses.
// A nil Writer does nothing.
type Writer struct {
	Source
	state atomic.Int32 // idle, busy or noticed

	mu      sync.Mutex    // guards what follows
	ended   chan struct{} // closed when the newest goroutine ends; nil before the first
	closed  bool
	closing chan struct{}
	hurry   chan struct{} // capacity 1

	log
}

// log is the memory of a Writer's goroutines, one after another.
type log struct {
	who     *Who
	sent    time.Time // of the newest request
	listed  int64     // clients with a record, by the newest answer
	hurried bool      // the next record may follow soon
	kept    bool      // the server may have a record
	refused time.Time // when the server last refused
	before  Rates     // of the newest record
	since   time.Time // when the newest record was written
}

// States of a Writer.
const (
	idle    = iota // no goroutine
	busy           // a goroutine
	noticed        // a goroutine, to take one more snapshot before the end
)

// NewWriter returns a Writer.
func NewWriter(s Source) *Writer {
	return &Writer{Source: s, closing: make(chan struct{}), hurry: make(chan struct{}, 1)}
}

// Hurry announces an entry to be written soon. Hurry does not block.
func (w *Writer) Hurry() {
	if w == nil {
		return
	}
	select {
	case w.hurry <- struct{}{}:
	default:
	}
	w.Notice()
}

// Notice announces a possible entry. Notice does not block.
func (w *Writer) Notice() {
	if w == nil || w.state.Load() == noticed || w.state.CompareAndSwap(busy, noticed) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !w.state.CompareAndSwap(idle, busy) {
		return
	}
	w.ended = make(chan struct{})
	go w.run(w.ended)
}

// Close ends the goroutine, removes the record but for the losses, and returns with the end of that, or
// of ctx. Close waits for a request under way: the removal must come after.
func (w *Writer) Close(ctx context.Context) {
	if w == nil {
		return
	}
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.closing)
	}
	ended := w.ended
	w.mu.Unlock()
	if ended == nil {
		return
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

func (w *Writer) run(ended chan struct{}) {
	over := false
	defer func() {
		if !over { // a hook of the application has ended this goroutine: the next Notice starts another
			w.state.Store(idle)
		}
		close(ended)
	}()
	for pause := look; ; {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-w.hurry:
			timer.Stop()
			w.hurried = true
			if left := look - time.Since(w.sent); !w.sent.IsZero() && left > 0 {
				pause = left
				continue
			}
		case <-w.closing:
			timer.Stop()
			w.leave(time.Now())
			return
		}
		if pause = w.turn(time.Now()); pause > 0 {
			w.state.Store(busy)
			continue
		}
		if w.state.CompareAndSwap(busy, idle) {
			over = true
			return
		}
		w.state.Store(busy)
		pause = look
	}
}

// leave removes the record. A record of the losses alone stays for its lifetime: a client often ends
// because of a loss, and without a record the loss would look like a release.
func (w *Writer) leave(now time.Time) {
	s := w.Take(now, lives*w.every())
	s.Entries, s.Hot = slices.DeleteFunc(s.Entries, func(e Entry) bool { return e.What != Lost }), nil
	switch {
	case len(s.Entries) > 0 && w.peaceful(now) <= 0:
		w.send(w.record(s, now))
	case w.kept:
		w.send(nil)
	}
}

// peaceful returns the rest of the pause after a refusal.
func (w *Writer) peaceful(now time.Time) time.Duration {
	if w.refused.IsZero() {
		return 0
	}
	return peace - now.Sub(w.refused)
}

// every is the present time between records.
func (w *Writer) every() time.Duration {
	return min(max(Every, time.Duration(w.listed)*time.Second/perSecond), slowest)
}

// turn takes a snapshot, and sends the record if due. turn returns the time until the next snapshot; 0
// without anything to write.
func (w *Writer) turn(now time.Time) time.Duration {
	if left := w.peaceful(now); left > 0 {
		return left
	}
	every := w.every()
	s := w.Take(now, lives*every)
	if w.hurried {
		every, w.hurried = look, false
	}
	tell := len(s.Entries)+len(s.Hot) > 0
	if tell || w.kept {
		if left := every - now.Sub(w.sent); !w.sent.IsZero() && left > 0 {
			return left
		}
		if tell {
			w.send(w.record(s, now))
			return w.every()
		}
		w.send(nil)
	}
	if s.Next.IsZero() {
		return 0
	}
	return max(s.Next.Sub(now), look)
}

// record makes the record of a snapshot.
func (w *Writer) record(s Snapshot, now time.Time) *Record {
	if w.who == nil {
		who := w.Who()
		w.who = &who
	}
	if w.since.IsZero() {
		w.since = w.who.Started
	}
	if d := now.Sub(w.since).Seconds(); d > 0 {
		s.Rates.PerSecond = float64(s.Rates.Acquired-w.before.Acquired) / d
	}
	w.before, w.since = s.Rates, now
	return &Record{Who: *w.who, Rates: s.Rates, Written: now, Lasts: lives * w.every(), Entries: s.Entries, Hot: s.Hot}
}

// send writes or removes a record. After a failure the next record has all entries, and an abandoned
// record ends by the key's expiry.
func (w *Writer) send(r *Record) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	w.sent, w.kept = time.Now(), r != nil
	listed, err := w.Send(ctx, r)
	if err == nil {
		w.listed = listed
	}
	if err == nil || !w.Final(err) {
		return
	}
	if w.refused.IsZero() {
		w.Refused(err)
	}
	w.refused = time.Now()
}
