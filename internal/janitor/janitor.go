// Package janitor releases in the background what callers have left on a server: a grant
// that arrived after its caller had gone, a release that got no answer.
package janitor

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/request"
)

// Janitor does the jobs of a client. They wait in a heap for their time; those that are
// due are done at once, so that what sends them can put them into pipelines. While a
// server is silent, a few try; its first answer brings all the others.
//
// Goroutines and memory are bounded. While maxReleases owners have something left on a
// server that should be gone by now, no request of a [request.Carrier] is sent there that may
// leave more: callers who
// come and go faster than a slow server answers would otherwise leave more than can be
// released. Of maxJobs owners at most something is known to be left; what is forgotten
// beyond that ends with its lease.
//
// Each server has its own jobs: one that is silent, a node of a cluster say, neither
// delays what was left on the others nor holds back who asks them.
type Janitor struct {
	Hosting

	mu    sync.Mutex               // guards what follows
	jobs  map[name]*job            // nil before the first
	parts map[request.Server]*part // those that have jobs; nil before the first
	busy  int                      // jobs that somebody does
	hasty bool                     // the client closes: nothing waits for its time
	alarm *time.Timer              // runs work; nil if nothing is left
}

// part is the jobs of one server. Janitor.mu guards it.
type part struct {
	server  request.Server
	jobs    int       // as many there are
	due     schedule  // those that nobody does
	busy    int       // those that somebody does
	soon    int       // those that are not to wait
	held    bool      // callers' requests are held back
	trouble int       // attempts without an answer since the newest answer
	retry   time.Time // while there is trouble: not before
}

const (
	maxReleases = 128     // under way at once, and due before callers' requests are held back
	maxProbes   = 16      // on a server that does not answer, and on each in any case
	maxJobs     = 1 << 14 // owners
	maxRetry    = 50 * time.Millisecond
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
	Owner   string
	Key     string                          // of the lock: that of a quorum lock and of its shares are different jobs
	Server  request.Server                  // one value for each, as far as is known: another may have taken over, to which Release goes then
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
	part    *part
	at      time.Time // not before
	until   time.Time // then the lease has ended on its own
	again   time.Time // if set, when to do it once more
	redo    bool      // release again as soon as the release under way is answered: that may have been executed too early
	soon    bool      // it is not to wait
	tried   bool
	refused int // how often, by a server that has something of the owner
	index   int // in the schedule; -1 while it is done
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
// were asked for, and once more at the latest. What releases it is that of the first call.
func (j *Janitor) put(l Leftover, at, until time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one := j.jobs[l.name()]
	switch {
	case one == nil && len(j.jobs) >= maxJobs:
		return
	case one == nil:
		one = j.add(l)
		one.at = at
		heap.Push(&one.part.due, one)
	case one.index < 0 && !at.After(time.Now()):
		one.redo = true
	case one.index < 0:
		one.again = latest(one.again, at)
	case at.Before(one.at):
		one.again, one.at = latest(one.again, one.at), at
		heap.Fix(&one.part.due, one.index)
	case at.After(latest(one.at, time.Now())):
		one.again = latest(one.again, at)
	}
	one.until, one.Likely = latest(one.until, until), one.Likely || l.Likely
	one.hurry(!one.at.After(time.Now()))
	j.arrange()
}

// add makes a job, which is not in a schedule yet. mu is held.
func (j *Janitor) add(l Leftover) *job {
	if j.jobs == nil {
		j.jobs, j.parts = make(map[name]*job), make(map[request.Server]*part)
	}
	p := j.parts[l.Server]
	if p == nil {
		p = &part{server: l.Server}
		j.parts[l.Server] = p
	}
	one := &job{Leftover: l, part: p}
	j.jobs[l.name()] = one
	p.jobs++
	return one
}

// hurry notes whether a job is to be done soon. mu is held.
func (one *job) hurry(soon bool) {
	p := one.part
	switch {
	case soon && !one.soon:
		p.soon++
	case !soon && one.soon:
		p.soon--
	}
	one.soon = soon
	if held := p.soon >= maxReleases || p.held && p.soon > maxReleases/2; held != p.held {
		p.held = held
		p.server.Hold(held)
	}
}

// drop forgets a job. mu is held.
func (j *Janitor) drop(one *job) {
	one.hurry(false)
	delete(j.jobs, one.name())
	if one.part.jobs--; one.part.jobs == 0 {
		delete(j.parts, one.part.server)
	}
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
	least := time.Hour // the end of a job sets the alarm anew
	for _, p := range j.parts {
		least = min(least, j.pauseOn(p))
	}
	return least
}

// pauseOn is how long nothing is to be done on a server. mu is held.
func (j *Janitor) pauseOn(p *part) time.Duration {
	if len(p.due) == 0 || p.busy >= maxProbes && (p.trouble > 0 || j.busy >= maxReleases) {
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

// work starts what is due.
func (j *Janitor) work() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.parts {
		j.workOn(p)
	}
	if j.alarm != nil {
		j.arrange()
	}
}

// workOn starts what is due on a server. mu is held.
func (j *Janitor) workOn(p *part) {
	for j.pauseOn(p) == 0 {
		one := heap.Pop(&p.due).(*job)
		if time.Now().After(one.until) && (one.tried || p.trouble > 0) {
			j.drop(one)
			continue
		}
		one.index = -1
		p.busy++
		j.busy++
		j.Begin()
		go func() {
			defer j.End()
			j.do(one)
		}()
	}
}

// do makes one attempt. Its answer says in any case that nothing is left; no
// answer puts the job back. So does a refusal, as of a user who has lost the right to
// the key and may get it back, if it is likely that something is left; but it does not
// count as one to be done soon, nor as trouble. The job is dropped if its client of go-redis is
// closed, because that sends nothing any more.
func (j *Janitor) do(one *job) {
	err := one.Release(context.Background())
	o, final := j.Classify(err)
	unable := closed(err) // as the line before without mu: methods of err may be the application's
	j.mu.Lock()
	defer j.mu.Unlock()
	now, p := time.Now(), one.part
	one.tried = true
	p.busy--
	j.busy--
	if o == request.Answered || final {
		p.trouble = 0
	}
	redo := one.redo
	one.redo = false
	switch {
	case unable:
		j.drop(one)
	case o != request.Answered && final && one.Likely:
		one.at = now.Add(request.BackOff(one.refused))
		one.refused++
		heap.Push(&p.due, one)
		one.hurry(false)
	case o == request.Answered || final:
		j.released(one, now, redo)
	default:
		if !now.Before(p.retry) { // of several at once, one counts
			p.retry = now.Add(min(request.BackOff(p.trouble), maxRetry))
			p.trouble++
		}
		one.at = now
		heap.Push(&p.due, one)
	}
	j.arrange()
}

// released sees to what is still to be done for an owner after a release that was answered. mu
// is held.
func (j *Janitor) released(one *job, now time.Time, redo bool) {
	switch {
	case redo:
		one.at = now
	case one.again.IsZero():
		j.drop(one)
		return
	default:
		one.at, one.again, one.tried = one.again, time.Time{}, false
	}
	heap.Push(&one.part.due, one)
	one.hurry(!one.at.After(now))
}

// closed reports whether a request was not sent because its client of go-redis is closed. It does
// not look into errors of several servers, as errors.Is does: not all of their clients need be
// closed.
func closed(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err == redis.ErrClosed {
			return true
		}
	}
	return false
}

// schedule is a heap of jobs, the earliest first.
type schedule []*job

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(a, b int) bool { return s[a].at.Before(s[b].at) }
func (s schedule) Swap(a, b int) {
	s[a], s[b] = s[b], s[a]
	s[a].index, s[b].index = a, b
}

// Push and Pop make it a heap.Interface.

func (s *schedule) Push(one any) {
	one.(*job).index = len(*s)
	*s = append(*s, one.(*job))
}

func (s *schedule) Pop() any {
	last := len(*s) - 1
	one := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return one
}
