package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Sizes of the scenarios with many clients.
const (
	wideProcesses = 8
	widePool      = 2            // connections of a client for commands: one goroutine uses it
	wideSockets   = widePool + 2 // of a client at most: one more for pipelines, one for a subscription
	spareFiles    = 64           // of a process, for all else
	touchLimit    = time.Second
	crowdFrom     = 2000 // clients: from there on each process dials from an address of its own
	closers       = 16   // clients of a process that are closed at the same time
)

var (
	wideClients  = []int{4, 64, 256, 1024}
	wideSections = []time.Duration{0, time.Millisecond}
	crowdClients = []int{3000, 20_000}
)

// wideScenarios are one lock and more and more clients; and what their waiting
// costs.
func wideScenarios() (table []Scenario) {
	for _, n := range wideClients {
		for _, section := range wideSections {
			table = append(table, wideScenario(n, section))
		}
	}
	for _, n := range crowdClients {
		s := wideScenario(n, 0)
		s.Name, s.Span = fmt.Sprintf("crowd-%d", n), 30*time.Second
		table = append(table, s)
	}
	return append(
		table,
		killScenario(5, 3),
		Scenario{
			Name: "idle-wide-100", About: "100 clients wait 30 s for one lock, a goroutine each",
			Kind: Idle, Processes: 2, Goroutines: 100, Clients: 100, Keys: 1, Floor: 1, Lease: idleLease,
			Warmup: 4 * time.Second, Span: 30 * time.Second,
		},
	)
}

// wideScenario is so many clients over several processes. The window is long
// enough for each to have several turns, the time before it for all to have come:
// see [worker.stagger].
func wideScenario(clients int, section time.Duration) Scenario {
	processes := min(clients, wideProcesses)
	s := Scenario{
		Name: fmt.Sprintf("wide-%d", clients), About: fmt.Sprintf("%d clients in %d processes, one lock", clients, processes),
		Kind: Wide, Processes: processes, Goroutines: clients / processes, Clients: clients / processes, Keys: 1, Section: section, Floor: 1,
		Warmup: 500*time.Millisecond + time.Duration(clients)*5*time.Millisecond,
		Span:   max(2*time.Second, time.Duration(clients)*15*time.Millisecond),
	}
	if section > 0 {
		s.Name += "-" + strings.Replace(section.String(), "µ", "u", 1)
		s.About += fmt.Sprintf(", held for %v", section)
	}
	return s
}

// clientsOf returns how many clients a process of a run has.
func (s Scenario) clientsOf(process int) int {
	switch {
	case s.Kind == Idle && process == 0, s.Kind == Kill && process != behindProcess:
		return 1
	}
	return max(s.Clients, 1)
}

// clients returns how many clients wait or contend.
func (s Scenario) clients() int {
	switch s.Kind {
	case Idle, Kill:
		return max(s.Clients, 1)
	}
	return s.Processes * max(s.Clients, 1)
}

// manyClients tells that processes have several clients, which are small then, and
// have used their connections before the barrier.
func (s Scenario) manyClients() bool { return s.Kind == Wide || s.Clients > 0 }

// tail is how much longer than the window a loop lasts: with many clients, those
// that give up at its end would be counted as part of it.
func (w *worker) tail() time.Duration {
	if w.Scenario.Kind == Wide {
		return 200 * time.Millisecond
	}
	return 0
}

// stagger spreads the first cycles of many clients over a third of the time before
// the window, in turn over the processes: so the server is not asked for all
// subscriptions at once.
func (w *worker) stagger(goroutine int) {
	s := w.Scenario
	if s.Kind != Wide {
		return
	}
	place := goroutine*s.Processes + w.Process
	time.Sleep(w.Warmup / 3 * time.Duration(place) / time.Duration(s.Processes*s.Goroutines))
}

// locker is the client of a goroutine.
func (w *worker) locker(goroutine int) Locker { return w.lockers[goroutine%len(w.lockers)] }

// open makes the clients of this process, one after the other. Where there are
// many, each of them locks once: it has its connection then.
func (w *worker) open(contender Contender, target Target) error {
	for i := range w.Scenario.clientsOf(w.Process) {
		if w.ctx.Err() != nil { // with many clients this takes a while
			return w.ctx.Err()
		}
		l, err := contender.New(target)
		if err != nil {
			return err
		}
		w.lockers = append(w.lockers, l)
		if !w.Scenario.manyClients() {
			continue
		}
		if err := touch(l, fmt.Sprintf("%stouch:%d:%d", w.Prefix, w.Process, i)); err != nil {
			return fmt.Errorf("client %d of process %d: %w", i, w.Process, err)
		}
	}
	return nil
}

// from is the address that the clients of this process dial from; nil: any. From one address to one server
// there are 28,000 connections at most, and the kernel searches long for one of the last. Linux has a
// network of loopback addresses; Redis takes them with protected-mode no.
func (w *worker) from(server Server) net.IP {
	host, _, _ := net.SplitHostPort(server.Addr)
	if w.Scenario.clients() < crowdFrom || host != "127.0.0.1" || server.TLS || runtime.GOOS != "linux" {
		return nil
	}
	return net.IPv4(127, 0, 1, byte(w.Process+1))
}

// touch locks what nobody else wants. A client that gets it not in time stays as it
// is: some are so slow, or hang, and that is for the figures to show.
func touch(l Locker, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), touchLimit)
	defer cancel()
	held, unlock, err := l.Lock(ctx, name)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil
	case err != nil:
		return err
	}
	return unlock(context.WithoutCancel(held))
}

func (w *worker) close() error {
	errs := make([]error, len(w.lockers))
	places := make(chan struct{}, closers)
	var wg sync.WaitGroup
	for i, l := range w.lockers {
		places <- struct{}{}
		wg.Go(func() {
			errs[i] = l.Close()
			<-places
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// woken is how long ago the lock was released for an acquisition that has waited
// since before that; 0 for any other.
func (l *load) woken(began time.Time) time.Duration {
	if l.w.Scenario.Kind != Wide {
		return 0
	}
	released, now := l.cell.released.Load(), clock()
	if waiting := now - int64(time.Since(began)); released == 0 || released <= waiting {
		return 0
	}
	return time.Duration(now - released)
}

// releases notes when this goroutine is about to unlock.
func (l *load) releases() {
	if l.w.Scenario.Kind == Wide {
		l.cell.released.Store(clock())
	}
}

// room tells what is too small for the connections of a scenario with many
// clients: nil, if nothing is.
func (s Scenario) room(server counters) error {
	if !s.manyClients() {
		return nil
	}
	need := int64(s.clients() * wideSockets)
	if free := server.limit - server.connections; server.limit > 0 && free < need {
		return fmt.Errorf("bench: %s needs up to %d connections, and the server has room for %d: raise its maxclients, and the files it may open", s.Name, need, free)
	}
	files := int64(s.clientsOf(behindProcess)*wideSockets + spareFiles)
	if s.RTT > 0 {
		files = 2*need + spareFiles // of the proxy, in this process
	}
	if allowed := openFiles(); allowed < files {
		return fmt.Errorf("bench: %s needs up to %d open files in a process, and %d are allowed: see ulimit -n", s.Name, files, allowed)
	}
	return nil
}
