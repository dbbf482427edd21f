package bench

import (
	"slices"
	"time"
)

// metric is a number that a run has. floor is what a floor has in its place, for
// a ratio; nil: a ratio makes no sense.
type metric struct {
	name   string
	head   string // in a table
	format func(float64) string
	value  func(*Sample) float64
	floor  func(*Sample) float64
	lacks  func(*Sample) bool // there is no such number
	worst  bool               // what stands for all rounds is not their median, but the greatest
}

var metrics = []metric{
	{name: "ops/s", head: "ops/s", format: count, value: opsPerSecond, floor: opsPerSecond},
	{name: "handoffs/s", head: "handoffs/s", format: count, value: func(s *Sample) float64 { return perSecond(s, s.Handoffs) }, floor: opsPerSecond},
	{name: "passed/s", head: "to others/s", format: count, value: func(s *Sample) float64 { return perSecond(s, s.Passed) }, floor: opsPerSecond},
	{name: "jain", head: "Jain", format: fraction, value: func(s *Sample) float64 { return s.Jain }},
	{name: "least/most", head: "least/most", format: fraction, value: func(s *Sample) float64 { return float64(s.Least) / max(float64(s.Most), 1) }},
	{name: "longest", head: "longest", format: duration, value: func(s *Sample) float64 { return float64(s.Longest) }, worst: true},
	{name: "share", head: "of sections", format: fraction, value: shareOfSections, lacks: func(s *Sample) bool { return s.Section == 0 }},
	{name: "scripts/handoff", head: "scripts", format: fraction, value: func(s *Sample) float64 { return perHandoff(s, s.counted(s.Scripts)) }},
	{name: "messages/handoff", head: "messages", format: fraction, value: func(s *Sample) float64 { return perHandoff(s, s.counted(s.Messages)) }},
	{name: "requests/handoff", head: "requests", format: fraction, value: func(s *Sample) float64 { return perHandoff(s, max(s.counted(s.Reads-s.Probes), 0)) }},
	{
		name: "server CPU/handoff", head: "srv CPU", format: duration, floor: serverCPU,
		value: func(s *Sample) float64 { return perHandoff(s, s.counted(int64(s.ServerCPU))) },
	},
	{
		name: "net/handoff", head: "net bytes", format: count,
		value: func(s *Sample) float64 { return perHandoff(s, s.counted(s.Bytes)) },
		floor: func(s *Sample) float64 { return perOp(s, s.counted(s.Bytes)) },
	},
	{
		name: "wakeup p50", head: "wake-up", format: duration, floor: func(s *Sample) float64 { return float64(s.Latency.P50) },
		value: func(s *Sample) float64 { return float64(s.Wakeups.P50) },
	},
	{name: "wakeup p99", head: "its p99", format: duration, value: func(s *Sample) float64 { return float64(s.Wakeups.P99) }},
	{name: "wakeup max", head: "its max", format: duration, value: func(s *Sample) float64 { return float64(s.Wakeups.Max) }, worst: true},
	{name: "probes/s each", head: "probes/s each", format: fraction, value: func(s *Sample) float64 { return perClient(s, s.counted(s.Probes)) }},
	{name: "others/s each", head: "others/s each", format: fraction, value: func(s *Sample) float64 { return perClient(s, max(s.counted(s.Reads-s.Probes), 0)) }},
	latency("p50", func(p Percentiles) time.Duration { return p.P50 }),
	latency("p90", func(p Percentiles) time.Duration { return p.P90 }),
	latency("p99", func(p Percentiles) time.Duration { return p.P99 }),
	latency("p99.9", func(p Percentiles) time.Duration { return p.P999 }),
	latency("max", func(p Percentiles) time.Duration { return p.Max }),
	{name: "commands/op", head: "cmds/op", format: count, value: func(s *Sample) float64 { return perOp(s, s.counted(s.Commands)) }},
	{name: "commands/s", head: "cmds/s", format: fraction, value: func(s *Sample) float64 { return s.counted(s.Commands) / s.Elapsed.Seconds() }},
	{name: "reads/op", head: "reads/op", format: count, value: func(s *Sample) float64 { return perOp(s, s.counted(s.Reads)) }},
	{name: "reads/s", head: "reads/s", format: fraction, value: func(s *Sample) float64 { return s.counted(s.Reads) / s.Elapsed.Seconds() }},
	{name: "reads/100 scripts", head: "reads/100", format: fraction, value: readsPer100Scripts},
	{name: "scripts/op", head: "scripts/op", format: fraction, value: func(s *Sample) float64 { return perOp(s, s.counted(s.Scripts)) }},
	{name: "scripts/s", head: "scripts/s", format: count, value: func(s *Sample) float64 { return s.counted(s.Scripts) / s.Elapsed.Seconds() }},
	{name: "server CPU/op", head: "srv CPU", format: duration, value: serverCPU, floor: serverCPU},
	{name: "server CPU %", head: "srv CPU %", format: fraction, value: func(s *Sample) float64 { return 100 * s.counted(int64(s.ServerCPU)) / float64(s.Elapsed) }},
	{name: "client CPU/op", head: "own CPU", format: duration, value: clientCPU, floor: clientCPU},
	{name: "client CPU %", head: "own CPU %", format: fraction, value: func(s *Sample) float64 { return 100 * float64(s.ClientCPU) / float64(s.Elapsed) }},
	{name: "allocs/op", head: "allocs", format: count, value: func(s *Sample) float64 { return perOp(s, float64(s.Allocs)) }},
	{name: "bytes/op", head: "bytes", format: count, value: func(s *Sample) float64 { return perOp(s, float64(s.AllocBytes)) }},
	{name: "goroutines", head: "gor.", format: count, value: func(s *Sample) float64 { return float64(s.Goroutines) }},
	{name: "goroutines/lock", head: "gor./lock", format: fraction, value: func(s *Sample) float64 { return float64(s.Goroutines) / max(float64(s.Locks), 1) }},
	{name: "connections", head: "conns", format: count, value: func(s *Sample) float64 { return float64(s.Connections) }},
	{name: "memory", head: "bytes/waiter", format: count, value: func(s *Sample) float64 { return float64(s.Memory) }, lacks: func(s *Sample) bool { return s.Memory == 0 }},
	{name: "lost", head: "lost", format: count, value: func(s *Sample) float64 { return float64(s.Lost) }, worst: true},
	{name: "violations", head: "violations", format: count, value: func(s *Sample) float64 { return float64(s.Violations) }, worst: true},
	{name: "errors", head: "errors", format: count, value: func(s *Sample) float64 { return float64(s.Errors) }, worst: true},
}

// metricOf returns the metric of that name, which there is.
func metricOf(name string) metric {
	i := slices.IndexFunc(metrics, func(m metric) bool { return m.name == name })
	return metrics[i]
}

func latency(name string, of func(Percentiles) time.Duration) metric {
	value := func(s *Sample) float64 { return float64(of(s.Latency)) }
	return metric{name: name, head: name, format: duration, value: value, floor: value}
}

// counted is what the server's counter of n would be for the window: they are read
// near its edges, when this process gets to it.
func (s *Sample) counted(n int64) float64 {
	if s.Counted <= 0 {
		return float64(n)
	}
	return float64(n) * float64(s.Elapsed) / float64(s.Counted)
}

func perSecond(s *Sample, n int64) float64 { return float64(n) / s.Elapsed.Seconds() }

// perOp is zero where there were no operations.
func perOp(s *Sample, total float64) float64 {
	if s.Ops == 0 {
		return 0
	}
	return total / float64(s.Ops)
}

// perHandoff is zero where there were no hand-offs.
func perHandoff(s *Sample, total float64) float64 {
	if s.Handoffs == 0 {
		return 0
	}
	return total / float64(s.Handoffs)
}

// perClient is a rate.
func perClient(s *Sample, total float64) float64 {
	return total / s.Elapsed.Seconds() / float64(max(s.Clients, 1))
}

// shareOfSections is how much of the time somebody was inside, as measured: where sleeps
// end late, sections are longer than the scenario says. 1 is what critical sections without
// anything between them would allow.
func shareOfSections(s *Sample) float64 { return float64(s.Inside) / float64(s.Elapsed) }

// readsPer100Scripts is zero where there were no scripts.
func readsPer100Scripts(s *Sample) float64 {
	if s.Scripts == 0 {
		return 0
	}
	return 100 * float64(s.Reads) / float64(s.Scripts)
}

func opsPerSecond(s *Sample) float64 { return perSecond(s, s.Ops) }
func serverCPU(s *Sample) float64    { return perOp(s, s.counted(int64(s.ServerCPU))) }
func clientCPU(s *Sample) float64    { return perOp(s, float64(s.ClientCPU)) }
