// Package janitor releases in the background what callers have left on a server: a grant
// that arrived after its caller had gone, a release that got no answer.
package janitor

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/go-rlock/rlock/internal/request"
)

// Janitor does the jobs of a client. They wait in a heap for their time; those that are
// due are done at once, so that what sends them can put them into pipelines. While a
// server is silent, a few try; its first answer brings all the others.
//
// A job ends when the server has answered. That a lease is over does not end it: the request that
// left something may have reached a server that stands still, which executes it when it goes
// on, with a whole lease. Only a client that closes, and a server that refuses, are not waited for
// longer than that.
//
// Goroutines and memory are bounded. While maxReleases owners have something left on a server
// that should be gone by now, no request of a [request.Carrier] is sent there that may leave
// more: callers who come and go faster than a slow server answers would otherwise leave more
// than can be released. Of maxJobs owners at most something is known to be left; what is
// forgotten beyond that ends with its lease.
//
// Each server has its own jobs: one that is silent, a node of a cluster say, neither
// delays what was left on the others nor holds back who asks them.
type Janitor struct {
	Hosting

	mu    sync.Mutex               // guards what follows
	jobs  map[string]*job          // by owner; nil before the first
	parts map[request.Server]*part // those that have jobs; nil before the first
	busy  int                      // jobs that somebody does
	hasty bool                     // the client closes: nothing waits for its time
	alarm *time.Timer              // runs work; nil if nothing is left
}

const (
	maxReleases = 128     // under way at once, and due before callers' requests are held back
	maxProbes   = 16      // on a server that does not answer, and on each in any case
	maxJobs     = 1 << 14 // owners
	maxRetry    = 50 * time.Millisecond
	maxPrompt   = 600         // attempts in vain, of about half a minute, after which a server is asked by one at a time,
	slowRetry   = time.Second // and not before that
	minArrival  = time.Second // of a late request; the place in a queue that it takes may outlive a short lease
	maxArrival  = time.Minute // a lock of a long lease is not to be blocked for hours by who has not got it
)

// Hosting is what a [Janitor] needs of its client.
type Hosting struct {
	Begin, End func()                              // are called when there is something to wait for, and when there is not any more
	Classify   func(error) (request.Outcome, bool) // reads the error of a release
}

// Leftover is what an owner may have left on a server.
type Leftover struct {
	Owner   string                          // of one lock only: each acquisition has a new one
	Server  request.Server                  // one value for each, as far as is known: another may have taken over, to which Release goes then
	Lease   time.Duration                   // after which it has ended on its own
	Likely  bool                            // the server has said that it has something of the owner, or has not answered
	Release func(ctx context.Context) error // made once; answered also if there was nothing
}

// Sweep releases l soon; until is when its lease has ended at the latest. At least one attempt is
// made even after that, unless the client closes and the server is silent: somebody may have
// removed the TTL of the lock.
func (j *Janitor) Sweep(l Leftover, until time.Time) { j.put(l, time.Now(), until, false) }

// SweepAgain releases l after minArrival, and once a release was answered 1, 2, 4 … s after that,
// for the last time after the lease, or maxArrival if that is shorter. It is for an owner of which
// an attempt to acquire got no answer: that request may still be on its way, on a connection that
// delivers late what it has, and only a release after its arrival removes what it made. So that is
// nobody's for about as long as the request was late. A lock that is made after the last release
// ends with its lease, as nobody renews it.
func (j *Janitor) SweepAgain(l Leftover) {
	at := time.Now().Add(minArrival)
	j.put(l, at, at.Add(l.Lease), true)
}

// put adds a job. One owner has one, which is done at the earliest of the times that
// were asked for. What releases it is that of the first call. late says that a request may still
// arrive.
func (j *Janitor) put(l Leftover, at, until time.Time, late bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one := j.jobs[l.Owner]
	switch {
	case one == nil && len(j.jobs) >= maxJobs:
		return
	case one == nil:
		one = j.add(l)
		one.at = at
		heap.Push(&one.part.due, one)
	case one.index < 0:
		one.redo = one.redo || !late
	case at.Before(one.at):
		one.at = at
		heap.Fix(&one.part.due, one.index)
	}
	if late {
		one.late, one.answered = minArrival, time.Time{}
	}
	one.until, one.Likely = latest(one.until, until), one.Likely || l.Likely
	one.hurry(!one.at.After(time.Now()))
	j.arrange()
}

// Flush lets nothing wait for its time any more.
func (j *Janitor) Flush() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.hasty = true
	j.arrange()
}

// arrange has work done when something is due. Close waits while there are jobs. mu
// is held.
func (j *Janitor) arrange() {
	switch {
	case len(j.jobs) > 0 && j.alarm == nil:
		j.Begin()
		j.alarm = time.AfterFunc(j.pause(), j.work)
	case len(j.jobs) > 0:
		j.alarm.Reset(j.pause())
	case j.alarm != nil:
		j.alarm.Stop()
		j.alarm = nil
		j.End()
	}
}

// pause is how long nothing is to be done. mu is held.
func (j *Janitor) pause() time.Duration {
	least := time.Hour // the end of a job sets the alarm anew
	for _, p := range j.parts {
		least = min(least, j.pauseOn(p))
	}
	return least
}

// pauseOn is how long nothing is to be done on a server. mu is held.
func (j *Janitor) pauseOn(p *part) time.Duration {
	if len(p.due) == 0 || p.busy >= maxProbes && (p.trouble > 0 || j.busy >= maxReleases) || p.busy > 0 && p.trouble > maxPrompt {
		return time.Hour
	}
	first := p.due[0]
	at := first.at
	if j.hasty && !first.tried {
		at = time.Time{}
	}
	if p.trouble > 0 {
		at = latest(at, p.retry)
	}
	return max(time.Until(at), 0)
}
