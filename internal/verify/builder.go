package verify

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// builder puts the events of one lock for the models.
type builder struct {
	*history
	rules
	calls  map[string]event
	queued map[string]int64 // when a call was refused
	grants map[string]*grantInfo
	owners map[string]*lineage
	doubts []span // calls that may have left a grant that nobody has
	tokens []span // when one may have been given that is not recorded
	reach  int64  // how long such a grant may live
}

// grantInfo is a grant while its history is put together.
type grantInfo struct {
	token  int64
	owner  string
	client int
	shared bool
	holds  int
	turn   int    // index
	ops    [2]int // indices in lockOps and fenceOps of its acquisition; -1: not there
	seen   int64  // when its holder was last known to believe in it, and right to do so
	read   int64  // value read last
	told   bool   // its holder saw the loss
	over   bool   // its end is in the history
}

// lineage is what grants of one owner have in common.
type lineage struct {
	began int64 // call of the first
	token int64 // of the newest
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
	b.turns[g.turn].left = call
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
		switch e.Result {
		case ok:
			g.holds++
			a := action{do: nest, grant: e.Grant, shared: e.Shared, token: g.token, other: e.Token}
			b.add(e.Client, a, s.call, s.ret)
			if g.token != 0 { // else it was lost before its token was known
				b.addFence(e.Client, a, s.call, s.ret)
			}
		case upgrade:
			b.add(e.Client, action{do: noUpgrade, grant: e.Grant}, s.call, s.ret)
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
	if !e.Shared {
		b.tokens = append(b.tokens, b.spent(s, e))
	}
	if e.Kind == opLock {
		w := wait{span: s, locks: e.All, got: e.Result == ok, must: e.Must, shared: e.Shared, err: e.Err}
		if w.locks == nil {
			w.locks = []string{e.Lock}
		}
		b.waits = append(b.waits, w)
	}
	switch e.Result {
	case ok:
		b.history.grants++
		b.handed = append(b.handed, s.ret)
		g := &grantInfo{
			token: e.Token, owner: e.Owner, shared: e.Shared, holds: 1, seen: s.call, client: e.Client, turn: len(b.turns),
			ops: [2]int{len(b.lockOps), -1},
		}
		b.grants[e.ID] = g
		b.turns = append(b.turns, turn{span: s, queued: b.queued[e.ID]})
		a := action{do: acquire, grant: e.ID, owner: e.Owner, shared: e.Shared, token: e.Token}
		a.heir, a.stray = b.inherits(s, e)
		b.add(e.Client, a, s.call, s.ret)
		if e.Token != 0 {
			g.ops[1] = len(b.fenceOps)
			b.addFence(e.Client, a, s.call, s.ret)
		}
		// An attempt before this one may have come too late; or a grant by the queue, which
		// it did not hear of, has lapsed.
		if b.faulty || e.Kind == opLock && s.ret-s.call >= int64(shortest) {
			b.doubts = append(b.doubts, s)
		}
	case denied:
		switch {
		case e.All != nil: // one of several locks, nobody knows which; it may have had the others meanwhile
			b.doubts = append(b.doubts, s)
		case e.Kind == opTry:
			b.add(e.Client, action{do: refuse, shared: e.Shared}, s.call, s.ret)
		}
	default:
		b.doubts = append(b.doubts, s)
	}
}

// spent is the time in which a writer's call may have been given a token that nobody
// recorded. It has no end if the token of its own grant is not known, as that was lost
// before it could be looked at; or if one of its attempts may be executed after the
// return: one that got no answer, on a machine that stands still as well.
func (b *builder) spent(s span, e event) span {
	if e.Result == unknown || e.Result == ok && e.Token == 0 || b.faulty || s.ret-s.call >= int64(shortest) {
		s.ret = open
	}
	return s
}

// entered notes that a grant is known to have been its holder's from the return of the
// call to the unlock. Of thousands of calls that wait at the same time the models would
// have to try each for the next; but those whose grants are known to have followed one
// another must have returned in that order. Where nobody is ever refused, nothing is
// lost if such a call is taken to be no longer than its return.
func (b *builder) entered(g *grantInfo) {
	if !b.crowd {
		return
	}
	for i, ops := range [][]porcupine.Operation{b.lockOps, b.fenceOps} {
		if n := g.ops[i]; n >= 0 {
			ops[n].Call = ops[n].Return
		}
	}
}

// inherits reports whether a grant was passed on by another of the same owner, or is that of a
// reader who has joined one, and whether the server may have forgotten that by then.
func (b *builder) inherits(s span, e event) (heir, stray bool) {
	if e.Owner == "" {
		return false, false
	}
	l := b.owners[e.Owner]
	if l == nil {
		b.owners[e.Owner] = &lineage{s.call, e.Token}
		return false, false
	}
	if e.Token != 0 && (e.Token < l.token || e.Token == l.token && !e.Shared) { // readers who join have one token
		b.wrong = append(b.wrong, fmt.Sprintf("%s: %s got token %d from a grant that had %d", b.lock, e.ID, e.Token, l.token))
	}
	l.token = max(l.token, e.Token)
	return true, b.forgotten(span{l.began, s.ret})
}

func (b *builder) unlocked(s span, e event, g *grantInfo) {
	g.holds--
	switch {
	case e.Result == ok && g.told:
		b.wrong = append(b.wrong, fmt.Sprintf("%s: Unlock of %s succeeded although its context had ended by loss", b.lock, e.Grant))
	case e.Result == ok:
		b.add(e.Client, action{do: unlock, grant: e.Grant, owner: g.owner, shared: e.Shared, last: g.holds == 0, token: g.token}, s.call, s.ret)
		if g.holds == 0 {
			g.over = true
			b.turns[g.turn].left = s.call
			b.entered(g)
			if !g.shared { // else there may be other readers
				b.releases = append(b.releases, s)
			}
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
