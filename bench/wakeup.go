package bench

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// wakeupPairs are as many that each waits for long, and that few overlap.
const wakeupPairs = 8

// A holder holds for a random time. It begins when the waiter must be waiting, and
// is spread over 200 ms, or those that poll would be met at a time of our choice.
const (
	holdLeast  = 15 * time.Millisecond
	holdSpread = 200 * time.Millisecond
)

// wakeups plays the holders, or the waiters, or both.
func (w *worker) wakeups() play {
	var holders, waiters []*load
	if w.Process == 0 {
		holders = w.newLoads(w.Scenario.Goroutines)
	}
	if w.Process == w.Scenario.Processes-1 {
		waiters = w.newLoads(w.Scenario.Goroutines)
		for i, l := range waiters {
			l.id = w.id(w.Scenario.Goroutines + i)
		}
	}
	return play{
		load: len(holders) + len(waiters),
		play: func() {
			ctx, cancel := context.WithDeadline(w.ctx, w.end)
			defer cancel()
			var wg sync.WaitGroup
			for _, l := range holders {
				wg.Go(func() { l.repeat(ctx, l.holdOnce) })
			}
			for _, l := range waiters {
				wg.Go(func() { l.repeat(ctx, l.wakeOnce) })
			}
			wg.Wait()
		},
		finish: func(t *tally) {
			sum(t, append(holders, waiters...))
			t.Taken = t.Taken[len(holders):]
			t.Timed = len(waiters) > 0
		},
	}
}

func (l *load) repeat(ctx context.Context, once func(context.Context) error) {
	for !l.w.over() {
		if err := once(ctx); err != nil {
			if !l.w.over() {
				l.tally.fail(err)
			}
		}
	}
}

func (l *load) holdOnce(ctx context.Context) error {
	if l.w.Scenario.Recall {
		return l.keepOnce(ctx)
	}
	held, unlock, err := l.locker.Lock(ctx, l.name)
	if err != nil {
		return err
	}
	l.w.region.enter(l.cell, l.id)
	l.cell.released.Store(0)
	l.cell.held.Store(1)
	time.Sleep(holdLeast + rand.N(holdSpread))
	l.w.region.exit(l.cell, l.id)
	l.cell.released.Store(clock())
	if err := unlock(context.WithoutCancel(held)); err != nil {
		return err
	}
	return await(ctx, func() bool { return l.cell.held.Load() == 0 })
}

// keepOnce locks and unlocks for as long as holdOnce holds, so that a lock that its client
// keeps is kept in the end.
func (l *load) keepOnce(ctx context.Context) error {
	for end := time.Now().Add(holdLeast + rand.N(holdSpread)); time.Now().Before(end); time.Sleep(time.Millisecond) {
		held, unlock, err := l.locker.Lock(ctx, l.name)
		if err != nil {
			return err
		}
		l.w.region.enter(l.cell, l.id)
		l.w.region.exit(l.cell, l.id)
		if err := unlock(context.WithoutCancel(held)); err != nil {
			return err
		}
	}
	l.cell.held.Store(1)
	return await(ctx, func() bool { return l.cell.held.Load() == 0 })
}

func (l *load) wakeOnce(ctx context.Context) error {
	if err := await(ctx, func() bool { return l.cell.held.Load() == 1 }); err != nil {
		return err
	}
	if l.w.Scenario.Recall {
		l.cell.released.Store(clock())
	}
	held, unlock, err := l.locker.Lock(ctx, l.name)
	now := clock()
	if err != nil {
		if released := l.cell.released.Load(); released != 0 { // nobody woke it
			l.tally.Longest = max(l.tally.Longest, time.Duration(now-released))
		}
		return err
	}
	l.w.region.enter(l.cell, l.id)
	if latency := time.Duration(now - l.cell.released.Load()); time.Now().After(l.w.begin) && !l.w.over() {
		l.taken++
		l.tally.Handoffs++
		l.tally.Longest = max(l.tally.Longest, latency)
		record(l.latencies, latency)
	}
	l.w.region.exit(l.cell, l.id)
	err = unlock(context.WithoutCancel(held))
	l.cell.held.Store(0)
	return err
}
