package verify

import (
	"sync"
	"time"
)

// pulse notes when a process stood still: a timer that fires much too late. Nothing that it
// does can be expected meanwhile.
type pulse struct {
	end    chan struct{}
	done   sync.WaitGroup
	stalls []span
}

const (
	beat  = 10 * ms
	stall = 50 * ms // from one beat to the next
)

func newPulse() *pulse {
	p := &pulse{end: make(chan struct{})}
	p.done.Go(func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for last := now(); ; {
			select {
			case <-p.end:
				return
			case <-tick.C:
			}
			at := now()
			if at-last >= int64(stall) {
				p.stalls = append(p.stalls, span{last, at})
			}
			last = at
		}
	})
	return p
}

// stop returns the times.
func (p *pulse) stop() []span {
	close(p.end)
	p.done.Wait()
	return p.stalls
}
