package verify

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// parties is the number of client processes of a row.
const parties = 3

// job is what the parties are told of a round. Everything random in it follows
// from Seed, so that all of them, and a replay, come to the same.
type job struct {
	Row       string
	Round     int
	Seed      uint64
	Histories int
	Clients   int // of each history
	Steps     int // of each client until the fault is healed, at most
	Lock      variety
	Leases    []string // to choose from
	Addrs     []string // what this party connects to, for each server
	Store     string   // address of the resources' server
	Journal   string
	Party     int
	Kind      string // of the Redis client: see party.connect
	Cancel    bool   // contexts end at any moment
	Hasty     bool   // half of the calls give up after 20 ms
	Crowd     bool   // there are thousands of clients
	Alone     bool   // nobody gives up
	Fires     bool   // see fireRows
}

// random is a source that depends on the seed and on what it is for.
func random(seed uint64, purpose ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, purpose...)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// agenda is what all clients of a history have to agree on.
type agenda struct {
	locks  []string
	lease  time.Duration
	fenced bool
}

func (j *job) agenda(history int) agenda {
	r := random(j.Seed, j.Row, j.Round, "history", history)
	lease, err := time.ParseDuration(j.Leases[r.IntN(len(j.Leases))])
	if err != nil {
		panic(err)
	}
	a := agenda{lease: lease, fenced: r.IntN(3) > 0}
	n := 1 + r.IntN(4)/3 // sometimes two
	switch {
	case j.Lock == multi:
		n = members
	case j.Lock == results:
		n = j.resultsFor()
	case j.Crowd: // of which there is but one
		n, a.fenced = 3, j.Round%2 == 0
	}
	for k := range n {
		a.locks = append(a.locks, j.name(history, k))
	}
	return a
}

func (j *job) name(history, k int) string {
	return fmt.Sprintf("%s/%d/%d/%c", j.Row, j.Round, history, 'a'+k)
}

// leases returns the lease of each lock in all histories.
func (j *job) leases() map[string]time.Duration {
	leases := make(map[string]time.Duration)
	for h := range j.Histories {
		a := j.agenda(h)
		for _, name := range a.locks {
			leases[name] = a.lease
		}
	}
	return leases
}

// names returns the locks of all histories.
func (j *job) names() []string { return slices.Sorted(maps.Keys(j.leases())) }

// longest returns the longest lease of the round.
func (j *job) longest() time.Duration { return slices.Max(slices.Collect(maps.Values(j.leases()))) }

// step is one acquisition of a client, and what it does then.
type step struct {
	locks  []int         // which of the history's
	shared bool          // as a reader
	pause  time.Duration // before
	how    how
	wait   time.Duration // at most
	cancel time.Duration // the context given to Lock ends after that; 0: never
	nested int           // further holds
	hold   time.Duration
	rival  bool   // a detached TryLock meanwhile, which must be refused
	fixed  bool   // no renewal
	order  uint64 // of the unlocks
	must   bool   // it has to succeed
	stays  bool   // inside until it is told to leave
	again  int    // times that it may be repeated, as Redis was unavailable
}

type how int

const (
	waiting  how = iota // TryLockFor
	trying              // TryLock
	function            // Do
)

// draw plans the next step of a client.
func draw(r *rand.Rand, j *job, a agenda) step {
	s := step{
		locks: []int{r.IntN(len(a.locks))},
		pause: time.Duration(r.IntN(30)) * time.Millisecond,
		wait:  time.Duration(20+r.IntN(3000)) * time.Millisecond,
		hold:  time.Duration(r.IntN(15)) * time.Millisecond,
		rival: r.IntN(8) == 0,
		fixed: r.IntN(10) == 0,
		order: r.Uint64(),
	}
	switch r.IntN(6) {
	case 0:
		s.how = trying
	case 1:
		s.how = function
	}
	switch r.IntN(10) {
	case 0:
		s.hold = min(a.lease*5/4, time.Second) // needs a renewal
	case 1, 2, 3:
		s.hold = time.Duration(30+r.IntN(150)) * time.Millisecond
	}
	if r.IntN(3) == 0 {
		s.nested = 1 + r.IntN(2)
	}
	if j.Cancel && r.IntN(2) == 0 {
		s.cancel = time.Duration(1 + r.IntN(int(150*time.Millisecond)))
	}
	if j.Hasty && r.IntN(2) == 0 {
		s.wait = 20 * time.Millisecond
	}
	if j.Alone {
		s.wait = served
	}
	s.vary(r, j, a)
	return s
}

// vary draws what only some kinds of lock have. Of a crowd most would never have a
// turn if some were inside for long.
func (s *step) vary(r *rand.Rand, j *job, a agenda) {
	if j.Crowd {
		s.hold = min(s.hold, time.Duration(r.IntN(2))*time.Millisecond)
		if s.how == trying {
			s.how = waiting
		}
	}
	switch j.Lock {
	case readWrite:
		s.shared = r.IntN(3) > 0
	case elected: // a term has no other, and a campaign waits
		s.how, s.rival, s.fixed, s.nested = waiting, false, false, 0
	case multi:
		s.locks = r.Perm(len(a.locks))[:1+r.IntN(len(a.locks))]
	}
}

// last is the step of a client when everything is healed: it must succeed. A machine
// that stands still for as long as the shortest leases may cost it a call or two.
func last(r *rand.Rand, j *job, a agenda) step {
	s := step{locks: []int{r.IntN(len(a.locks))}, wait: served, must: true, again: 2, hold: time.Duration(r.IntN(5)) * time.Millisecond}
	if j.Crowd { // thousands are served one after the other
		s.wait = 3 * served
	}
	s.vary(r, j, a)
	return s
}

// served bounds the wait for a lock after healing. It is far more than a waiter
// may need; what it really needs is measured.
const served = 15 * time.Second
