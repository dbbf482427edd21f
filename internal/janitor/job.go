package janitor

import (
	"time"

	"github.com/go-rlock/rlock/internal/request"
)

// job is an owner to be released.
type job struct {
	Leftover
	part     *part
	at       time.Time     // not before
	until    time.Time     // then the lease has ended
	late     time.Duration // if positive, a request may still arrive: release once more so long after answered
	answered time.Time     // when the first release since the late request was answered; zero before
	redo     bool          // release again after the release under way: the server may have executed that release too early
	soon     bool          // due when last looked at
	tried    bool
	refused  int // number of refusals by a server with a likely orphan
	index    int // in the schedule; -1 while under way
}

// part is the jobs of one server. Janitor.mu guards it.
type part struct {
	server  request.Server
	jobs    int       // all jobs
	due     schedule  // jobs not under way
	busy    int       // jobs under way
	soon    int       // jobs with soon set
	held    bool      // the carrier holds back callers' requests
	trouble int       // attempts without an answer since the newest answer
	retry   time.Time // while there is trouble: not before
}

// add makes a job, not in a schedule yet. mu is held.
func (j *Janitor) add(l Leftover) *job {
	if j.jobs == nil {
		j.jobs, j.parts = make(map[string]*job), make(map[request.Server]*part)
	}
	p := j.parts[l.Server]
	if p == nil {
		p = &part{server: l.Server}
		j.parts[l.Server] = p
	}
	one := &job{Leftover: l, part: p}
	j.jobs[l.Owner] = one
	p.jobs++
	return one
}

// hurry sets soon, and holds back or lets go the callers' requests. mu is held.
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

// repeat sets the time of the next release, after an answered release.
func (one *job) repeat(now time.Time) {
	if one.answered.IsZero() {
		one.answered = now
	}
	one.at, one.tried = latest(one.answered.Add(one.late), now), false
	if last := min(max(one.Lease, minArrival), maxArrival); one.late < last {
		one.late = min(2*one.late, last)
	} else {
		one.late = 0
	}
}

// drop forgets a job. mu is held.
func (j *Janitor) drop(one *job) {
	one.hurry(false)
	delete(j.jobs, one.Owner)
	if one.part.jobs--; one.part.jobs == 0 {
		delete(j.parts, one.part.server)
	}
}

// pause is the pause after an attempt in vain. mu is held.
func (p *part) pause() time.Duration {
	if p.trouble > maxPrompt {
		return slowRetry
	}
	return min(request.BackOff(p.trouble), maxRetry)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// schedule is a heap of jobs, the earliest first.
type schedule []*job

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(a, b int) bool { return s[a].at.Before(s[b].at) }
func (s schedule) Swap(a, b int) {
	s[a], s[b] = s[b], s[a]
	s[a].index, s[b].index = a, b
}

// Push and Pop are for heap.Interface.

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
