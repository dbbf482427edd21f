package bench

import (
	"cmp"
	"context"
	"os"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Sample is what one run has measured. Durations are in nanoseconds.
type Sample struct {
	Round    int
	Elapsed  time.Duration
	Ops      int64 // in all processes
	Handoffs int64 // to another goroutine
	Passed   int64 // of them, to another process
	Jain     float64
	Longest  time.Duration // wait
	Section  time.Duration // how long each of them is inside
	Latency  Percentiles   // corrected for coordinated omission, where that applies
	Raw      Percentiles
	Wakeups  Percentiles // Wide: from the release to whoever has waited for it

	Counted     time.Duration // between the readings of the server's counters, for what follows
	Commands    int64         // executed by the server
	Scripts     int64         // of them, calls of scripts
	Messages    int64         // published, without Probes
	Probes      int64         // of connections, by the clients
	Calls       map[string]int64
	Reads       int64 // by the server, from sockets
	Bytes       int64 // from and to sockets
	Received    int64 // of them, by the server
	Stored      int64 // bytes of memory that the server needs more than before the run, connections included
	ServerCPU   time.Duration
	ClientCPU   time.Duration
	Allocs      uint64
	AllocBytes  uint64
	Locks       int   // that there are
	Clients     int   // that contend or wait
	Goroutines  int   // of the clients
	Connections int64 // of the clients
	Memory      int64 // bytes that one more idle waiter takes

	Violations int64 // of mutual exclusion
	Lost       int64 // locks that were not held any more when they were unlocked
	Errors     int64
	FirstErr   string `json:",omitempty"`

	Shares []Share `json:",omitempty"` // of the processes, where all do the same

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
		return m, err
	}
	if m.window, err = c.waitForWindow(begin); err != nil {
		return m, err
	}
	m.after, err = readAll(c.ctx, nodes)
	return m, err
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
