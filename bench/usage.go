package bench

import (
	"runtime"
	"time"
)

// usage is what this process has used so far.
type usage struct {
	cpu           time.Duration
	allocs, bytes uint64
}

func startUsage() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{cpuTime(), m.Mallocs, m.TotalAlloc}
}

// stop returns what was used since. idle goroutines are not the contender's.
func (u usage) stop(idle int) *tally {
	goroutines := runtime.NumGoroutine() - idle
	now := startUsage()
	return &tally{
		CPU: now.cpu - u.cpu, Allocs: now.allocs - u.allocs, AllocBytes: now.bytes - u.bytes,
		Goroutines: max(goroutines, 0),
	}
}

// memory is what live objects and stacks take.
func memory() int64 {
	runtime.GC()
	runtime.GC() // what the first one finalised
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
