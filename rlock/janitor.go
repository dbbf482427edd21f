package rlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// janitor releases what callers left behind: a grant that arrived after its
// caller had gone, a release that got no answer. One goroutine does it for all,
// however many there are while Redis is silent; it ends when nothing is left.
type janitor struct {
	client *Client

	mu      sync.Mutex // guards what follows
	jobs    []*job
	hasty   bool          // the client closes: nothing waits for its time
	running bool          // there is a goroutine
	wake    chan struct{} // capacity 1; tells it of a new job
}

// job is an owner to be released.
type job struct {
	grant *grant
	at    time.Time // not before
	until time.Time // then the lease has ended on its own
	tries int
}

const (
	maxSweeps  = 64              // releases under way at once
	sweepPause = 5 * time.Minute // of a janitor with no job; it has one whenever it pauses
)

// sweep releases g soon.
func (j *janitor) sweep(g *grant) { j.add(&job{grant: g, at: time.Now()}) }

// sweepAgain releases g after a third of its lease. It is for a grant of which
// an attempt to acquire got no answer: that request may still be on its way, and
// only a release after its arrival removes what it made. What arrives later
// still ends with its lease, as nobody renews it.
func (j *janitor) sweepAgain(g *grant) {
	j.add(&job{grant: g, at: time.Now().Add(g.lock.lease / 3)})
}

func (j *janitor) add(one *job) {
	one.until = one.at.Add(one.grant.lock.lease)
	j.mu.Lock()
	j.jobs = append(j.jobs, one)
	start := !j.running
	j.running = true
	j.mu.Unlock()
	if start {
		j.client.background(j.run)
		return
	}
	j.rouse()
}

// flush lets nothing wait for its time any more.
func (j *janitor) flush() {
	j.mu.Lock()
	j.hasty = true
	j.mu.Unlock()
	j.rouse()
}

func (j *janitor) rouse() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

func (j *janitor) run() {
	for {
		due, pause := j.due()
		var all sync.WaitGroup
		for _, one := range due {
			all.Go(func() { j.do(one) })
		}
		all.Wait()
		if len(due) > 0 {
			continue
		}
		if pause == 0 {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-j.wake:
		}
		timer.Stop()
	}
}

// due takes out what is to be done now. If that is nothing, it tells how long to
// pause, or 0 to end.
func (j *janitor) due() (due []*job, pause time.Duration) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	pause = sweepPause
	j.jobs = slices.DeleteFunc(j.jobs, func(one *job) bool {
		wait := one.at.Sub(now)
		if j.hasty && one.tries == 0 {
			wait = 0
		}
		switch {
		case wait > 0:
			pause = min(pause, wait)
			return false
		case len(due) == maxSweeps:
			return false
		}
		due = append(due, one)
		return true
	})
	if len(due) == 0 && len(j.jobs) == 0 {
		j.running, pause = false, 0
	}
	return due, pause
}

// do makes one attempt. Its answer says in any case that nothing is left; no
// answer puts the job back, unless its lease is over.
func (j *janitor) do(one *job) {
	l := one.grant.lock
	_, err := attempt(context.Background(), j.client, patience{attempt: l.bound()}, one.grant.release, nil)
	if o, final := classify(err); o == answered || final {
		return
	}
	one.at = time.Now().Add(backOff(one.tries))
	one.tries++
	if one.at.After(one.until) {
		return
	}
	j.mu.Lock()
	j.jobs = append(j.jobs, one)
	j.mu.Unlock()
}

// release is the request that ends the grant on the server.
func (g *grant) release(ctx context.Context) (lua.Released, error) {
	return g.lock.protocol.release(ctx, g.owner)
}
