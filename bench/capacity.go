package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNoCapacity: the report is not one of [CapacityScenarios].
var ErrNoCapacity = errors.New("bench: capacity cannot be calculated")

// Capacity: what the server needs for what this library does, in CPU, bytes and
// memory, and from that what so many servers can do. See [Report.WriteCapacity].

// CapacityScenarios are those that the calculation is made from.
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

// CapacityRest is how long servers have to be watched for what they need at rest.
const CapacityRest = 10 * time.Second

// need is what one of something needs of the server.
type need struct {
	what    string
	cpu     Spread // in seconds
	in, out Spread // bytes from and to clients
	memory  Spread // bytes; of what stays
	clients Spread // CPU of all clients, in seconds; of pairs
}

// over divides what the server has used in each sample of a scenario by how many it
// has counted, between the same readings, of what needs it: on a busy machine they are
// far from the edges of the window.
func (r *Report) over(scenario, what string, n func(*Sample) float64) need {
	c := need{what: what}
	var cpu, in, out, memory, clients []float64
	for _, s := range r.samples(scenario) {
		count := n(s)
		if count <= 0 {
			continue
		}
		cpu = append(cpu, s.ServerCPU.Seconds()/count)
		in = append(in, float64(s.Received)/count)
		out = append(out, float64(s.Bytes-s.Received)/count)
		memory = append(memory, float64(s.Stored))
		clients = append(clients, perOp(s, s.ClientCPU.Seconds()))
	}
	c.cpu, c.in, c.out, c.memory, c.clients = spread(cpu), spread(in), spread(out), spread(memory), spread(clients)
	return c
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
	renewal     need // its memory is that of a held lock
	waiting     need // of a client, for a second
	connections float64
	handovers   Spread // per second, of one lock
	rest        float64
}

// capacity fails if some of it was not measured.
func (r *Report) capacity() (capacity, error) {
	c := capacity{
		pairs: []need{
			r.over(pairApart, "pair of Lock and Unlock, 1 goroutine", grants),
			r.over(pairShared, "the same, 64 goroutines share pipelines", grants),
			r.over(pairCrowd, "the same, 256 goroutines", grants),
		},
		handover: r.over("wide-64", "hand-over of one lock, 64 clients", grants),
		renewal:  r.over("held-10000", "renewal; memory: of a held lock", renewals),
		waiting:  r.over("idle-wide-100", "client that waits, for a second", clientSeconds),
		rest:     r.Environment.Rest,
	}
	var rates []float64
	for _, s := range r.samples("wide-64") {
		rates = append(rates, perSecond(s, s.Handoffs))
	}
	c.handovers = spread(rates)
	for _, s := range r.samples("held-10000") {
		c.renewal.memory = c.renewal.memory.times(1 / float64(s.Locks))
		break
	}
	for _, s := range r.samples("idle-wide-100") {
		c.connections = float64(s.Connections) / float64(s.Clients)
		c.waiting.memory = c.waiting.memory.times(1 / float64(s.Clients))
		c.waiting.cpu = c.waiting.cpu.less(c.rest / float64(s.Clients))
		break
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

// less is no less than a thousandth of what it was: what is left is noise then.
func (s Spread) less(d float64) Spread {
	return Spread{max(s.Median-d, s.Median/1000), max(s.Min-d, s.Min/1000), max(s.Max-d, s.Max/1000)}
}
