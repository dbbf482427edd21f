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
// due are done at once, so that what sends them can put them into pipelines. While the
// server is silent, a few try; the first answer brings all the others.
//
// Goroutines and memory are bounded. While maxReleases owners have something left that
// should be gone by now, nothing is sent that may leave more: callers who come and go
// faster than a slow server answers would otherwise leave more than can be released. Of
// maxJobs owners at most something is known to be left; what is forgotten beyond that
// ends with its lease.
type Janitor struct {
	Hosting

	mu      sync.Mutex    // guards what follows
	jobs    map[name]*job // nil before the first
	due     schedule      // those of jobs that nobody does
	busy    int           // those that somebody does
	soon    int           // those that are not to wait
	held    bool          // callers' requests are held back
	hasty   bool          // the client closes: nothing waits for its time
	trouble int           // attempts without an answer since the newest answer
	retry   time.Time     // while there is trouble: not before
	alarm   *time.Timer   // runs work; nil if nothing is left
}

const (
	maxReleases = 128     // under way at once
	maxProbes   = 16      // while the server does not answer
	maxJobs     = 1 << 14 // owners
	maxRetry    = 50 * time.Millisecond
	minArrival  = time.Second // of a late request; the place in a queue that it takes may outlive a short lease
	maxArrival  = time.Minute // a lock of a long lease is not to be blocked for hours by who has not got it
)

// Hosting is what a [Janitor] needs of its client.
type Hosting struct {
	Begin, End func()                              // are called when there is something to wait for, and when there is not any more
	Hold       func(on bool)                       // keeps back requests that may leave more behind
	Classify   func(error) (request.Outcome, bool) // reads the error of a release
}

// Leftover is what an owner may have left on a server.
type Leftover struct {
	Owner   string
	Key     string                          // of the lock: that of a quorum lock and of its shares are different jobs
	Lease   time.Duration                   // after which it has ended on its own
	Likely  bool                            // the server has said that it has something of the owner, or has not answered
	Release func(ctx context.Context) error // made once; answered also if there was nothing
}

// name is that of a job.
type name struct{ key, owner string }

func (l Leftover) name() name { return name{l.Key, l.Owner} }

// job is an owner to be released.
type job struct {
	Leftover
	at      time.Time // not before
	until   time.Time // then the lease has ended on its own
	again   time.Time // if set, when to do it once more
	soon    bool      // it is not to wait
	tried   bool
	refused int // how often, by a server that has something of the owner
	place   int // in the schedule; -1 while it is done
}

// Sweep releases l soon; until is when its lease has ended at the latest. Unless the
// server is silent then, one attempt is made even after that: somebody may have removed
// the TTL of the lock.
func (j *Janitor) Sweep(l Leftover, until time.Time) { j.put(l, time.Now(), until) }

// SweepAgain releases l after a third of its lease, but after minArrival at the earliest
// and maxArrival at the latest. It is for an owner of which an attempt to acquire got no
// answer: that request may still be on its way, and only a release after its arrival removes
// what it made. A lock that is made later still ends with its lease, as nobody renews it.
func (j *Janitor) SweepAgain(l Leftover) {
	at := time.Now().Add(min(max(l.Lease/3, minArrival), maxArrival))
	j.put(l, at, at.Add(l.Lease))
}

// put adds a job. One owner of a lock has one, which is done at the earliest of the times that
// were asked for, and once more at the latest.
func (j *Janitor) put(l Leftover, at, until time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one := j.jobs[l.name()]
	switch {
	case one == nil && len(j.jobs) >= maxJobs:
		return
	case one == nil:
		if j.jobs == nil {
			j.jobs = make(map[name]*job)
		}
		one = &job{Leftover: l, at: at, until: until}
		j.jobs[l.name()] = one
		heap.Push(&j.due, one)
	case one.place < 0: // it may have been sent too early
		one.again = latest(one.again, at)
	case at.Before(one.at):
		one.again, one.at = latest(one.again, one.at), at
		heap.Fix(&j.due, one.place)
	case at.After(time.Now()):
		one.again = latest(one.again, at)
	}
	one.until, one.Likely = latest(one.until, until), one.Likely || l.Likely
	j.hurry(one, !one.at.After(time.Now()))
	j.arrange()
}

// hurry notes whether a job is to be done soon. mu is held.
func (j *Janitor) hurry(one *job, soon bool) {
	switch {
	case soon && !one.soon:
		j.soon++
	case !soon && one.soon:
		j.soon--
	}
	one.soon = soon
	if held := j.soon >= maxReleases || j.held && j.soon > maxReleases/2; held != j.held {
		j.held = held
		j.Hold(held)
	}
}

// drop forgets a job. mu is held.
func (j *Janitor) drop(one *job) {
	delete(j.jobs, one.name())
	j.hurry(one, false)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
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
	if j.busy >= j.width() || len(j.due) == 0 {
		return time.Hour // the end of a job rouses
	}
	first := j.due[0]
	at := first.at
	if j.hasty && !first.tried {
		at = time.Time{}
	}
	if j.trouble > 0 {
		at = latest(at, j.retry)
	}
	return max(time.Until(at), 0)
}

// width is how many releases may be under way. mu is held.
func (j *Janitor) width() int {
	if j.trouble > 0 {
		return maxProbes
	}
	return maxReleases
}

// work starts what is due.
func (j *Janitor) work() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.jobs) > 0 && j.pause() == 0 {
		one := heap.Pop(&j.due).(*job)
		if time.Now().After(one.until) && (one.tried || j.trouble > 0) {
			j.drop(one)
			continue
		}
		one.place = -1
		j.busy++
		j.Begin()
		go func() {
			defer j.End()
			j.do(one)
		}()
	}
	if j.alarm != nil {
		j.arrange()
	}
}

// do makes one attempt. Its answer says in any case that nothing is left; no
// answer puts the job back. So does a refusal, as of a user who has lost the right to
// the key and may get it back, if it is likely that something is left; but it does not
// count as one to be done soon, nor as trouble.
func (j *Janitor) do(one *job) {
	o, final := j.Classify(one.Release(context.Background()))
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	one.tried = true
	j.busy--
	if o == request.Answered || final {
		j.trouble = 0
	}
	switch {
	case o != request.Answered && final && one.Likely:
		one.at = now.Add(request.BackOff(one.refused))
		one.refused++
		heap.Push(&j.due, one)
		j.hurry(one, false)
	case o == request.Answered || final:
		if one.again.IsZero() {
			j.drop(one)
			break
		}
		one.at, one.again, one.tried = one.again, time.Time{}, false
		heap.Push(&j.due, one)
		j.hurry(one, !one.at.After(now))
	default:
		if !now.Before(j.retry) { // of several at once, one counts
			j.retry = now.Add(min(request.BackOff(j.trouble), maxRetry))
			j.trouble++
		}
		one.at = now
		heap.Push(&j.due, one)
	}
	j.arrange()
}

// schedule is a heap of jobs, the earliest first.
type schedule []*job

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(a, b int) bool { return s[a].at.Before(s[b].at) }
func (s schedule) Swap(a, b int) {
	s[a], s[b] = s[b], s[a]
	s[a].place, s[b].place = a, b
}

// Push and Pop make it a heap.Interface.

func (s *schedule) Push(one any) {
	one.(*job).place = len(*s)
	*s = append(*s, one.(*job))
}

func (s *schedule) Pop() any {
	last := len(*s) - 1
	one := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return one
}
