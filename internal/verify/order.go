package verify

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// turn is a grant as the others in a queue see it.
type turn struct {
	span         // of its acquisition
	queued int64 // when its call was known to have been refused; 0: never
	left   int64 // how long it evidently lasted
}

// longestClaim is how long a waiter may have the lock without knowing, at most.
const longestClaim = 6 * time.Second

// inOrder looks for grants of a fair lock that overtook another: whoever called
// after a waiter was known to stand in the queue must be served after it. It may
// not if the waiter may have lost its place: because the server forgot it, or passed it
// over as its subscription was cut, or because it may have had the lock without
// knowing until the claim, which is a lease at most, was over. Leases that are no
// longer than what a busy machine sleeps are left out.
func (h *history) inOrder(lease time.Duration, cuts []span) {
	claim := int64(min(lease, longestClaim))
	if claim < int64(time.Second) {
		return
	}
	slices.SortFunc(h.turns, func(a, b turn) int { return cmp.Compare(a.ret, b.ret) })
	for n, x := range h.turns {
		for m, y := range h.turns {
			switch {
			case x.queued == 0 || y.call <= x.queued || y.call > x.ret, // in any order, or trivially in this one
				overlap(cuts, span{x.queued, y.ret}):
			case m > n:
				h.ordered++
			case h.idle(x.queued, y.ret) > claim-claim/10, h.forgotten(span{x.call, y.ret}):
			default:
				h.wrong = append(h.wrong, fmt.Sprintf("%s: a call at %d was served at %d, before one that was in the queue since %d and served at %d",
					h.lock, y.call, y.ret, x.queued, x.ret))
			}
		}
	}
}

// idle returns the longest time within some in which nobody evidently had the lock.
func (h *history) idle(from, to int64) (longest int64) {
	for _, t := range h.turns { // in the order of their returns
		if t.ret > from && t.ret <= to {
			longest = max(longest, t.ret-from)
		}
		if t.ret <= to {
			from = max(from, t.left)
		}
	}
	return longest
}

func (h *history) forgotten(s span) bool {
	return overlap(h.gone, s)
}

func overlap(all []span, s span) bool {
	return slices.ContainsFunc(all, func(g span) bool { return g.call < s.ret && s.call < g.ret })
}
