package record

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Every is how often the server is asked to write a record, or to remove one, at most.
	Every = 10 * time.Second
	// look is how long a writer waits at least, before it looks whether there is anything
	// to tell.
	look = time.Second
	// peace is how long a writer leaves a server alone that refuses records.
	peace = 10 * time.Minute
	// bound is that of a request. One that takes longer ends by the time-outs of the
	// client underneath.
	bound = 2 * time.Second
)

// Snapshot is what there is to tell at a moment.
type Snapshot struct {
	Entries []Entry   // none: there is nothing to tell
	Rates   Rates     // without PerSecond
	Next    time.Time // when there may be something to tell, if nothing happens; zero: never
}

// Source is where a record comes from, and where it goes.
type Source struct {
	Who  func() Who                           // called once, before the first record is written
	Take func(now time.Time) Snapshot         // what there is to tell
	Send func(context.Context, *Record) error // writes the record, or removes it if that is nil

	Final   func(error) bool // says of an error of Send that the server refuses records
	Refused func(error)      // is told so, once
}

// Writer writes the record of a client. It has a goroutine from the time when there may be
// something to tell until there is nothing any more. It writes at most every ten seconds, after
// a [Writer.Hurry] every second. It removes the record when there is nothing to tell, or by
// Close, which leaves a record of the losses. A nil Writer does nothing.
type Writer struct {
	Source
	state atomic.Int32 // idle, busy or noticed

	mu      sync.Mutex    // guards what follows
	ended   chan struct{} // closed when the newest goroutine ends; nil if there was none
	closed  bool
	closing chan struct{}
	hurry   chan struct{} // has one at most

	log
}

// log is what the goroutines of a Writer, one after another, remember.
type log struct {
	who     *Who
	sent    time.Time // when the server was last asked for something
	hurried bool      // what is told next may follow soon
	kept    bool      // a record may be there
	refused time.Time // when the server last refused
	before  Rates     // of the newest record
	since   time.Time // when that was written
}

// States of a Writer.
const (
	idle    = iota // there is no goroutine
	busy           // there is one
	noticed        // it has to look once more before it ends
)

// NewWriter returns a Writer.
func NewWriter(s Source) *Writer {
	return &Writer{Source: s, closing: make(chan struct{}), hurry: make(chan struct{}, 1)}
}

// Hurry says that there is something to tell that should not wait. It waits for nothing.
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

// Notice says that there may soon be something to tell. It waits for nothing.
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

// Close ends the goroutine, which removes the record but for losses, and returns when that is
// done, or with ctx. A request under way is waited for: the record has to be removed after it.
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

// leave removes the record. If there are losses to tell, one of these alone stays until its
// time is over: a client often ends because of a loss, which would look like a release.
func (w *Writer) leave(now time.Time) {
	s := w.Take(now)
	s.Entries = slices.DeleteFunc(s.Entries, func(e Entry) bool { return e.What != Lost })
	switch {
	case len(s.Entries) > 0 && w.peaceful(now) <= 0:
		w.send(w.record(s, now))
	case w.kept:
		w.send(nil)
	}
}

// peaceful returns for how long to leave the server alone, which has refused.
func (w *Writer) peaceful(now time.Time) time.Duration {
	if w.refused.IsZero() {
		return 0
	}
	return peace - now.Sub(w.refused)
}

// turn looks what there is to tell, and tells it. It returns when to look again, 0 if
// nothing is to be told.
func (w *Writer) turn(now time.Time) time.Duration {
	if left := w.peaceful(now); left > 0 {
		return left
	}
	every := Every
	if w.hurried {
		every, w.hurried = look, false
	}
	s := w.Take(now)
	tell := len(s.Entries) > 0
	if tell || w.kept {
		if left := every - now.Sub(w.sent); !w.sent.IsZero() && left > 0 {
			return left
		}
		if tell {
			w.send(w.record(s, now))
			return Every
		}
		w.send(nil)
	}
	if s.Next.IsZero() {
		return 0
	}
	return max(s.Next.Sub(now), look)
}

// record is what a snapshot has, and what else there is to tell.
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
	return &Record{Who: *w.who, Rates: s.Rates, Written: now, Entries: s.Entries}
}

// send writes a record, or removes it. That may fail: the next one has all of it, and the
// server removes what nobody writes any more.
func (w *Writer) send(r *Record) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	w.sent, w.kept = time.Now(), r != nil
	err := w.Send(ctx, r)
	if err == nil || !w.Final(err) {
		return
	}
	if w.refused.IsZero() {
		w.Refused(err)
	}
	w.refused = time.Now()
}
