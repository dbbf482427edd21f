package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// WorkerArg is the argument with which a program that runs benchmarks starts itself again as a worker. With
// this argument, the program must call [Work] and do nothing else.
const WorkerArg = "bench-worker"

// closeLimit bounds the end of a worker, leaveLimit that of one whose run is given
// up: what it has not released by then is free after its lease.
const (
	closeLimit = 10 * time.Second
	leaveLimit = 3 * time.Second
)

// job is what a worker has to do. It comes through standard input, where nobody
// else can read the password.
type job struct {
	Scenario  Scenario
	Contender string
	Servers   []Server
	Prefix    string // of the names of locks
	Region    string // file of the shared memory
	Process   int
	Warmup    time.Duration
	Span      time.Duration
}

// worker is one process of a run.
type worker struct {
	job
	ctx        context.Context // ends when the run is given up
	lockers    []Locker
	region     *region
	begin, end time.Time // the window
}

// tally is what a worker found, in the window unless said otherwise.
type tally struct {
	Taken     []int64       // acquisitions of each goroutine
	Handoffs  int64         // by another goroutine than before
	Passed    int64         // of them, by another process
	Inside    time.Duration // critical sections, where they have a length
	Longest   time.Duration // wait
	Latencies string        // encoded histogram
	Wakeups   string        // the same, of Wide
	Timed     bool          // Latencies and Longest count
	Beside    bool          // what is used, below, is not the contender's
	Probes    int64         // PINGs sent beside
	Published int64         // messages of the contender that no script sent: its probes
	Errors    int64         // at any time
	FirstErr  string
	Lost      int64 // locks that were not held at their Unlock

	CPU        time.Duration
	Allocs     uint64
	AllocBytes uint64
	Goroutines int   // beyond those of the load and of this program at rest, at the end
	Memory     int64 // Idle: heap and stacks that one more waiter takes
}

// Work runs a worker process. It reads its job from in, and writes the results to out. When in ends, because
// the parent process has exited or has given up, Work releases its locks and ends the process.
func Work(contenders []Contender, in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // a terminal sends it to all; the parent says what to do
	ctx, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	w := worker{ctx: ctx}
	decoder := json.NewDecoder(in)
	if err := decoder.Decode(&w.job); err != nil {
		return fmt.Errorf("bench: only a benchmark starts a worker: %w", err)
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, io.MultiReader(decoder.Buffered(), in))
		giveUp()
		time.Sleep(leaveLimit)
		os.Exit(1)
	}()
	t, err := w.run(append(contenders, floors(Wakeup, 2)...))
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(t)
}

func (w *worker) run(contenders []Contender) (*tally, error) {
	name := w.Contender
	if w.stranger() {
		name = plainName
	}
	i := slices.IndexFunc(contenders, func(c Contender) bool { return c.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("bench: no contender %q", name)
	}
	var err error
	if w.region, err = openRegion(w.Region); err != nil {
		return nil, err
	}
	defer w.region.close()
	before := runtime.NumGoroutine()
	for i, server := range w.Servers {
		w.Servers[i].From = w.from(server)
	}
	target := Target{
		Server: w.Servers[0], Servers: w.Servers, Lease: w.Scenario.lease(), Renew: w.Scenario.Kind == Held, published: new(atomic.Int64),
	}
	if err := w.open(contenders[i], target); err != nil {
		return nil, errors.Join(err, w.close())
	}
	p, err := w.prepare(w.ctx)
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	w.region.ready.Add(1)
	if err := await(w.ctx, func() bool { return w.region.start.Load() != 0 }); err != nil {
		p.finish(new(tally)) // lets go
		return nil, errors.Join(err, w.close())
	}
	w.begin = at(w.region.start.Load()).Add(w.Warmup)
	w.end = w.begin.Add(w.Span)

	usage, played := make(chan *tally, 1), make(chan struct{})
	go func() {
		time.Sleep(time.Until(w.begin))
		u, published := startUsage(), target.published.Load()
		select {
		case <-time.After(time.Until(w.end)):
		case <-played:
		}
		t := u.stop(before + p.load + 1)
		t.Published = target.published.Load() - published
		usage <- t
	}()
	p.play()
	close(played)
	t := <-usage
	w.region.done.Add(1)
	_ = await(w.ctx, func() bool { return w.region.leave.Load() != 0 })
	p.finish(t)
	t.Beside = w.beside()
	if err := w.close(); err != nil {
		t.fail(err)
	}
	return t, nil
}

// stranger reports whether this is the process that a Foreign scenario is about.
func (w *worker) stranger() bool {
	return w.Scenario.Kind == Foreign && w.Process == w.Scenario.Processes
}

// beside tells that what this process uses is not the contender's.
func (w *worker) beside() bool {
	return w.stranger() || w.Scenario.Kind == Idle && w.Process == 0 || w.Scenario.Kind == Held && w.Process == 1
}

// id names a goroutine of the run.
func (w *worker) id(goroutine int) int64 { return int64(w.Process)<<32 | int64(goroutine+1) }

// key returns the lock that belongs to a goroutine, by name and cell.
func (w *worker) key(goroutine int) (string, *cell) {
	i := goroutine
	if w.Scenario.Kind == Cycle { // a lock each, in all processes
		i += w.Process * w.Scenario.Goroutines
	}
	i %= w.Scenario.Keys
	cell := &w.region.cells[i]
	if w.Scenario.Shared {
		i = 0 // and every reader has a cell
	}
	return w.Prefix + strconv.Itoa(i), cell
}

// over reports whether the window has ended.
func (w *worker) over() bool { return w.ctx.Err() != nil || !time.Now().Before(w.end) }

func (t *tally) fail(err error) {
	t.Errors++
	if t.FirstErr == "" {
		t.FirstErr = err.Error()
	}
}
