package rlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
)

// peer is what a client knows of its server as one of several.
type peer struct {
	asked   atomic.Int64 // requests under way
	overdue atomic.Int64 // those that the others' answers have not waited for
}

// maxAsked bounds the requests to a server that does not answer.
const maxAsked = 1024

// vote is what one server says.
type vote[T any] struct {
	value T
	err   error
}

var (
	errPending = errors.New("no answer yet")
	errCrowded = errors.New("not asked: too many requests have no answer")
)

// bound is how long the answer of a single server is waited for.
func (q *quorum) bound() time.Duration { return min(q.lock.lease/10, 500*time.Millisecond) }

// ask puts a request to all servers at once. When the votes are enough, those that
// still come in within as long again as that took are waited for, at least 2 ms.
// No server that is overdue is waited for once a majority has answered. The vote of others is errPending, and
// goes to late, if set, when it comes in.
func ask[T any](ctx context.Context, q *quorum, request func(context.Context, *plain) (T, error), enough func(votes []vote[T]) bool, late func(n int, v vote[T])) []vote[T] {
	type answer struct {
		n int
		v vote[T]
	}
	began, bound := time.Now(), q.bound()
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	answers := make(chan answer, len(q.nodes))
	votes := make([]vote[T], len(q.nodes))
	prompt, pending := 0, len(q.nodes)
	slow := make([]bool, len(q.nodes))
	for n, p := range q.nodes {
		votes[n].err = errPending
		if slow[n] = p.client.peer.overdue.Load() > 0; !slow[n] {
			prompt++
		}
		p.client.background(func() {
			a := answer{n: n}
			if p.client.peer.asked.Add(1) <= maxAsked {
				a.v.value, a.v.err = request(own, p)
			} else {
				a.v.err = errCrowded
			}
			p.client.peer.asked.Add(-1)
			answers <- a
		})
	}
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for settled := false; pending > 0 && !(prompt == 0 && len(votes)-pending > len(votes)/2); {
		select {
		case a := <-answers:
			votes[a.n] = a.v
			if pending--; !slow[a.n] {
				prompt--
			}
			if !settled && enough(votes) {
				settled = true
				timer.Reset(min(max(time.Since(began), 2*time.Millisecond), bound))
			}
			continue
		case <-timer.C:
		case <-ctx.Done():
		}
		break
	}
	if pending == 0 {
		cancel()
		return votes
	}
	for n, v := range votes {
		if v.err == errPending {
			q.nodes[n].client.peer.overdue.Add(1)
		}
	}
	q.lock.client.background(func() {
		defer cancel()
		for range pending {
			a := <-answers
			q.nodes[a.n].client.peer.overdue.Add(-1)
			if late != nil {
				late(a.n, a.v)
			}
		}
	})
	return votes
}

// outcomes counts the votes that are answers: how many servers have done what was
// asked, how many know of no such owner.
func outcomes[T any](votes []vote[T]) (done, refused int) {
	for _, v := range votes {
		switch {
		case v.err == nil:
			done++
		case errors.Is(v.err, lua.ErrNotOwner):
			refused++
		}
	}
	return done, refused
}

// answeredBy is true when a majority has answered, whatever it was.
func answeredBy[T any](votes []vote[T]) bool {
	done, refused := outcomes(votes)
	return done+refused > len(votes)/2
}

// decisive is true when a majority has given the same answer.
func decisive[T any](votes []vote[T]) bool {
	done, refused := outcomes(votes)
	return done > len(votes)/2 || refused > len(votes)/2
}

// quorumEar is awake when any server has something to say, through the C of the
// first waiter.
type quorumEar []*pubsub.Waiter

func (e quorumEar) C() <-chan struct{} { return e[0].C() }

// Live reports whether a majority is heard: one of those has to release a grant.
func (e quorumEar) Live() bool {
	live := 0
	for _, w := range e {
		if w.Live() {
			live++
		}
	}
	return live > len(e)/2
}

func (e quorumEar) Leave() {
	for _, w := range e {
		w.Leave()
	}
}
