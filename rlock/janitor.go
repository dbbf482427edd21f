package rlock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// janitor releases what callers left behind: a grant that arrived after its
// caller had gone, a release that got no answer. One goroutine does it for all,
// however many there are while Redis is silent; it ends when nothing is left.
type janitor struct {
	client *Client

	mu      sync.Mutex    // guards what follows
	jobs    []*job        // to be done
	busy    int           // being done
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

const maxSweeps = 64 // releases under way at once

// sweep releases g soon.
func (j *janitor) sweep(g *grant) {
	j.put(&job{grant: g, at: time.Now(), until: g.expires()})
}

// sweepAgain releases g after a third of its lease. It is for a grant of which
// an attempt to acquire got no answer: that request may still be on its way, and
// only a release after its arrival removes what it made. What arrives later
// still ends with its lease, as nobody renews it.
func (j *janitor) sweepAgain(g *grant) {
	at := time.Now().Add(g.lock.lease / 3)
	j.put(&job{grant: g, at: at, until: at.Add(g.lock.lease)})
}

func (j *janitor) put(one *job) {
	j.mu.Lock()
	j.jobs = append(j.jobs, one)
	start := !j.running
	j.running = true
	j.mu.Unlock()
	if start {
		j.client.background(j.run)
	} else {
		j.rouse()
	}
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

// run does what is due, and ends when nothing is left.
func (j *janitor) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, pause, left := j.take()
		if !left {
			return
		}
		for _, one := range due {
			j.client.background(func() { j.do(one) })
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-j.wake:
		}
	}
}

// take takes out what is to be done now, and tells how long the rest may wait.
// left is false if there is nothing to do, now or later.
func (j *janitor) take() (due []*job, pause time.Duration, left bool) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	pause = time.Hour // every end of a job rouses
	j.jobs = slices.DeleteFunc(j.jobs, func(one *job) bool {
		switch wait := one.at.Sub(now); {
		case now.After(one.until):
			return true
		case wait > 0 && !(j.hasty && one.tries == 0):
			pause = min(pause, wait)
			return false
		case j.busy == maxSweeps:
			return false
		}
		j.busy++
		due = append(due, one)
		return true
	})
	j.running = len(j.jobs) > 0 || j.busy > 0
	return due, pause, j.running
}

// do makes one attempt. Its answer says in any case that nothing is left; no
// answer puts the job back.
func (j *janitor) do(one *job) {
	l := one.grant.lock
	_, err := attempt(context.Background(), l, l.bound(), nil, one.grant.requestRelease, nil)
	o, final := classify(err)
	j.mu.Lock()
	j.busy--
	if o != answered && !final {
		one.at = time.Now().Add(backOff(one.tries))
		one.tries++
		j.jobs = append(j.jobs, one)
	}
	j.mu.Unlock()
	j.rouse()
}
