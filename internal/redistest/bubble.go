package redistest

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Bubble is synctest.Test, with a defect of the race detector kept away: that of Go 1.26
// crashes if two threads run timers of one bubble at once, which share a context of the
// detector there (golang.org/issue/78156). So while there is a bubble, a test binary with
// the detector runs on one processor. It finds the same races, as it looks at what orders
// two accesses, and not at whether they happen at once.
func Bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if RaceEnabled {
		bubbles.enter()
		defer bubbles.leave()
	}
	synctest.Test(t, f)
}

var bubbles processors

// processors is how many the process had before the first bubble.
type processors struct {
	mu      sync.Mutex // guards what follows
	bubbles int
	before  int
}

func (p *processors) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bubbles++; p.bubbles == 1 {
		p.before = runtime.GOMAXPROCS(1)
	}
}

func (p *processors) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bubbles--; p.bubbles == 0 {
		runtime.GOMAXPROCS(p.before)
	}
}
