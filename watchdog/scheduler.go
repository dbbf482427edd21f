package watchdog

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	batchSize = 256 // leases in one RenewFunc call, at most

	// maxNap is how long the loop sleeps at most. Timers follow the monotonic clock, so
	// the loop notices a suspension no later than maxNap after the end.
	maxNap = time.Second

	// linger is how long after its last entry the loop ends.
	linger = 3 * time.Second
)

// Options are the settings for [New]. The zero value of each field means its default.
type Options struct {
	Logger *slog.Logger // receives failed renewals, from the goroutine of a batch; nil: nothing is logged
}

// Scheduler renews leases and detects their loss. Its methods are safe for concurrent use.
type Scheduler[K comparable] struct {
	renew RenewFunc[K]
	log   *slog.Logger
	now   func() time.Time // time.Now; tests part the clocks

	ctx     context.Context // of every attempt; ended by Close
	cancel  context.CancelCauseFunc
	running sync.WaitGroup // the loop and the batches in flight
	wake    chan struct{}  // to the loop, from any goroutine; capacity 1, never closed

	// mu guards the fields below, and the fields named there in each Entry. mu is never held
	// during I/O or a callback.
	mu    sync.Mutex
	queue queue[K]
	looping
	closed bool
}

// looping is the state of the loop.
type looping struct {
	on      bool
	wakeAt  time.Time // when the timer fires
	used    time.Time // when the loop last saw an entry
	ordered time.Time // the clocks when the queue was last put in order
}

// New returns a Scheduler that calls renew to renew leases. New starts no goroutine. The goroutine of the
// scheduler starts with the first lease, and ends a few seconds after the last.
func New[K comparable](renew RenewFunc[K], opts Options) *Scheduler[K] {
	s := &Scheduler[K]{
		renew: renew,
		log:   cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)),
		now:   time.Now,
		wake:  make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Add begins to renew a lease. It returns [ErrLapsed] if the rest of the trusted window is no longer than
// [Guard], and [ErrClosed] after Close. In both cases the caller must not rely on the lease. If you add two
// leases with the same key, they are two separate entries.
func (s *Scheduler[K]) Add(l Lease[K]) (*Entry[K], error) {
	l.Duration, l.Renew = max(l.Duration, 0), max(l.Renew, 0)
	e := &Entry[K]{
		scheduler: s, key: l.Key, onLost: l.OnLost, first: windowOf(l.Sent, l.Duration, l.Duration),
		lease: lease{l.Duration, cmp.Or(l.Renew, l.Duration), l.Fixed, l.Sent},
	}
	e.window.Store(&e.first)
	e.duration = min(e.duration, e.renew) // a longer remainder now says nothing of the next extension

	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	switch {
	case s.closed:
		return nil, ErrClosed
	case remaining(now, e.first.lapses) <= 0:
		return nil, ErrLapsed
	}
	s.used = now
	if !s.on {
		s.on, s.ordered = true, now
		s.running.Go(s.loop)
	}
	e.next, e.index = l.Sent.Add(spread(e.duration)), len(s.queue)
	s.queue = append(s.queue, e)
	e.reorder(now)
	return e, nil
}

// Close ends every entry with [ErrClosed] and calls OnLost of each. It then cancels the contexts of all
// renewals in progress, and waits until all goroutines of the scheduler have ended. If ctx ends first, Close
// returns the cause of ctx. A goroutine that has not ended when ctx ends will end when its RenewFunc returns.
// Close calls OnLost even if ctx has already ended. You can call Close again, but not from OnLost.
func (s *Scheduler[K]) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	lost := slices.Clone(s.queue)
	for _, e := range lost {
		e.end(ErrClosed)
	}
	s.mu.Unlock()

	s.cancel(ErrClosed)
	s.signal()
	report(lost)

	done := make(chan struct{})
	go func() { // ends with the last attempt
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// loop is the one goroutine that watches the entries. The loop ends after a while without
// entries, or when Close has ended all.
func (s *Scheduler[K]) loop() {
	timer := time.NewTimer(maxNap)
	defer timer.Stop()
	for {
		now := s.now()
		lost, due := s.collect(now)
		report(lost)
		s.dispatch(now, due)

		nap, ok := s.nap()
		if !ok {
			return
		}
		timer.Reset(nap)
		select {
		case <-timer.C:
		case <-s.wake:
		}
	}
}

// collect takes the lost and due entries at now from the queue. Of each entry the window is looked
// at first: a late loop must not renew a lost lease.
func (s *Scheduler[K]) collect(now time.Time) (lost []*Entry[K], due []attempt[K]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if parted(s.ordered, now) { // then the order of the queue no longer holds
		all := s.queue
		s.queue, s.ordered = all[:0], now
		for i, e := range all { // the queue grows anew in the same array, and never passes i
			e.index = i
			s.queue = append(s.queue, e)
			e.reorder(now)
		}
	}
	for len(s.queue) > 0 {
		e := s.queue[0]
		switch {
		case e.lapse(now):
			lost = append(lost, e)
		case e.due(now, len(due) > 0):
			due = append(due, e.begin(now))
			e.reorder(now)
		case e.at.After(now):
			return lost, due
		default: // too early: a clock was set back
			e.reorder(now)
		}
	}
	return lost, due
}

// dispatch starts the due attempts, in batches, the most urgent first; each batch has a goroutine
// that ends when RenewFunc returns. A batch shares the bound of its most urgent attempt, so an
// attempt with more than twice as much time starts the next batch: a short lease must not cut
// the attempt of a long lease.
func (s *Scheduler[K]) dispatch(now time.Time, due []attempt[K]) {
	slices.SortFunc(due, func(a, b attempt[K]) int { return cmp.Compare(a.bound, b.bound) })
	for len(due) > 0 {
		n := 1
		for n < min(len(due), batchSize) && due[n].bound <= 2*due[0].bound {
			n++
		}
		batch, deadline := due[:n], now.Add(due[0].bound)
		s.running.Go(func() { s.send(batch, deadline) })
		due = due[n:]
	}
}

// nap returns how long the loop may sleep, or false if it must end.
func (s *Scheduler[K]) nap() (time.Duration, bool) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 && (s.closed || now.Sub(s.used) >= linger) {
		s.on = false
		return 0, false
	}
	// A time once set is kept, even after the end of the entry: otherwise each of many short
	// holds, in a row, would wake the loop anew.
	if !s.wakeAt.After(now) {
		s.wakeAt = now.Add(maxNap)
	}
	if len(s.queue) > 0 {
		s.used = now
		if at := s.queue[0].at; at.Before(s.wakeAt) {
			s.wakeAt = at
		}
	}
	return s.wakeAt.Sub(now), true
}

// signal wakes the loop, or keeps the loop from falling asleep.
func (s *Scheduler[K]) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// report tells the holders of lost leases.
func report[K comparable](lost []*Entry[K]) {
	for _, e := range lost {
		e.report()
	}
}
