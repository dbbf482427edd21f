package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The processes of Kill: the holder of each lock in turn, those behind, and then
// one for each lock, which asks first and is killed.
const (
	holderProcess = iota
	behindProcess
	firstVictim
)

// settle is how long it takes until who has called Lock surely waits, and
// deathLimit until the server knows that the connections of a process are gone.
const (
	settle     = 150 * time.Millisecond
	deathLimit = 20 * time.Millisecond
	behindGap  = 10 * time.Millisecond // between the calls of those behind, who are to have an order
)

// Stages of a lock in Kill.
const (
	stageHeld   = 1 + iota // by the holder
	stageNext              // the victim waits
	stageBehind            // and so do the others
	stageKilled            // the victim is gone
)

// killScenario kills so many clients that are the next in line, one after the
// other, each with so many behind.
func killScenario(victims, behind int) Scenario {
	return Scenario{
		Name: "handoff-kill", About: fmt.Sprintf("the process that is the next in line is killed, %d clients are behind it", behind),
		Kind: Kill, Processes: firstVictim + victims, Goroutines: behind, Clients: behind, Keys: victims, Floor: 1, Span: time.Minute,
	}
}

// victims returns how many processes of a run do not end by themselves.
func (s Scenario) victims() int {
	if s.Kind == Kill {
		return s.Processes - firstVictim
	}
	return 0
}

// victim reports whether a process is killed.
func (s Scenario) victim(process int) bool { return s.Kind == Kill && process >= firstVictim }

func (w *worker) kill() play {
	var loads []*load
	part := func(ctx context.Context) { w.dieNext(ctx) }
	switch w.Process {
	case holderProcess:
		part = func(ctx context.Context) { loads = w.forEachLock(ctx, w.Scenario.Goroutines, (*load).holdForKill) }
	case behindProcess:
		part = func(ctx context.Context) {
			var wg sync.WaitGroup
			all := make([][]*load, w.Scenario.Goroutines)
			for i := range all {
				wg.Go(func() { all[i] = w.forEachLock(ctx, i, (*load).waitBehind) })
			}
			wg.Wait()
			for _, l := range all {
				loads = append(loads, l...)
			}
		}
	}
	return play{
		play: func() {
			ctx, cancel := context.WithDeadline(w.ctx, w.end)
			defer cancel()
			_ = sleep(ctx, w.begin)
			part(ctx)
		},
		finish: func(t *tally) {
			sum(t, loads)
			t.Timed = w.Process == behindProcess
			if !t.Timed {
				t.Taken = nil
			}
		},
	}
}

// forEachLock does one thing with each lock, one after the other, as a goroutine.
func (w *worker) forEachLock(ctx context.Context, goroutine int, do func(*load, context.Context, int) error) []*load {
	loads := w.newLoads(w.Scenario.Keys)
	for _, l := range loads {
		l.locker, l.id = w.locker(goroutine), w.id(goroutine)
		if err := do(l, ctx, goroutine); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			l.tally.fail(err)
		}
	}
	return loads
}

// holdForKill holds a lock until the victim is gone, and then until all behind it
// have had the lock.
func (l *load) holdForKill(ctx context.Context, behind int) error {
	held, unlock, err := l.locker.Lock(ctx, l.name)
	if err != nil {
		return err
	}
	l.w.region.enter(l.cell, l.id)
	l.cell.stage.Store(stageHeld)
	killed := l.reached(ctx, stageKilled)
	time.Sleep(deathLimit)
	l.w.region.exit(l.cell, l.id)
	l.cell.released.Store(clock())
	if err := errors.Join(killed, unlock(context.WithoutCancel(held))); err != nil {
		return err
	}
	return await(ctx, func() bool { return l.cell.behind.Load() == int64(behind) })
}

// reached waits until the lock has come to a stage.
func (l *load) reached(ctx context.Context, stage int64) error {
	return await(ctx, func() bool { return l.cell.stage.Load() >= stage })
}

// dieNext waits for the lock that is this process's, and kills the process.
func (w *worker) dieNext(ctx context.Context) {
	l := w.newLoads(w.Scenario.Keys)[w.Process-firstVictim]
	if l.reached(ctx, stageHeld) != nil {
		return
	}
	var waits sync.WaitGroup
	waits.Go(func() { _, _, _ = w.locker(0).Lock(ctx, l.name) })
	defer waits.Wait()
	time.Sleep(settle)
	if err := nextInLine(ctx, w.Servers[0], l.name); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) // the run has failed
	}
	l.cell.stage.Store(stageNext)
	if l.reached(ctx, stageBehind) != nil {
		return
	}
	l.cell.stage.Store(stageKilled)
	killSelf()
}

// nextInLine looks into the queue of a lock of this library, where there is one:
// nobody but the victim may stand there. What begins with "!" is no ticket.
func nextInLine(ctx context.Context, s Server, name string) error {
	rdb := redis.NewClient(s.Options())
	defer func() { _ = rdb.Close() }()
	queue, err := rdb.ZRange(ctx, "rlock_queue:{"+name+"}", 0, -1).Result()
	if err != nil {
		return err
	}
	tickets := slices.DeleteFunc(slices.Clone(queue), func(m string) bool { return strings.HasPrefix(m, "!") })
	if len(queue) > 0 && len(tickets) != 1 {
		return fmt.Errorf("the victim is not known to be the next in line: the queue is %q", queue)
	}
	return nil
}

// waitBehind calls Lock behind the victim, in the order of the goroutines. Its
// latency is counted from the release.
func (l *load) waitBehind(ctx context.Context, place int) error {
	if err := l.reached(ctx, stageNext); err != nil {
		return err
	}
	time.Sleep(time.Duration(place) * behindGap)
	if place == l.w.Scenario.Goroutines-1 {
		waiting := time.AfterFunc(settle, func() { l.cell.stage.CompareAndSwap(stageNext, stageBehind) })
		defer waiting.Stop()
	}
	held, unlock, err := l.locker.Lock(ctx, l.name)
	if released := l.cell.released.Load(); released != 0 {
		delay := time.Duration(clock() - released)
		record(l.latencies, delay)
		l.tally.Longest = delay
	}
	if err != nil {
		return err
	}
	before := l.w.region.enter(l.cell, l.id)
	l.taken++
	l.tally.Handoffs++
	if before>>32 != l.id>>32 {
		l.tally.Passed++
	}
	l.w.region.exit(l.cell, l.id)
	err = unlock(context.WithoutCancel(held))
	l.cell.behind.Add(1)
	return err
}
