package bench

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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
	Latency  Percentiles   // corrected for coordinated omission, where that applies
	Raw      Percentiles

	Counted     time.Duration // between the readings of the server's counters, for what follows
	Commands    int64         // executed by the server
	Scripts     int64         // of them, calls of scripts
	Reads       int64         // by the server, from sockets
	ServerCPU   time.Duration
	ClientCPU   time.Duration
	Allocs      uint64
	AllocBytes  uint64
	Locks       int   // that there are
	Goroutines  int   // of the clients
	Connections int64 // of the clients
	Memory      int64 // bytes that one more idle waiter takes

	Violations int64 // of mutual exclusion
	Lost       int64 // locks that were not held any more when they were unlocked
	Errors     int64
	FirstErr   string `json:",omitempty"`

	latencies *hdr.Histogram // as in Latency
}

// setupLimit bounds how long the workers of a run take to reach the barrier, and
// to leave.
const setupLimit = 30 * time.Second

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
	j := job{Scenario: s, Contender: contender.Name, Prefix: names, Region: path, Warmup: r.Warmup, Span: r.span(s)}
	nodes := r.nodes[:1]
	if contender.Quorum {
		nodes = r.nodes
	}
	for _, n := range nodes {
		server := n.server
		if s.RTT > 0 {
			p, err := newProxy(n.server, s.RTT)
			if err != nil {
				return nil, err
			}
			defer p.close()
			server = n.server.behind(p.addr())
		}
		j.Servers = append(j.Servers, server)
	}

	ctx, fail := context.WithCancelCause(ctx)
	var crew []*member
	defer func() {
		fail(nil) // kills whoever is still there
		for _, m := range crew {
			<-m.ended
		}
	}()
	for j.Process = range s.workers() {
		m, err := hire(ctx, j)
		if err != nil {
			return nil, err
		}
		crew = append(crew, m)
		go func() { // ends with the member
			if m.err = m.wait(); m.err != nil {
				fail(m.err) // or the others would wait at the barrier
			}
			close(m.ended)
		}()
	}
	within := func(what string, counter func() int64) error {
		limited, cancel := context.WithTimeoutCause(ctx, setupLimit, fmt.Errorf("bench: %s with %s: the workers do not %s", s.Name, j.Contender, what))
		defer cancel()
		return await(limited, func() bool { return counter() == int64(len(crew)) })
	}
	if err := within("get ready", region.ready.Load); err != nil {
		return nil, err
	}
	start := clock() + int64(5*time.Millisecond)
	region.start.Store(start)
	if err := sleep(ctx, at(start).Add(j.Warmup)); err != nil {
		return nil, err
	}
	before, err := readAll(ctx, nodes)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, at(start).Add(j.Warmup+j.Span)); err != nil {
		return nil, err
	}
	after, err := readAll(ctx, nodes)
	if err != nil {
		return nil, err
	}
	if err := within("finish", region.done.Load); err != nil {
		return nil, err
	}
	region.leave.Store(1)
	tallies := make([]*tally, len(crew))
	for i, m := range crew {
		select {
		case <-m.ended:
		case <-time.After(setupLimit):
			return nil, fmt.Errorf("bench: %s with %s: a worker does not end", s.Name, j.Contender)
		}
		if m.err != nil {
			return nil, m.err
		}
		if tallies[i], err = m.tally(); err != nil {
			return nil, err
		}
	}
	sample, err := summarize(s, j.Span, tallies, after.since(before))
	if err != nil {
		return nil, err
	}
	sample.Connections = after.connections
	for _, n := range nodes {
		sample.Connections -= n.connections
	}
	sample.Violations = region.violations.Load()
	return sample, nil
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

// member is a worker process, seen from outside.
type member struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	ended          chan struct{} // closed when err is set
	err            error
}

// hire starts this program again, as a worker. It is killed when ctx ends, and
// ends by itself when this process does.
func hire(ctx context.Context, j job) (*member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	m := &member{cmd: exec.CommandContext(ctx, self, WorkerArg), ended: make(chan struct{})}
	m.cmd.Stdout, m.cmd.Stderr = &m.stdout, &m.stderr
	stdin, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := stdin.Write(append(text, '\n')); err != nil {
		_ = m.cmd.Process.Kill()
		_ = m.wait()
		return nil, err
	}
	return m, nil
}

func (m *member) wait() error {
	err := m.cmd.Wait()
	if err != nil {
		err = fmt.Errorf("bench: worker: %w: %s", err, bytes.TrimSpace(m.stderr.Bytes()))
	}
	return err
}

func (m *member) tally() (*tally, error) {
	t := new(tally)
	return t, json.Unmarshal(m.stdout.Bytes(), t)
}

func summarize(s Scenario, span time.Duration, tallies []*tally, used counters) (*Sample, error) {
	raw := newHistogram()
	sample := &Sample{
		Elapsed: span, Locks: s.Keys, Counted: used.elapsed, Commands: used.commands(), Scripts: used.scripts(), Reads: used.reads, ServerCPU: used.cpu,
	}
	var taken []int64
	timed := 0 // goroutines
	for i, t := range tallies {
		if t.Timed {
			encoded, err := base64.StdEncoding.DecodeString(t.Latencies)
			if err != nil {
				return nil, err
			}
			h, err := hdr.Decode(encoded)
			if err != nil {
				return nil, err
			}
			raw.Merge(h)
			timed += len(t.Taken)
			sample.Longest = max(sample.Longest, t.Longest)
		}
		if s.Kind != Foreign || i < s.Processes {
			taken = append(taken, t.Taken...)
		}
		for _, n := range t.Taken {
			sample.Ops += n
		}
		sample.Handoffs += t.Handoffs
		sample.Passed += t.Passed
		sample.Lost += t.Lost
		sample.Errors += t.Errors
		if sample.FirstErr == "" {
			sample.FirstErr = t.FirstErr
		}
		sample.Reads -= t.Probes
		sample.Commands -= t.Probes
		if t.Beside {
			continue
		}
		sample.ClientCPU += t.CPU
		sample.Allocs += t.Allocs
		sample.AllocBytes += t.AllocBytes
		sample.Goroutines += t.Goroutines
		sample.Memory += t.Memory
	}
	sample.Jain = jain(taken)
	sample.Raw = percentiles(raw)
	sample.latencies = raw
	if s.corrected() && raw.TotalCount() > 0 {
		sample.latencies = corrected(raw, span*time.Duration(timed)/time.Duration(raw.TotalCount()))
	}
	sample.Latency = percentiles(sample.latencies)
	return sample, nil
}

// jain is Jain's index of fairness: 1 if all have the same, 1/n if one has all.
func jain(shares []int64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
