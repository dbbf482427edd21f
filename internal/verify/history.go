package verify

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// history is what happened to one lock.
type history struct {
	lock     string
	lockOps  []porcupine.Operation
	fenceOps []porcupine.Operation
	wrong    []string // violations that need no model

	ops, grants, losses int
	waits               []wait
	handed              []int64 // when a grant was got
	releases            []span  // unlocks that freed the lock
	turns               []turn
	ordered             int    // calls served after another because that was before it in the queue
	gone                []span // when the server forgot the lock
}

// span is a time from call to return.
type span struct{ call, ret int64 }

// wait is a call that waited for the lock.
type wait struct {
	span
	locks             []string // that it waited for
	got, must, shared bool
	err               string
}

// oblivion is a moment when the server forgot a lock, or all ("").
type oblivion struct {
	span
	lock string
}

// open is the end of what has none.
const open = int64(1) << 62

const (
	environment = 100 // client of what no client did
	endings     = 200 // added to a client: the end of its grants overlaps its calls
)

// shortest is the shortest lease of all rows.
const shortest = 300 * ms

// rules are what a history has to be judged by.
type rules struct {
	variety variety
	faulty  bool // every waiting call may leave a grant that nobody has, while it lasts
	crowd   bool // of callers, none of whom uses TryLock: see builder.entered
	young   bool // a majority of the servers may be too young to grant: they refuse what nobody has
}

func (f fault) rules() rules { return rules{f.lock, !f.harmless, f.crowd, f.young} }

// assemble makes histories of events, by lock. lease is the longest in use.
func assemble(events []event, gone []oblivion, lease time.Duration, rules rules) []*history {
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	builders := make(map[string]*builder)
	var all []*history
	for _, e := range events {
		b := builders[e.Lock]
		if b == nil {
			b = &builder{
				history: &history{lock: e.Lock}, rules: rules, calls: make(map[string]event), queued: make(map[string]int64),
				grants: make(map[string]*grantInfo), owners: make(map[string]*lineage), reach: int64(lease + time.Second),
			}
			for _, g := range gone {
				if g.lock == "" || g.lock == b.lock {
					b.gone = append(b.gone, g.span)
				}
			}
			builders[e.Lock] = b
			all = append(all, b.history)
		}
		switch {
		case e.Kind == opQueued:
			if b.queued[e.ID] == 0 {
				b.queued[e.ID] = e.At
			}
		case e.Return || e.Kind == opLost:
			b.returned(b.calls[e.ID], e)
			delete(b.calls, e.ID)
		default:
			b.calls[e.ID] = e
			b.called(e)
		}
	}
	for _, b := range builders {
		for _, g := range b.gone {
			b.add(environment, action{do: forget}, g.call, g.ret)
			if g.ret == open { // a replica may remember a grant that is over
				b.doubts = append(b.doubts, g)
			}
		}
		b.finish()
	}
	return all
}
