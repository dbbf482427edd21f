package redistest

import (
	"sync"
	"time"
)

const (
	stallTick = 10 * time.Millisecond
	stallMin  = 100 * time.Millisecond // less is no stall, but how a scheduler works
)

// Stalls measures for how long this process could not run although it wanted to. It is for
// bounds of real time that cannot be generous: they are extended by it.
type Stalls struct {
	stop, done chan struct{}

	mu    sync.Mutex
	last  time.Time
	total time.Duration
}

// WatchStalls begins to measure. The caller must call Stop.
func WatchStalls() *Stalls {
	s := &Stalls{stop: make(chan struct{}), done: make(chan struct{}), last: time.Now()}
	go s.watch()
	return s
}

func (s *Stalls) watch() {
	defer close(s.done)
	ticks := time.NewTicker(stallTick)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			s.Total()
		case <-s.stop:
			return
		}
	}
}

// Total returns the time since WatchStalls in which this process stood still, less what is
// shorter than a tenth of a second each.
func (s *Stalls) Total() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if late := now.Sub(s.last) - stallTick; late >= stallMin {
		s.total += late
	}
	s.last = now
	return s.total
}

// Stop ends the measurement.
func (s *Stalls) Stop() {
	close(s.stop)
	<-s.done
}
