package bench

import (
	"context"
	"encoding/base64"
	"math/rand/v2"
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// play is the part of a worker that depends on the kind of scenario.
type play struct {
	load   int          // goroutines of it that are there during the window
	play   func()       // from the barrier until the window is over
	finish func(*tally) // when the counters are read: let go, and report
}

// prepare does what comes before the barrier.
func (w *worker) prepare(ctx context.Context) (play, error) {
	switch holds := w.Scenario.Kind == Idle || w.Scenario.Kind == Held; {
	case holds && w.Process == 0:
		return w.hold(ctx)
	case w.Scenario.Kind == Idle:
		return w.waitInVain(), nil
	case w.Scenario.Kind == Held:
		return w.probe(), nil
	case w.Scenario.Kind == Wakeup:
		return w.wakeups(), nil
	case w.Scenario.Kind == Kill:
		return w.kill(), nil
	case w.stranger():
		return w.loops(1), nil
	}
	return w.loops(w.Scenario.Goroutines), nil
}

// load is one goroutine of a run, and what it found.
type load struct {
	w         *worker
	locker    Locker
	id        int64
	name      string
	cell      *cell
	latencies *hdr.Histogram
	wakeups   *hdr.Histogram // Wide
	tally     tally
	taken     int64
}

func (w *worker) newLoads(n int) []*load {
	loads := make([]*load, n)
	for i := range loads {
		name, cell := w.key(i)
		loads[i] = &load{w: w, locker: w.locker(i), id: w.id(i), name: name, cell: cell, latencies: newHistogram()}
		if w.Scenario.Kind == Wide {
			loads[i].wakeups = newHistogram()
		}
	}
	return loads
}

// sum adds what the goroutines found to t.
func sum(t *tally, loads []*load) {
	all, wakeups := newHistogram(), newHistogram()
	for _, l := range loads {
		all.Merge(l.latencies)
		if l.wakeups != nil {
			wakeups.Merge(l.wakeups)
		}
		t.Taken = append(t.Taken, l.taken)
		t.Handoffs += l.tally.Handoffs
		t.Inside += l.tally.Inside
		t.Passed += l.tally.Passed
		t.Longest = max(t.Longest, l.tally.Longest)
		t.Errors += l.tally.Errors
		if t.FirstErr == "" {
			t.FirstErr = l.tally.FirstErr
		}
	}
	t.Latencies, t.Wakeups = t.encode(all), t.encode(wakeups)
}

func (t *tally) encode(h *hdr.Histogram) string {
	encoded, err := h.EncodeV2()
	if err != nil {
		t.fail(err)
	}
	return base64.StdEncoding.EncodeToString(encoded)
}

// loops is Cycle, Contend and Wide, and both sides of Foreign.
func (w *worker) loops(goroutines int) play {
	loads := w.newLoads(goroutines)
	return play{
		load: goroutines,
		play: func() {
			var wg sync.WaitGroup
			for i, l := range loads {
				wg.Go(func() {
					w.stagger(i)
					l.loop()
				})
			}
			wg.Wait()
		},
		finish: func(t *tally) {
			sum(t, loads)
			t.Timed = w.Scenario.Kind != Foreign || w.stranger()
		},
	}
}

// strangerPause is how long the stranger stays away, at most: long enough to
// find the lock held again.
const strangerPause = 4 * time.Millisecond

func (l *load) loop() {
	w := l.w
	until := w.end.Add(w.tail())
	ctx, cancel := context.WithDeadline(w.ctx, until)
	defer cancel()
	if w.Scenario.Kind == Cycle { // nobody waits: a cycle that has begun leaves nothing behind
		ctx = context.WithoutCancel(ctx)
	}
	for time.Now().Before(until) && w.ctx.Err() == nil {
		if w.Scenario.Paced && sleep(w.ctx, time.Now().Add(holdLeast+rand.N(holdSpread))) != nil {
			return
		}
		l.cycle(ctx)
		if w.stranger() {
			pause(rand.N(strangerPause))
		}
	}
}

// cycle is one operation. It counts if it ended inside the window.
func (l *load) cycle(ctx context.Context) {
	w := l.w
	began := time.Now()
	held, unlock, err := l.locker.Lock(ctx, l.name)
	got := time.Now()
	if err != nil {
		l.unfinished(began, err)
		return
	}
	woken := l.woken(began)
	before := w.region.enter(l.cell, l.id)
	inner := l.nest(held)
	var inside time.Duration
	if w.Scenario.Section > 0 {
		pause(w.Scenario.Section)
		inside = time.Since(got)
	}
	l.unnest(inner)
	w.region.exit(l.cell, l.id)
	l.releases()
	if err := unlock(context.WithoutCancel(held)); err != nil {
		l.tally.fail(err)
	}
	over := time.Now()
	switch {
	case over.Before(w.begin):
		return
	case over.After(w.end):
		l.cutOff(began, got)
		return
	}
	l.taken++
	l.tally.Inside += inside
	if before != 0 && before != l.id {
		l.tally.Handoffs++
		if before>>32 != l.id>>32 {
			l.tally.Passed++
		}
		if woken > 0 {
			record(l.wakeups, woken)
		}
	}
	l.tally.Longest = max(l.tally.Longest, got.Sub(began))
	if w.Scenario.Kind == Cycle {
		got = over
	}
	record(l.latencies, got.Sub(began))
}

// cutOff counts the wait of an operation that the end of the window has cut off:
// to leave those out would be to hide who starved.
func (l *load) cutOff(began, got time.Time) {
	if got.After(l.w.end) {
		got = l.w.end
	}
	if wait := got.Sub(began); wait > 0 && l.w.Scenario.Kind != Cycle {
		l.tally.Longest = max(l.tally.Longest, wait)
		record(l.latencies, wait)
	}
}

// unfinished counts a Lock that failed: as a wait, if it is the window that has
// ended it.
func (l *load) unfinished(began time.Time, err error) {
	if l.w.over() {
		l.cutOff(began, l.w.end)
		return
	}
	l.tally.fail(err)
	time.Sleep(time.Millisecond) // whatever it is, it need not be repeated at once
}

// nest locks again under held, also if the window ends meanwhile.
func (l *load) nest(held context.Context) (unlocks []func()) {
	held = context.WithoutCancel(held)
	for range l.w.Scenario.Depth - 1 {
		inner, unlock, err := l.locker.Lock(held, l.name)
		if err != nil {
			l.tally.fail(err)
			return unlocks
		}
		held = inner
		unlocks = append(unlocks, func() {
			if err := unlock(inner); err != nil {
				l.tally.fail(err)
			}
		})
	}
	return unlocks
}

func (l *load) unnest(unlocks []func()) {
	for i := len(unlocks) - 1; i >= 0; i-- {
		unlocks[i]()
	}
}
