package janitor

import (
	"slices"
	"sort"
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
	busy     bool          // a release is under way, and the job is not in part.due
	redo     bool          // release again after the release under way: the server may have executed that release too early
	soon     bool          // due when last looked at
	tried    bool
	refused  int // number of refusals by a server with a likely orphan
}

// part is the jobs of one server, as long as there are any. Janitor.mu guards it.
type part struct {
	server  request.Server
	due     []*job      // jobs not under way, the earliest first
	alarm   *time.Timer // runs work
	busy    int         // jobs under way
	soon    int         // jobs with soon set
	held    bool        // the carrier holds back callers' requests
	trouble int         // attempts without an answer since the newest answer
	retry   time.Time   // while there is trouble: not before
}

// schedule puts a job into the list of its server, behind the jobs of the same time, and has work look at the list. mu is
// held.
func (one *job) schedule(at time.Time) {
	p := one.part
	one.at = at
	i := sort.Search(len(p.due), func(n int) bool { return p.due[n].at.After(at) })
	p.due = slices.Insert(p.due, i, one)
	p.alarm.Reset(0)
}

// hurry sets soon, and holds back or lets go the callers' requests. mu is held.
func (one *job) hurry(soon bool) {
	p := one.part
	if one.soon {
		p.soon--
	}
	if soon {
		p.soon++
	}
	one.soon = soon
	least := maxReleases
	if p.held {
		least = maxReleases/2 + 1
	}
	if held := p.soon >= least; held != p.held {
		p.held = held
		p.server.Hold(held)
	}
}

// drop forgets a job, which is neither under way nor in the list of its server any more. Another job may start instead.
// mu is held.
func (j *Janitor) drop(one *job) {
	one.hurry(false)
	delete(j.jobs, one.Owner)
	p := one.part
	if len(p.due) > 0 || p.busy > 0 {
		p.alarm.Reset(0)
		return
	}
	p.alarm.Stop()
	delete(j.parts, p.server)
	j.End()
}
