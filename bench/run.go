package bench

import (
	"cmp"
	"context"
	"os"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Sample is the result of one run. Durations are in nanoseconds.
type Sample struct {
	Round    int           `json:"round"`
	Elapsed  time.Duration `json:"elapsed_ns"`
	Ops      int64         `json:"ops"`      // operations in all processes
	Handoffs int64         `json:"handoffs"` // acquisitions by another goroutine than the previous holder
	Passed   int64         `json:"passed"`   // hand-offs to another process
	Jain     float64       `json:"jain"`
	Least    int64         `json:"least"`      // smallest number of acquisitions of a goroutine
	Most     int64         `json:"most"`       // greatest number of acquisitions of a goroutine
	Longest  time.Duration `json:"longest_ns"` // longest wait for Lock
	Section  time.Duration `json:"section_ns"` // the intended length of each critical section
	Inside   time.Duration `json:"inside_ns"`  // total measured time in critical sections, if there are any
	Latency  Percentiles   `json:"latency"`    // corrected for coordinated omission, if the scenario is a loop
	Raw      Percentiles   `json:"raw"`
	Wakeups  Percentiles   `json:"wakeups"` // for Wide: time from the release to the acquisition by a waiter

	Counted     time.Duration    `json:"counted_ns"` // time between the two readings of the server's counters, to which the next fields refer
	Commands    int64            `json:"commands"`   // commands that the server has executed
	Scripts     int64            `json:"scripts"`    // commands that are calls of scripts
	Messages    int64            `json:"messages"`   // published messages, without Probes
	Probes      int64            `json:"probes"`     // messages with which clients have tested their connections
	Calls       map[string]int64 `json:"calls"`
	Reads       int64            `json:"reads"`    // reads from sockets by the server
	Bytes       int64            `json:"bytes"`    // bytes that the server has received and sent
	Received    int64            `json:"received"` // bytes that the server has received
	Stored      int64            `json:"stored"`   // additional bytes of memory of the server since before the run, including connections
	ServerCPU   time.Duration    `json:"server_cpu_ns"`
	ClientCPU   time.Duration    `json:"client_cpu_ns"`
	Allocs      uint64           `json:"allocs"`
	AllocBytes  uint64           `json:"alloc_bytes"`
	Locks       int              `json:"locks"`       // number of locks
	Clients     int              `json:"clients"`     // number of clients that contend or wait
	Goroutines  int              `json:"goroutines"`  // number of goroutines of the clients
	Connections int64            `json:"connections"` // number of connections of the clients
	Memory      int64            `json:"memory"`      // bytes for each additional idle waiter

	Violations int64  `json:"violations"` // violations of mutual exclusion
	Lost       int64  `json:"lost"`       // locks that were not held any more when they were unlocked
	Errors     int64  `json:"errors"`
	FirstErr   string `json:"first_err,omitempty"`

	Shares []Share `json:"shares,omitempty"` // one for each process, if all processes do the same

	latencies *hdr.Histogram // as in Latency
}

// run plays a scenario once. names begins the names of its locks, which nobody
// has used.
func (r *runner) run(ctx context.Context, s Scenario, contender Contender, names string) (*Sample, error) {
	path, err := newRegion(s.Keys)
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(path) }()
	region, err := openRegion(path)
	if err != nil {
		return nil, err
	}
	defer region.close()
	nodes := r.nodesOf(contender)
	if err := checkRoom(ctx, s, nodes); err != nil {
		return nil, err
	}
	servers, disconnect, err := route(s, nodes)
	if err != nil {
		return nil, err
	}
	defer disconnect()
	rest, err := readAll(ctx, nodes)
	if err != nil {
		return nil, err
	}
	crew, err := muster(ctx, job{
		Scenario: s, Contender: contender.Name, Servers: servers, Prefix: names, Region: path,
		Warmup: cmp.Or(s.Warmup, r.Warmup), Span: r.span(s),
	}, region)
	defer crew.dismiss()
	if err != nil {
		return nil, err
	}
	_ = os.Remove(path) // all have it: nothing is left should this process be killed
	m, err := crew.measure(nodes)
	if err != nil {
		return nil, err
	}
	tallies, err := crew.tallies()
	if err != nil {
		return nil, err
	}
	sample, err := summarize(s, m.window, tallies, m.after.since(m.before))
	if err != nil {
		return nil, err
	}
	sample.Stored = m.after.memory - rest.memory
	sample.Connections = m.after.connections
	for _, n := range nodes {
		sample.Connections -= n.connections
	}
	sample.Violations = region.violations.Load()
	return sample, nil
}

// nodesOf returns the servers that a contender uses.
func (r *runner) nodesOf(c Contender) []*node {
	if c.Quorum || r.Cluster != nil {
		return r.nodes
	}
	return r.nodes[:1]
}

// checkRoom refuses what the servers, or this machine, have no room for.
func checkRoom(ctx context.Context, s Scenario, nodes []*node) error {
	if !s.manyClients() {
		return nil
	}
	for _, n := range nodes {
		now, err := readCounters(ctx, n.rdb)
		if err != nil {
			return err
		}
		if err := s.room(now); err != nil {
			return err
		}
	}
	return nil
}

// route returns the servers as the workers are to reach them, and what ends that.
func route(s Scenario, nodes []*node) (servers []Server, disconnect func(), err error) {
	var proxies []*proxy
	disconnect = func() {
		for _, p := range proxies {
			p.close()
		}
	}
	for _, n := range nodes {
		server := n.server
		if s.RTT > 0 {
			p, err := newProxy(n.server, s.RTT)
			if err != nil {
				disconnect()
				return nil, nil, err
			}
			proxies = append(proxies, p)
			server = n.server.behind(p.addr())
		}
		if s.manyClients() {
			server.Pool = widePool
		}
		servers = append(servers, server)
	}
	return servers, disconnect, nil
}

// measurement is what the servers counted around the window.
type measurement struct {
	before, after counters
	window        time.Duration
}

// measure lets the workers go, and reads the counters at the edges of the window.
func (c *crew) measure(nodes []*node) (m measurement, err error) {
	start := clock() + int64(5*time.Millisecond)
	c.region.start.Store(start)
	begin := at(start).Add(c.job.Warmup)
	if err := sleep(c.ctx, begin); err != nil {
		return m, err
	}
	if m.before, err = readAll(c.ctx, nodes); err != nil {
		return m, c.why(err)
	}
	if m.window, err = c.waitForWindow(begin); err != nil {
		return m, err
	}
	if m.after, err = readAll(c.ctx, nodes); err != nil {
		return m, c.why(err)
	}
	return m, nil
}

// waitForWindow returns when the window is over, which for Kill is when all is
// done, with its length.
func (c *crew) waitForWindow(begin time.Time) (time.Duration, error) {
	end := begin.Add(c.job.Span)
	if c.job.Scenario.Kind != Kill {
		return c.job.Span, sleep(c.ctx, end)
	}
	limited, cancel := context.WithDeadline(c.ctx, end)
	defer cancel()
	if await(limited, func() bool { return c.region.done.Load() >= c.survivors() }) != nil && c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return min(time.Since(begin), c.job.Span), nil
}

// span is the length of the window.
func (r *runner) span(s Scenario) time.Duration {
	if s.Span > 0 {
		return s.Span
	}
	return r.Duration
}

func sleep(ctx context.Context, until time.Time) error {
	select {
	case <-time.After(time.Until(until)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
