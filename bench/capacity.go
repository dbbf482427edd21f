package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNoCapacity means that the report does not contain the results of [CapacityScenarios].
var ErrNoCapacity = errors.New("bench: capacity cannot be calculated")

// Capacity: what the server needs for what this library does, in CPU, bytes and
// memory, and from that what so many servers can do. See [Report.WriteCapacity].

// CapacityScenarios returns the scenarios from whose results [Report.WriteCapacity] computes its estimates.
func CapacityScenarios() []Scenario {
	chosen, err := Select(Scenarios(), []string{pairApart, pairShared, pairCrowd, "wide-64", "idle-wide-100", "held-10000"})
	if err != nil {
		panic(err) // they are in the table
	}
	return chosen
}

const (
	pairApart  = "uncontended-1"
	pairShared = "uncontended-64"
	pairCrowd  = "uncontended-256"
)

// rest returns which part of a core the servers need when nobody asks.
func (r *runner) rest(ctx context.Context) (float64, error) {
	if r.Rest == 0 {
		return 0, nil
	}
	before, err := readAll(ctx, r.nodes)
	if err != nil {
		return 0, err
	}
	if err := sleep(ctx, time.Now().Add(r.Rest)); err != nil {
		return 0, err
	}
	after, err := readAll(ctx, r.nodes)
	used := after.since(before)
	return used.cpu.Seconds() / max(used.elapsed.Seconds(), r.Rest.Seconds()), err
}

// CapacityRest is how long Rest in [Config] must be at least, so that [Report.WriteCapacity] knows what the
// servers need when there are no requests.
const CapacityRest = 10 * time.Second

// need is what one of something needs of the server.
type need struct {
	what    string
	cpu     Spread // in seconds
	in, out Spread // bytes from and to clients
	memory  Spread // bytes; of a lock that is held, or a client that waits
	clients Spread // CPU of all clients, in seconds; of pairs
}

// over divides what the server has used in each sample of a scenario by how many it
// has counted, between the same readings, of what needs it: on a busy machine they are
// far from the edges of the window. rest is the part of a core that it needs anyway.
func (r *Report) over(scenario, what string, n func(*Sample) float64, rest float64) need {
	each := func(used func(*Sample) float64) Spread {
		return r.spreadOf(scenario, func(s *Sample) float64 { return used(s) / max(n(s), 1) })
	}
	return need{
		what:    what,
		cpu:     each(func(s *Sample) float64 { return s.ServerCPU.Seconds() - rest*s.Counted.Seconds() }),
		in:      each(func(s *Sample) float64 { return float64(s.Received) }),
		out:     each(func(s *Sample) float64 { return float64(s.Bytes - s.Received) }),
		memory:  r.spreadOf(scenario, func(s *Sample) float64 { return float64(s.Stored) / float64(max(s.Locks, s.Clients, 1)) }),
		clients: r.spreadOf(scenario, clientCPU).times(1e-9),
	}
}

func (r *Report) spreadOf(scenario string, value func(*Sample) float64) Spread {
	var values []float64
	for _, s := range r.samples(scenario) {
		values = append(values, value(s))
	}
	return spread(values)
}

// samples are those of this library's lock.
func (r *Report) samples(scenario string) []*Sample {
	for _, result := range r.Results {
		if result.Scenario.Name == scenario {
			if row := result.row(rlockName); row != nil {
				return row.Samples
			}
		}
	}
	return nil
}

// grants are counted by the command that writes the owner, renewals by their scripts.
func grants(s *Sample) float64   { return float64(s.Calls["hset"]) }
func renewals(s *Sample) float64 { return float64(s.Scripts) }

// renewEvery is how often the default lease is renewed.
const renewEvery = defaultLease / 3

func clientSeconds(s *Sample) float64 { return float64(s.Clients) * s.Counted.Seconds() }

// capacity is all that the calculation needs.
type capacity struct {
	pairs       []need // each request by itself, and sharing pipelines
	handover    need
	renewal     need   // its memory is that of a held lock
	waiting     need   // of a client, for a second
	connections Spread // of a client that waits
	handovers   Spread // per second, of one lock
	rest        float64
	cluster     bool // it was measured on one
}

// capacity fails if some of it was not measured.
func (r *Report) capacity() (capacity, error) {
	c := capacity{
		pairs: []need{
			r.over(pairApart, "pair of Lock and Unlock, 1 goroutine", grants, 0),
			r.over(pairShared, "the same, 64 goroutines share pipelines", grants, 0),
			r.over(pairCrowd, "the same, 256 goroutines", grants, 0),
		},
		handover: r.over("wide-64", "hand-off of one lock, 64 clients", grants, 0),
		renewal:  r.over("held-10000", "renewal; memory: of a held lock", renewals, 0),
		waiting:  r.over("idle-wide-100", "client that waits, for a second", clientSeconds, r.Environment.Rest),
		rest:     r.Environment.Rest,
		cluster:  r.Environment.Cluster,

		connections: r.spreadOf("idle-wide-100", func(s *Sample) float64 { return float64(s.Connections) / float64(s.Clients) }),
		handovers:   r.spreadOf("wide-64", func(s *Sample) float64 { return perSecond(s, s.Handoffs) }),
	}
	for _, one := range c.all() {
		if one.cpu.Median <= 0 {
			return c, fmt.Errorf("%w: no CPU time of the server for %q: was it measured, and in a time long enough?", ErrNoCapacity, one.what)
		}
	}
	return c, nil
}

func (c capacity) all() []need {
	return append(slices.Clone(c.pairs), c.handover, c.renewal, c.waiting)
}

func (s Spread) times(f float64) Spread { return Spread{s.Median * f, s.Min * f, s.Max * f} }
