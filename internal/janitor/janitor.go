// Package janitor releases orphans in the background: a grant that arrived after the caller had
// gone, a release without an answer.
package janitor

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-rlock/rlock/internal/request"
)

// Janitor does the jobs of a client. The jobs of a server wait in a list that is sorted by time. An alarm for each
// server starts all due jobs at once, so that the sender can put the releases into pipelines. While a server is silent,
// a few jobs try. The first answer brings the rest.
//
// A job ends when the server has answered, not with the lease: the request of the orphan may have
// reached a stopped server, and the server executes the request on going on, with a whole lease.
// Only a closing client, and a refusing server, end a job with the lease.
//
// Goroutines and memory are bounded. While maxReleases orphans of a server are due, the
// [request.Carrier] sends no further request there with a possible orphan: callers coming and going
// faster than a slow server answers would leave more orphans than the server can release. The janitor
// knows maxJobs owners at most; an orphan beyond that ends with the lease.
//
// Each server has separate jobs: a silent node of a cluster neither delays the releases on another
// node, nor holds back the callers there.
type Janitor struct {
	Hosting

	mu    sync.Mutex               // guards what follows
	jobs  map[string]*job          // by owner; nil before the first
	parts map[request.Server]*part // servers with jobs; nil before the first
	busy  int                      // jobs under way
	hasty bool                     // the client closes: no job waits for its time
}

const (
	maxReleases = 128     // under way at once, and due before callers' requests are held back
	maxProbes   = 16      // on a silent server, and on each server in any case
	maxJobs     = 1 << 14 // owners
	maxRetry    = 50 * time.Millisecond
	maxPrompt   = 600         // attempts in vain, of about half a minute: then one attempt at a time asks the server,
	slowRetry   = time.Second // after such a pause
	minArrival  = time.Second // of a late request; the ticket of such a request may outlive a short lease
	maxArrival  = time.Minute // an orphan must not block a lock with a long lease for hours
)

// Hosting is what a [Janitor] needs of its client.
type Hosting struct {
	Begin, End func()                              // called at the beginning and the end of anything Close must wait for
	Classify   func(error) (request.Outcome, bool) // reads the error of a release
}

// Leftover is what an owner may have left on a server.
type Leftover struct {
	Owner   string                          // of one lock only: each acquisition has a new one
	Server  request.Server                  // the server as known today; after a failover, Release goes to the successor
	Lease   time.Duration                   // ends the orphan without a release
	Likely  bool                            // the server has confirmed an orphan, or has not answered
	Release func(ctx context.Context) error // makes one attempt; answered also if the server had nothing
}

// Sweep releases l soon; until is the latest end of the lease. The janitor makes at least one attempt
// even after until, unless the client closes and the server is silent: somebody may have removed the
// TTL of the lock.
func (j *Janitor) Sweep(l Leftover, until time.Time) { j.put(l, time.Now(), until, false) }

// SweepAgain releases l after minArrival, and 1, 2, 4 … s after the first answered release, for the
// last time after the lease, or after maxArrival if shorter. SweepAgain is for an attempt to acquire
// without an answer: the request may still arrive, from a slow connection, and only a release after
// the arrival frees the lock:
//
//	0 s    acquire a:1 goes out, and gets no answer
//	1 s    release a:1: not the owner
//	1.5 s  acquire a:1 arrives: a:1 is the owner, and nobody holds the lock
//	2 s    release a:1: the lock is free
//
// So the lock is blocked for about as long as the request was late. A grant after the last release
// ends with the lease, because no client renews the lease.
func (j *Janitor) SweepAgain(l Leftover) {
	at := time.Now().Add(minArrival)
	j.put(l, at, at.Add(l.Lease), true)
}

// put adds a job, or moves the owner's job to the earlier time. The Release of the first call counts.
// late means that a request may still arrive. Close waits while a server has jobs.
func (j *Janitor) put(l Leftover, at, until time.Time, late bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one := j.jobs[l.Owner]
	switch {
	case one == nil:
		if len(j.jobs) >= maxJobs {
			return
		}
		if j.jobs == nil {
			j.jobs, j.parts = make(map[string]*job), make(map[request.Server]*part)
		}
		p := j.parts[l.Server]
		if p == nil {
			j.Begin()
			begins := &part{server: l.Server}
			begins.alarm = time.AfterFunc(time.Hour, func() { j.work(begins) }) // any time: schedule sets it
			p, j.parts[l.Server] = begins, begins
		}
		one = &job{Leftover: l, part: p}
		j.jobs[l.Owner] = one
		one.schedule(at)
	case one.busy:
		one.redo = one.redo || !late
	case at.Before(one.at):
		i := slices.Index(one.part.due, one)
		one.part.due = slices.Delete(one.part.due, i, i+1)
		one.schedule(at)
	}
	if late {
		one.late, one.answered = minArrival, time.Time{}
	}
	if until.After(one.until) {
		one.until = until
	}
	one.Likely = one.Likely || l.Likely
	one.hurry(!one.at.After(time.Now()))
}

// Flush makes all jobs due, now and later.
func (j *Janitor) Flush() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.hasty = true
	for _, p := range j.parts {
		p.alarm.Reset(0)
	}
}
