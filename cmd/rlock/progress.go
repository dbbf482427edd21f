package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

// progress tells the user what `rlock run` waits for: on a terminal in a line
// that is rewritten every second, and costs one query then, and one more as long as
// the holder has not told who it is; elsewhere in one line at the start, and one query.
type progress struct {
	out     *os.File
	columns int // of the terminal; 0: none
	quiet   bool
	inspect func(ctx context.Context, name string) (rlock.State, error)
	holder  func(ctx context.Context, name, owner string) holder

	heard   atomic.Bool  // the server has answered
	name    atomic.Value // of the lock that is waited for
	once    sync.Once
	began   time.Time
	stop    context.CancelFunc // nil: nothing is written
	stopped chan struct{}      // closed when nothing is written any more
}

func newProgress(out *os.File, quiet bool) *progress {
	return &progress{out: out, columns: width(out), quiet: quiet}
}

// waiting is for [rlock.Trace].
func (p *progress) waiting(_ context.Context, r rlock.Refusal) {
	p.heard.Store(true)
	p.name.Store(r.Lock)
	p.once.Do(func() {
		if p.quiet {
			return
		}
		var ctx context.Context
		ctx, p.stop = context.WithCancel(context.Background())
		p.began, p.stopped = time.Now(), make(chan struct{})
		go p.write(ctx, r)
	})
}

// expect says why there is no lock, if after a while the server has neither granted it nor
// named its holder. It ends with stop.
func (p *progress) expect(why func() string) (stop func() bool) {
	return time.AfterFunc(patience, func() {
		if p.quiet || p.heard.Load() {
			return
		}
		fmt.Fprintf(p.out, "rlock: %s\n", why())
	}).Stop
}

// patience is how long a silent server goes without saying: longer than a single
// attempt, which ends with an error of its own.
const patience = 3 * time.Second

// patientWrite is how long a reader of our messages may stand still before we go on.
const patientWrite = 500 * time.Millisecond

// writtenWithin waits until something is written, or that time is over.
func writtenWithin(written <-chan struct{}, d time.Duration) {
	select {
	case <-written:
	case <-time.After(d):
	}
}

// done has the line removed. The wait must be over; of its refusals one may still be told later.
func (p *progress) done() {
	p.once.Do(func() {})
	if p.stop == nil {
		return
	}
	p.stop()
	writtenWithin(p.stopped, patientWrite)
}

// write tells of the wait until ctx ends.
func (p *progress) write(ctx context.Context, r rlock.Refusal) {
	defer close(p.stopped)
	if p.columns > 0 {
		p.rewrite(ctx)
		fmt.Fprint(p.out, "\r\x1b[K")
		return
	}
	text := "not free"
	if r.Holder != "" {
		h := p.holder(context.WithoutCancel(ctx), r.Lock, r.Holder) // done waits for the line
		h.ttl = r.TTL
		text = h.describe(time.Now())
	}
	fmt.Fprintf(p.out, "rlock: waiting for lock %q: %s\n", r.Lock, text)
}

func (p *progress) rewrite(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var h holder
	for {
		name := p.name.Load().(string)
		state, err := p.inspect(ctx, name)
		if owner := h.stillOf(state); owner != "" && (owner != h.owner || !h.final) {
			h = p.holder(ctx, name, owner)
		}
		if ctx.Err() != nil {
			return
		}
		text := fmt.Sprintf("rlock: waiting for %q (%s): %s", name, time.Since(p.began).Round(time.Second), h.seen(state, err, time.Now()))
		fmt.Fprintf(p.out, "\r\x1b[K%s", cut(text, max(p.width()-1, 1)))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// width is that of the terminal, which may have changed.
func (p *progress) width() int {
	if columns := width(p.out); columns > 0 {
		return columns
	}
	return p.columns
}
