package verify

import (
	"cmp"
	"fmt"
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
}

// span is a time from call to return.
type span struct{ call, ret int64 }

// wait is a call that waited for the lock.
type wait struct {
	span
	got, must bool
	err       string
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

// grantInfo is a grant while its history is put together.
type grantInfo struct {
	token  int64
	owner  string
	client int
	holds  int
	seen   int64 // when its holder was last known to believe in it, and right to do so
	read   int64 // value read last
	told   bool  // its holder saw the loss
	over   bool  // its end is in the history
}

// builder puts the events of one lock in the models' terms.
type builder struct {
	*history
	calls  map[string]event
	grants map[string]*grantInfo
	owners map[string]*lineage
	gone   []span // when the server forgot the lock
	doubts []span // calls that may have left a grant that nobody has
	faulty bool   // every waiting call is such a doubt while it lasts
	reach  int64  // how long such a grant may live
}

// lineage is what grants of one owner have in common.
type lineage struct {
	began int64 // call of the first
	token int64 // of the newest
}

// assemble makes histories of events, by lock. lease is the longest in use;
// faulty says that requests may have been lost or repeated.
func assemble(events []event, gone []oblivion, lease time.Duration, faulty bool) []*history {
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	builders := make(map[string]*builder)
	var all []*history
	for _, e := range events {
		b := builders[e.Lock]
		if b == nil {
			b = &builder{
				history: &history{lock: e.Lock}, calls: make(map[string]event), grants: make(map[string]*grantInfo),
				owners: make(map[string]*lineage), faulty: faulty, reach: int64(lease + time.Second),
			}
			for _, g := range gone {
				if g.lock == "" || g.lock == b.lock {
					b.gone = append(b.gone, g.span)
				}
			}
			builders[e.Lock] = b
			all = append(all, b.history)
		}
		if e.Return || e.Kind == opLost {
			b.returned(b.calls[e.ID], e)
			delete(b.calls, e.ID)
		} else {
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

func (b *builder) add(client int, a action, call, ret int64) {
	b.lockOps = append(b.lockOps, porcupine.Operation{ClientId: client, Input: a, Call: call, Return: ret})
}

func (b *builder) addFence(client int, a action, call, ret int64) {
	b.fenceOps = append(b.fenceOps, porcupine.Operation{ClientId: client, Input: a, Call: call, Return: ret})
}

// end closes a grant whose release is not known to have succeeded: it may have
// been free for others at any time from call on.
func (b *builder) end(id string, g *grantInfo, call int64) {
	if g.over {
		return
	}
	g.over = true
	b.add(g.client+endings, action{do: end, grant: id, owner: g.owner, token: g.token}, call, open)
}

func (b *builder) called(e event) {
	b.ops++
	if g := b.grants[e.Grant]; g != nil {
		g.seen = max(g.seen, e.Seen)
	}
}

func (b *builder) returned(call, e event) {
	s := span{call.At, e.At}
	g := b.grants[e.Grant]
	if g != nil {
		g.seen = max(g.seen, e.Seen)
	}
	switch e.Kind {
	case opLock, opTry:
		b.locked(s, e)
	case opNest:
		if e.Result == ok {
			g.holds++
			a := action{do: nest, grant: e.Grant, token: g.token, other: e.Token}
			b.add(e.Client, a, s.call, s.ret)
			if g.token != 0 { // else Do was left before its token was known
				b.addFence(e.Client, a, s.call, s.ret)
			}
		}
	case opUnlock:
		b.unlocked(s, e, g)
	case opLost:
		b.losses++
		g.told = true
		b.end(e.Grant, g, g.seen)
	case opRead:
		g.read = e.Value
		b.touched(s, e, g, read)
	case opWrite:
		b.touched(s, e, g, write)
	}
}

func (b *builder) locked(s span, e event) {
	if e.Kind == opLock {
		b.waits = append(b.waits, wait{s, e.Result == ok, e.Must, e.Err})
	}
	switch e.Result {
	case ok:
		b.history.grants++
		b.handed = append(b.handed, s.ret)
		b.grants[e.ID] = &grantInfo{token: e.Token, owner: e.Owner, holds: 1, seen: s.call, client: e.Client}
		a := action{do: acquire, grant: e.ID, owner: e.Owner, token: e.Token}
		a.heir, a.stray = b.inherits(s, e)
		b.add(e.Client, a, s.call, s.ret)
		if e.Token != 0 {
			b.addFence(e.Client, a, s.call, s.ret)
		}
		if b.faulty {
			b.doubts = append(b.doubts, s) // an attempt before this one may have come too late
		}
	case denied:
		if e.Kind == opTry {
			b.add(e.Client, action{do: refuse}, s.call, s.ret)
		}
	default:
		b.doubts = append(b.doubts, s)
	}
}

// inherits tells whether a grant was passed on by another of the same owner, and
// whether the server may have forgotten that by then.
func (b *builder) inherits(s span, e event) (heir, stray bool) {
	if e.Owner == "" {
		return false, false
	}
	l := b.owners[e.Owner]
	if l == nil {
		b.owners[e.Owner] = &lineage{s.call, e.Token}
		return false, false
	}
	if e.Token != 0 && e.Token <= l.token {
		b.wrong = append(b.wrong, fmt.Sprintf("%s: %s got token %d from a grant that had %d", b.lock, e.ID, e.Token, l.token))
	}
	l.token = max(l.token, e.Token)
	return true, slices.ContainsFunc(b.gone, func(g span) bool { return g.call < s.ret && l.began < g.ret })
}

func (b *builder) unlocked(s span, e event, g *grantInfo) {
	g.holds--
	switch {
	case e.Result == ok && g.told:
		b.wrong = append(b.wrong, fmt.Sprintf("%s: Unlock of %s succeeded although its context had ended by loss", b.lock, e.Grant))
	case e.Result == ok:
		b.add(e.Client, action{do: unlock, grant: e.Grant, owner: g.owner, last: g.holds == 0, token: g.token}, s.call, s.ret)
		if g.holds == 0 {
			g.over = true
			b.releases = append(b.releases, s)
		}
	case e.Result == lost:
		if !g.told && !g.over {
			b.losses++
		}
		b.end(e.Grant, g, g.seen)
	default: // it will be free, nobody knows when
		b.end(e.Grant, g, s.call)
	}
}

func (b *builder) touched(s span, e event, g *grantInfo, do verb) {
	a := action{do: do, grant: e.Grant, token: g.token, other: g.read, value: e.Value}
	switch {
	case e.Result == stale:
		a.do = reject
	case e.Result == unknown && do == read:
		return
	case e.Result == unknown:
		a.do, s.ret = mayWrite, open
	}
	b.addFence(e.Client, a, s.call, s.ret)
}

// finish deals with what has no return: its process was killed.
func (b *builder) finish() {
	for _, call := range b.calls {
		switch call.Kind {
		case opLock, opTry:
			b.doubts = append(b.doubts, span{call.At, open})
		case opWrite:
			g := b.grants[call.Grant]
			b.addFence(call.Client, action{do: mayWrite, grant: call.Grant, token: g.token, value: call.Value}, call.At, open)
		}
	}
	for id, g := range b.grants {
		b.end(id, g, g.seen)
	}
	// A refusal says that somebody holds the lock. If that may have been a grant
	// that nobody got, it says nothing.
	b.lockOps = slices.DeleteFunc(b.lockOps, func(o porcupine.Operation) bool {
		return o.Input.(action).do == refuse && slices.ContainsFunc(b.doubts, func(d span) bool {
			return d.call < o.Return && o.Call < d.ret+b.reach
		})
	})
}
