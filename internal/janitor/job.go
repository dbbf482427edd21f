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
	until    time.Time     // then the lease of what was there has ended on its own
	late     time.Duration // if positive, a request may still arrive: release once more so long after answered; 0 if none may
	answered time.Time     // when the first release was, since that is known; zero if none was
	redo     bool          // release again as soon as the release under way is answered: that may have been executed too early
	soon     bool          // it is not to wait
	tried    bool
	refused  int // how often, by a server that has something of the owner
	index    int // in the schedule; -1 while it is done
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

// add makes a job, which is not in a schedule yet. mu is held.
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

// repeat puts the next release off, after one that was answered.
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

// pause is how long nothing is sent to the server after an attempt in vain. mu is held.
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
