package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// failures are those of many goroutines.
type failures struct {
	mu    sync.Mutex
	n     int64
	first error
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	if f.first == nil {
		f.first = err
	}
}

// hold is the first process of Idle and Held: it takes all locks.
func (w *worker) hold(ctx context.Context) (play, error) {
	unlocks := make([]func() error, w.Scenario.Keys)
	var next atomic.Int64
	var failures failures
	each := func(do func(i int) error) error {
		next.Store(0)
		var wg sync.WaitGroup
		for range w.Scenario.Goroutines {
			wg.Go(func() {
				for i := int(next.Add(1)) - 1; i < len(unlocks); i = int(next.Add(1)) - 1 {
					if err := do(i); err != nil {
						failures.add(err)
					}
				}
			})
		}
		wg.Wait()
		return failures.first
	}
	err := each(func(i int) error {
		name, cell := w.key(i)
		held, unlock, err := w.locker(0).Lock(ctx, name)
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
	if err != nil { // the run is given up
		_ = each(func(i int) error {
			if unlocks[i] == nil {
				return nil
			}
			return unlocks[i]()
		})
	}
	return play{
		play: func() { _ = sleep(w.ctx, w.end) },
		finish: func(t *tally) {
			if w.Scenario.Kind == Idle {
				_ = await(ctx, func() bool { return w.region.gone.Load() != 0 }) // they are to wait in vain
			}
			if err := each(func(i int) error { return unlocks[i]() }); err != nil {
				t.fail(err)
			}
			t.Lost = failures.n
		},
	}, err
}

// crowd is how many times the waiters of Idle there are in the end. What one of
// them takes is what more of them take, divided: without connections, and
// whatever else is there once.
const crowd = 10

// waitInVain is the second process of Idle.
func (w *worker) waitInVain() play {
	ctx, cancel := context.WithCancel(w.ctx)
	var wg sync.WaitGroup
	var failures failures
	wait := func(from, to int) {
		for i := from; i < to; i++ {
			name, cell := w.key(i)
			if i%10 == 0 { // in a burst most would meet the collector, and work for it on their stacks
				time.Sleep(time.Millisecond)
			}
			wg.Go(func() {
				_, unlock, err := w.locker(i).Lock(ctx, name)
				switch {
				case err == nil:
					w.region.enter(cell, w.id(i)) // a violation: it is held
					_ = unlock(context.Background())
				case ctx.Err() == nil:
					failures.add(err)
				}
			})
		}
	}
	n := w.Scenario.Goroutines
	return play{
		load: n,
		play: func() {
			wait(0, n)
			_ = sleep(w.ctx, w.end)
		},
		finish: func(t *tally) {
			if w.Scenario.Clients == 0 && w.ctx.Err() == nil { // or it would be the memory of clients
				few := settled()
				wait(n, crowd*n)
				t.Memory = (settled() - few) / int64((crowd-1)*n)
			}
			cancel()
			wg.Wait()
			w.region.gone.Store(1)
			if failures.n > 0 {
				t.Errors, t.FirstErr = failures.n, failures.first.Error()
			}
		},
	}
}

// settled returns the memory in use when it neither grows nor shrinks any more.
func settled() int64 {
	now := memory()
	for range 30 {
		time.Sleep(100 * time.Millisecond)
		before := now
		if now = memory(); max(now, before)-min(now, before) < before/200 {
			break
		}
	}
	return now
}

// probeEvery is short enough to meet what renewals hold up, and long enough to
// be no load.
const probeEvery = 5 * time.Millisecond

// What a probe sends and receives.
const (
	pingBytes = int64(len("*1\r\n$4\r\nping\r\n"))
	pongBytes = int64(len("+PONG\r\n"))
)

// leaveOutProbes takes from the server's time what the probe needs, which is what
// there is where nothing is held: the floor, the first row. Its bytes are known.
func leaveOutProbes(rows []Row) {
	for _, row := range rows[1:] {
		for i, s := range row.Samples {
			alone := rows[0].Samples[i]
			s.ServerCPU -= time.Duration(float64(alone.ServerCPU) * s.Elapsed.Seconds() / alone.Elapsed.Seconds())
			s.Bytes -= s.Calls["ping"] * (pingBytes + pongBytes)
			s.Received -= s.Calls["ping"] * pingBytes
		}
	}
}

// probe is the second process of Held: it asks at fixed times, and counts from
// those.
func (w *worker) probe() play {
	l := w.newLoads(1)[0]
	return play{
		load: 1,
		play: func() {
			rdb := w.Servers[0].dial()
			defer func() { _ = rdb.Close() }()
			for due := w.begin; due.Before(w.end) && w.ctx.Err() == nil; due = due.Add(probeEvery) {
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
