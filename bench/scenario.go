package bench

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Scenario says what a run does. A worker process receives it as JSON.
type Scenario struct {
	Name       string        `json:"name"`
	About      string        `json:"about"`
	Kind       Kind          `json:"kind"`
	Processes  int           `json:"processes"`  // number of processes; for Foreign, without the additional process
	Goroutines int           `json:"goroutines"` // number of goroutines of each process
	Clients    int           `json:"clients"`    // number of clients of each process (for Idle, of each waiting process), among which its goroutines are divided; 0 means 1
	Keys       int           `json:"keys"`       // number of locks; if it is 1, all goroutines use this lock, otherwise each has its own
	Section    time.Duration `json:"section_ns"` // how long the lock is held in a cycle
	Paced      bool          `json:"paced"`      // cycles begin at random times, with the same mean interval as wake-ups
	Shared     bool          `json:"shared"`     // with a Shared contender, all goroutines use the first lock; with others, each has its own
	Recall     bool          `json:"recall"`     // for Wakeup: the holder has unlocked before and its client may keep the lock; the latency starts at the waiter's Lock
	Depth      int           `json:"depth"`      // number of nested Locks per cycle, including the outermost; 0 means 1
	Floor      int           `json:"floor"`      // number of goroutines that run the floor
	Lease      time.Duration `json:"lease_ns"`   // 0 means the default of this package
	Warmup     time.Duration `json:"warmup_ns"`  // time before the window; 0 means Warmup in Config
	Span       time.Duration `json:"span_ns"`    // length of the window, and for Kill its maximum; 0 means Duration in Config
	RTT        time.Duration `json:"rtt_ns"`     // round trip that a proxy adds
}

// Kind says what the goroutines of a scenario do.
type Kind string

// Kinds of scenarios.
const (
	Cycle   Kind = "cycle"   // lock and unlock; the latency is the time of both together
	Contend Kind = "contend" // lock and unlock; the latency is the time of the wait for Lock
	Wakeup  Kind = "wakeup"  // each lock has a holder and a waiter, which the holder's Unlock wakes
	Wide    Kind = "wide"    // as Contend, but each goroutine has a client of its own
	Kill    Kind = "kill"    // the first waiter in the queue is killed; the latency is the time from the release until another waiter holds the lock
	Foreign Kind = "foreign" // as Contend, with one additional process of one goroutine; only this goroutine is measured
	Idle    Kind = "idle"    // wait for locks that the first process holds all the time
	Held    Kind = "held"    // hold all locks, and do nothing else
)

const defaultLease = 30 * time.Second

// idleLease is so long that whoever holds a lock for Idle renews nothing while
// that is measured.
const idleLease = 10 * time.Minute

// long is the length of a window beyond which a scenario has to be asked for.
const long = 10 * time.Second

// slowRTT is the round trip of the scenarios behind a proxy, slowSuffix their
// mark.
const (
	slowRTT    = time.Millisecond
	slowSuffix = "@1ms"
)

// Scenarios returns the table of scenarios: first each scenario, and then each of them behind a round trip of 1
// ms.
func Scenarios() []Scenario {
	table := []Scenario{
		{Name: "uncontended-1", About: "1 goroutine, a free lock", Kind: Cycle, Processes: 1, Goroutines: 1, Keys: 1, Floor: 1},
		{Name: "uncontended-64", About: "64 goroutines, a lock each", Kind: Cycle, Processes: 1, Goroutines: 64, Keys: 64, Floor: 64},
		{Name: "uncontended-256", About: "256 goroutines, a lock each", Kind: Cycle, Processes: 1, Goroutines: 256, Keys: 256, Floor: 256},
		{Name: "readers-64", About: "64 readers of one lock, beside 64 goroutines with a lock each", Kind: Cycle, Processes: 1, Goroutines: 64, Keys: 64, Floor: 64, Shared: true},
	}
	for depth := 1; depth <= 8; depth++ {
		table = append(table, Scenario{
			Name: fmt.Sprintf("nested-%d", depth), About: fmt.Sprintf("1 goroutine locks a lock %d deep", depth),
			Kind: Cycle, Processes: 1, Goroutines: 1, Keys: 1, Depth: depth, Floor: 1,
		})
	}
	table = append(
		table,
		Scenario{Name: "wakeup-local", About: "from Unlock to the waiter's Lock, same process", Kind: Wakeup, Processes: 1, Goroutines: wakeupPairs, Keys: wakeupPairs, Floor: 1},
		Scenario{Name: "wakeup-remote", About: "from Unlock to the waiter's Lock, another process", Kind: Wakeup, Processes: 2, Goroutines: wakeupPairs, Keys: wakeupPairs, Floor: 1},
	)
	table = append(table, Scenario{
		Name: "recall", About: "from Lock to the lock, which another process has unlocked and may keep",
		Kind: Wakeup, Recall: true, Processes: 2, Goroutines: wakeupPairs, Keys: wakeupPairs, Floor: 1,
	})
	for _, n := range []int{2, 4, 8, 16, 32, 64, 256} {
		table = append(table, Scenario{
			Name: fmt.Sprintf("hot-%d", n), About: fmt.Sprintf("%d goroutines of 1 process, one lock", n),
			Kind: Contend, Processes: 1, Goroutines: n, Keys: 1, Floor: 1,
		})
	}
	for _, section := range []time.Duration{0, 200 * time.Microsecond, time.Millisecond} {
		s := Scenario{
			Name: "hot-8x8", About: "8 processes with 8 goroutines each, one lock",
			Kind: Contend, Processes: 8, Goroutines: 8, Keys: 1, Section: section, Floor: 1,
		}
		if section > 0 {
			s.Name = fmt.Sprintf("hot-8x8-%s", strings.Replace(section.String(), "µ", "u", 1))
			s.About += fmt.Sprintf(", held for %v", section)
		}
		table = append(table, s)
	}
	for _, n := range []int{1, 8} {
		table = append(table, Scenario{
			Name: fmt.Sprintf("foreign-%d", n), About: fmt.Sprintf("a plain pub/sub client beside %d hot processes", n),
			Kind: Foreign, Processes: n, Goroutines: 8, Keys: 1, Floor: 1,
		})
	}
	table = append(
		table,
		Scenario{Name: "idle-100", About: "100 goroutines wait 5 s for one lock", Kind: Idle, Processes: 2, Goroutines: 100, Keys: 1, Floor: 1, Lease: idleLease, Span: 5 * time.Second},
		Scenario{Name: "idle-100-locks", About: "100 goroutines wait 5 s for a lock each", Kind: Idle, Processes: 2, Goroutines: 100, Keys: 100 * crowd, Floor: 1, Lease: idleLease, Span: 5 * time.Second},
	)
	table = append(append(table, wideScenarios()...), quorumScenarios()...)
	for _, n := range []int{10_000, 100_000} {
		table = append(table, Scenario{
			Name: fmt.Sprintf("held-%d", n), About: fmt.Sprintf("%d locks held for a lease of 30 s: three periods of renewal", n),
			Kind: Held, Processes: 2, Goroutines: 64, Keys: n, Floor: 1, Span: defaultLease,
		})
	}
	for _, s := range table {
		s.Name, s.RTT = s.Name+slowSuffix, slowRTT
		s.About += ", 1 ms away"
		table = append(table, s)
	}
	return table
}

// Select returns the scenarios whose names match one of the patterns, in the order of the table. The patterns
// have the syntax of [path.Match]. A pattern without '@' selects no scenario behind a proxy. If there are no
// patterns, Select returns all scenarios that are not behind a proxy and do not take longer than 10 s. A
// pattern that selects nothing is an error.
func Select(table []Scenario, patterns []string) ([]Scenario, error) {
	chosen := make([]bool, len(table))
	if len(patterns) == 0 {
		for i, s := range table {
			chosen[i] = s.RTT == 0 && s.Span <= long
		}
	}
	for _, pattern := range patterns {
		found := false
		for i, s := range table {
			ok, err := path.Match(pattern, s.Name)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", pattern, err)
			}
			if ok && (s.RTT == 0 || strings.Contains(pattern, "@")) {
				found, chosen[i] = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("no scenario matches %q", pattern)
		}
	}
	var selected []Scenario
	for i, s := range table {
		if chosen[i] {
			selected = append(selected, s)
		}
	}
	return selected, nil
}

// suits reports whether a contender can take part.
func (s Scenario) suits(c Contender) bool {
	switch {
	case c.Kinds != nil && !slices.Contains(c.Kinds, s.Kind):
		return false
	case s.Shared:
		return c.Shared || c.Name == rlockName
	case c.Shared:
		return false
	case s.Depth > 1:
		return c.Reentrant
	case s.Kind == Foreign:
		return c.Redisson
	case s.Kind == Held:
		return c.Renews
	}
	return true
}

// corrected reports whether latencies need a correction for coordinated omission.
func (s Scenario) corrected() bool {
	return s.Kind == Cycle && !s.Paced || s.Kind == Contend || s.Kind == Wide || s.Kind == Foreign
}

// playedBy is the scenario as a contender plays it. A floor plays a loop of its
// goroutines, with a lock each, as far away; or Held, with nothing to renew.
func (s Scenario) playedBy(c Contender) Scenario {
	s.Shared = s.Shared && c.Shared
	switch {
	case !c.floor:
		return s
	case s.Kind == Held:
		s.Goroutines, s.Keys, s.Span = 1, 1, min(s.Span, 5*time.Second)
		return s
	case c.Name == pacedName:
		s.Floor = wakeupPairs
	}
	processes := 1
	if s.Kind == Cycle {
		processes = s.Processes
	}
	return Scenario{
		Name: s.Name, Kind: Cycle, Processes: processes, Goroutines: s.Floor, Keys: s.Floor * processes,
		Paced: c.Name == pacedName, RTT: s.RTT,
	}
}

// workers returns how many processes a run has.
func (s Scenario) workers() int {
	if s.Kind == Foreign {
		return s.Processes + 1
	}
	return s.Processes
}

func (s Scenario) lease() time.Duration {
	if s.Lease == 0 {
		return defaultLease
	}
	return s.Lease
}
