package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// hold is the first process of Idle and Held: it takes all locks.
func (w *worker) hold(ctx context.Context) (play, error) {
	unlocks := make([]func() error, w.Scenario.Keys)
	var next, failed atomic.Int64
	var once sync.Once
	var first error
	each := func(do func(i int) error) error {
		next.Store(0)
		var wg sync.WaitGroup
		for range w.Scenario.Goroutines {
			wg.Go(func() {
				for i := int(next.Add(1)) - 1; i < len(unlocks); i = int(next.Add(1)) - 1 {
					if err := do(i); err != nil {
						failed.Add(1)
						once.Do(func() { first = err })
					}
				}
			})
		}
		wg.Wait()
		return first
	}
	err := each(func(i int) error {
		name, cell := w.key(i)
		held, unlock, err := w.locker.Lock(ctx, name)
		if err != nil {
			return err
		}
		w.region.enter(cell, w.id(0))
		unlocks[i] = func() error {
			lost := context.Cause(held)
			w.region.exit(cell, w.id(0))
			if err := unlock(context.WithoutCancel(held)); err != nil {
				return err
			}
			return lost
		}
		return nil
	})
	return play{
		play: func() { time.Sleep(time.Until(w.end)) },
		finish: func(t *tally) {
			if err := each(func(i int) error { return unlocks[i]() }); err != nil {
				t.fail(err)
			}
			t.Lost = failed.Load()
		},
	}, err
}

// waitInVain is the second process of Idle.
func (w *worker) waitInVain() play {
	loads := w.newLoads(w.Scenario.Goroutines)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var used int64
	return play{
		load: len(loads),
		play: func() {
			before := memory()
			for _, l := range loads {
				wg.Go(func() {
					_, unlock, err := w.locker.Lock(ctx, l.name)
					switch {
					case err == nil:
						w.region.enter(l.cell, l.id) // a violation: it is held
						_ = unlock(context.Background())
					case ctx.Err() == nil:
						l.tally.fail(err)
					}
				})
			}
			time.Sleep(time.Until(w.end))
			used = memory() - before
		},
		finish: func(t *tally) {
			cancel()
			wg.Wait()
			sum(t, loads)
			t.Memory = used / int64(len(loads))
		},
	}
}

// probeEvery is short enough to meet what renewals hold up, and long enough to
// be no load.
const probeEvery = 2 * time.Millisecond

// probe is the second process of Held: it asks at fixed times, and counts from
// those.
func (w *worker) probe() play {
	l := w.newLoads(1)[0]
	return play{
		load: 1,
		play: func() {
			rdb := redis.NewClient(w.Server.Options())
			defer func() { _ = rdb.Close() }()
			for due := w.begin; due.Before(w.end); due = due.Add(probeEvery) {
				pause(time.Until(due))
				if err := rdb.Ping(context.Background()).Err(); err != nil {
					l.tally.fail(err)
				}
				record(l.latencies, time.Since(due))
				l.tally.Probes++
			}
		},
		finish: func(t *tally) {
			sum(t, []*load{l})
			t.Probes, t.Timed = l.tally.Probes, true
		},
	}
}
