package bench

import "time"

// metric is a number that a run has. floor is what a floor has in its place, for
// a ratio; nil: a ratio makes no sense.
type metric struct {
	name  string
	value func(*Sample) float64
	floor func(*Sample) float64
}

var metrics = []metric{
	{"ops/s", opsPerSecond, opsPerSecond},
	{"handoffs/s", func(s *Sample) float64 { return perSecond(s, s.Handoffs) }, opsPerSecond},
	{"passed/s", func(s *Sample) float64 { return perSecond(s, s.Passed) }, opsPerSecond},
	{"jain", func(s *Sample) float64 { return s.Jain }, nil},
	{"longest", func(s *Sample) float64 { return float64(s.Longest) }, nil},
	{"p50", latency(func(p Percentiles) time.Duration { return p.P50 }), latency(func(p Percentiles) time.Duration { return p.P50 })},
	{"p90", latency(func(p Percentiles) time.Duration { return p.P90 }), latency(func(p Percentiles) time.Duration { return p.P90 })},
	{"p99", latency(func(p Percentiles) time.Duration { return p.P99 }), latency(func(p Percentiles) time.Duration { return p.P99 })},
	{"p99.9", latency(func(p Percentiles) time.Duration { return p.P999 }), latency(func(p Percentiles) time.Duration { return p.P999 })},
	{"max", latency(func(p Percentiles) time.Duration { return p.Max }), latency(func(p Percentiles) time.Duration { return p.Max })},
	{"commands/op", func(s *Sample) float64 { return perOp(s, float64(s.Commands)) }, nil},
	{"commands/s", func(s *Sample) float64 { return perSecond(s, s.Commands) }, nil},
	{"reads/op", func(s *Sample) float64 { return perOp(s, float64(s.Reads)) }, nil},
	{"reads/s", func(s *Sample) float64 { return perSecond(s, s.Reads) }, nil},
	{"reads/100 scripts", readsPer100Scripts, nil},
	{"scripts/op", func(s *Sample) float64 { return perOp(s, float64(s.Scripts)) }, nil},
	{"scripts/s", func(s *Sample) float64 { return perSecond(s, s.Scripts) }, nil},
	{"server CPU/op", serverCPU, serverCPU},
	{"server CPU %", func(s *Sample) float64 { return 100 * float64(s.ServerCPU) / float64(s.Elapsed) }, nil},
	{"client CPU/op", clientCPU, clientCPU},
	{"client CPU %", func(s *Sample) float64 { return 100 * float64(s.ClientCPU) / float64(s.Elapsed) }, nil},
	{"allocs/op", func(s *Sample) float64 { return perOp(s, float64(s.Allocs)) }, nil},
	{"bytes/op", func(s *Sample) float64 { return perOp(s, float64(s.AllocBytes)) }, nil},
	{"goroutines", func(s *Sample) float64 { return float64(s.Goroutines) }, nil},
	{"goroutines/lock", func(s *Sample) float64 { return float64(s.Goroutines) / max(float64(s.Locks), 1) }, nil},
	{"connections", func(s *Sample) float64 { return float64(s.Connections) }, nil},
	{"memory", func(s *Sample) float64 { return float64(s.Memory) }, nil},
	{"lost", func(s *Sample) float64 { return float64(s.Lost) }, nil},
	{"violations", func(s *Sample) float64 { return float64(s.Violations) }, nil},
	{"errors", func(s *Sample) float64 { return float64(s.Errors) }, nil},
}

func perSecond(s *Sample, n int64) float64 { return float64(n) / s.Elapsed.Seconds() }

// perOp is zero where there were no operations.
func perOp(s *Sample, total float64) float64 {
	if s.Ops == 0 {
		return 0
	}
	return total / float64(s.Ops)
}

// readsPer100Scripts is zero where there were no scripts.
func readsPer100Scripts(s *Sample) float64 {
	if s.Scripts == 0 {
		return 0
	}
	return 100 * float64(s.Reads) / float64(s.Scripts)
}

func opsPerSecond(s *Sample) float64 { return perSecond(s, s.Ops) }
func serverCPU(s *Sample) float64    { return perOp(s, float64(s.ServerCPU)) }
func clientCPU(s *Sample) float64    { return perOp(s, float64(s.ClientCPU)) }

func latency(of func(Percentiles) time.Duration) func(*Sample) float64 {
	return func(s *Sample) float64 { return float64(of(s.Latency)) }
}
