package verify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// action is what the models understand: an operation together with its outcome.
type action struct {
	do     verb
	grant  string
	owner  string // acquire: of the grant, on the server
	shared bool   // acquire, nest, unlock, refuse: as a reader
	heir   bool   // acquire: the owner had a grant before this one
	last   bool   // unlock: of the grant's last hold
	stray  bool   // acquire: by an heir of a grant, or under a counter, that the server has forgotten
	spent  bool   // acquire: by a reader, after a token that may not be recorded
	token  int64  // of the grant, or that an operation was given
	other  int64  // nested: token of the hold; write: value that was read before
	value  int64  // read or written
}

type verb string

const (
	acquire   verb = "acquire"
	nest      verb = "nest"
	unlock    verb = "unlock"
	refuse    verb = "refused"    // TryLock
	noUpgrade verb = "no upgrade" // of a reader's grant
	end       verb = "end"        // of a grant, without an Unlock that is known to have succeeded
	forget    verb = "forget"     // the server forgets the lock: flushed, forced, restarted empty

	read     verb = "read"
	write    verb = "write"
	mayWrite verb = "may write" // without a known outcome
	reject   verb = "rejected"  // read or write with a token too small
)

func (a action) String() string {
	switch a.do {
	case refuse, forget:
		return string(a.do)
	case read, write, mayWrite, reject:
		return fmt.Sprintf("%s %d by #%d", a.do, a.value, a.token)
	}
	return fmt.Sprintf("%s %s #%d", a.do, a.grant, a.token)
}

// lockState is a reentrant lock with leases.
type lockState struct {
	holders []holder // by grant: one that excludes all others, or any number of readers
	owner   string   // of the newest grant: what the server knows of it, and of its heirs

	// What the server has forgotten, each in braces: owners, and those grants,
	// with their owners, whose holders may not know yet.
	forgotten, ghosts string
}

// holder is a grant and its holds. A writer may read as well; when it has unlocked
// its last exclusive hold, it is a reader.
type holder struct {
	grant, owner      string
	exclusive, shared int
}

func (s lockState) find(grant string) int {
	return slices.IndexFunc(s.holders, func(h holder) bool { return h.grant == grant })
}

func (s lockState) excluded() bool {
	return slices.ContainsFunc(s.holders, func(h holder) bool { return h.exclusive > 0 })
}

// count changes the holds of the grant at n, which ends with its last.
func (s *lockState) count(n, by int, shared bool) {
	s.holders = slices.Clone(s.holders)
	h := &s.holders[n]
	if shared {
		h.shared += by
	} else {
		h.exclusive += by
	}
	if h.exclusive+h.shared == 0 {
		s.holders = slices.Delete(s.holders, n, n+1)
	}
}

func (s *lockState) start(a action) {
	s.owner = a.owner
	n, _ := slices.BinarySearchFunc(s.holders, a.grant, func(h holder, grant string) int { return strings.Compare(h.grant, grant) })
	s.holders = slices.Insert(slices.Clone(s.holders), n, holder{grant: a.grant, owner: a.owner})
	s.count(n, 1, a.shared)
}

// lockModel: one holder at a time, or readers only, each of which holds until as
// many unlocks as locks, the end of its context, or the server's loss of memory. A
// client may pass a grant on, which remains the same one to the server: what that
// has forgotten, it has forgotten for all heirs. They take turns all the same, but for
// readers, who join one another.
var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, a := state.(lockState), input.(action)
		switch a.do {
		case acquire:
			if a.heir && strings.Contains(s.forgotten, "{"+a.owner+"}") {
				alone := a.shared || !strings.Contains(s.ghosts, "@"+a.owner+"}")
				s.ghosts += ghost(a.grant, a.owner)
				return alone, s
			}
			free := !s.excluded() && (a.shared || len(s.holders) == 0) && (!a.heir || a.shared || s.owner == a.owner)
			s.start(a)
			return free, s
		case nest:
			n := s.find(a.grant)
			if n < 0 || !a.shared && s.holders[n].exclusive == 0 {
				return false, s
			}
			s.count(n, 1, a.shared)
			return true, s
		case noUpgrade:
			n := s.find(a.grant)
			return n < 0 || s.holders[n].exclusive == 0, s
		case unlock:
			n := s.find(a.grant)
			if n < 0 {
				known := strings.Contains(s.ghosts, ghost(a.grant, a.owner))
				if a.last {
					s.ghosts = strings.ReplaceAll(s.ghosts, ghost(a.grant, a.owner), "")
				}
				return known, s
			}
			if h := s.holders[n]; a.shared && h.shared == 0 || !a.shared && h.exclusive == 0 {
				return false, s
			}
			s.count(n, -1, a.shared)
			return true, s
		case refuse:
			// A client refuses by itself while one of its own believes in the lock.
			return s.excluded() || !a.shared && len(s.holders) > 0 || s.ghosts != "", s
		case end:
			s.holders = slices.DeleteFunc(slices.Clone(s.holders), func(h holder) bool { return h.grant == a.grant })
			s.ghosts = strings.ReplaceAll(s.ghosts, ghost(a.grant, a.owner), "")
			return true, s
		case forget:
			for _, h := range s.holders {
				s.ghosts += ghost(h.grant, h.owner)
				if h.owner != s.owner { // a reader of several, whom others may still join
					s.forgotten += "{" + h.owner + "}"
				}
			}
			if s.owner != "" { // although nobody holds it, it may be on its way to an heir
				s.forgotten += "{" + s.owner + "}"
			}
			s.holders, s.owner = nil, ""
			return true, s
		}
		return false, s
	},
	Equal: func(a, b any) bool {
		s, t := a.(lockState), b.(lockState)
		return s.owner == t.owner && s.forgotten == t.forgotten && s.ghosts == t.ghosts && slices.Equal(s.holders, t.holders)
	},
	DescribeOperation: func(input, _ any) string { return input.(action).String() },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

func ghost(grant, owner string) string { return "{" + grant + "@" + owner + "}" }

// fenceState is a fencing counter and the resource that checks its tokens.
type fenceState struct {
	newest  int64 // token granted last
	highest int64 // token that the resource has seen
	value   int64 // of the resource
}

// fenceModel: every grant has a greater token than the one before, nested holds
// have the same, and nobody writes between a holder's read and its write. The
// last is what fencing is for: the resource looks at nothing but tokens. An heir
// of what the server has forgotten has a greater token than its predecessor only. A
// reader has the token of the newest writer.
var fenceModel = porcupine.Model{
	Init: func() any { return fenceState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, a := state.(fenceState), input.(action)
		fresh := a.token >= s.highest
		switch a.do {
		case acquire:
			grown := a.token > s.newest || a.shared && a.token == s.newest
			if a.shared && a.token > s.newest && s.newest > 0 && !a.stray && !a.spent {
				return false, s
			}
			s.newest = max(s.newest, a.token)
			return grown || a.stray, s
		case nest:
			return a.other == a.token, s
		case read:
			s.highest = a.token
			return fresh && s.value == a.value, s
		case write:
			undisturbed := s.value == a.other
			s.highest, s.value = a.token, a.value
			return fresh && undisturbed, s
		case mayWrite:
			if fresh {
				s.highest, s.value = a.token, a.value
			}
			return true, s
		case reject:
			return !fresh, s
		}
		return false, s
	},
	DescribeOperation: lockModel.DescribeOperation,
	DescribeState:     lockModel.DescribeState,
}

// checkLimit is far above what a history takes; one that takes longer counts as
// a violation, because it proves nothing.
const checkLimit = 20 * time.Second

// check returns what is wrong with a history, nil if nothing is. Where a model
// is violated, draw gets porcupine's picture of it.
func (h *history) check(draw func(name string, m porcupine.Model, info porcupine.LinearizationInfo) string) []string {
	wrong := h.wrong
	for name, c := range map[string]struct {
		model porcupine.Model
		ops   []porcupine.Operation
	}{"lock": {lockModel, h.lockOps}, "fence": {fenceModel, h.fenceOps}} {
		if porcupine.CheckOperationsTimeout(c.model, c.ops, checkLimit) == porcupine.Ok {
			continue
		}
		verdict, info := porcupine.CheckOperationsVerbose(c.model, c.ops, checkLimit)
		wrong = append(wrong, fmt.Sprintf("%s: the %s model says %s: %s", h.lock, name, verdict, draw(h.lock+"-"+name, c.model, info)))
	}
	return wrong
}
