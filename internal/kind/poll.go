package kind

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// longestPoll is the longest wait of a poll for an answer.
const longestPoll = 500 * time.Millisecond

// Limits of requests under way to a server: maxAsked for a slow server, so the server gets a share of
// as many grants as possible; maxSilent for a server without any answer for the bound of a poll.
const (
	maxAsked  = 1024
	maxSilent = 64
)

// vote is the answer of one server.
type vote[T any] struct {
	value   T
	err     error
	outcome request.Outcome // of err, read once: the error's methods may be the application's, and block
	final   bool            // repeating the request would not help
	doubt   bool            // an attempt on a stale connection, before the answered attempt, may have been executed, or a copy
	took    time.Duration   // until the vote came
}

var (
	errNoShare = errors.New("has no share of the grant")
	errPending = errors.New("no answer yet")
	errCrowded = errors.New("not asked: too many requests have no answer")
)

// bound is the longest wait of a poll for the answer of a single server.
func (q *Quorum) bound() time.Duration { return min(q.lease/10, longestPoll) }

// ask makes a request to all servers at once. ask stops when enough reports true and a grace period
// (as long again, at least 2 ms) is over; or, once every prompt server has voted, as soon as willDo
// reports true. A server is slow, not prompt, with an earlier request unanswered, or not answered in
// time. A vote still outstanding is errPending; late, if set, gets the vote later, perhaps in several
// goroutines at once.
func ask[T any](ctx context.Context, q *Quorum, send func(context.Context, *Plain) (T, error), enough, willDo func(votes []vote[T]) bool, late func(n int, v vote[T])) []vote[T] {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.bound())
	p := &poll[T]{
		q: q, answers: make(chan numbered[T], len(q.nodes)), votes: make([]vote[T], len(q.nodes)),
		slow: make([]bool, len(q.nodes)), pending: len(q.nodes), began: time.Now(), cancel: cancel,
	}
	for n, node := range q.nodes {
		p.votes[n].err, p.votes[n].outcome = errPending, request.Unknown
		if p.slow[n] = node.server.slow(); !p.slow[n] {
			p.prompt++
		}
		// The server's client waits until the vote is dealt with: an orphan of the request may have to
		// be released.
		node.server.Background(func() {
			v := vote[T]{err: request.ErrNoAnswer, outcome: request.Unknown}
			defer func() { // also if a hook of the application ends this goroutine
				if p.isLate(n, v) && late != nil {
					late(n, v)
				}
			}()
			v = cast(own, q, node, send)
		})
	}
	p.wait(ctx, enough, willDo)
	p.close()
	return p.votes
}

// cast makes the request to one server, unless too many requests there have no answer.
func cast[T any](ctx context.Context, q *Quorum, p *Plain, send func(context.Context, *Plain) (T, error)) (v vote[T]) {
	defer p.server.asked.Add(-1)
	began, bound := time.Now(), q.bound()
	if !p.server.admit(bound) {
		return vote[T]{err: errCrowded, outcome: request.NotExecuted}
	}
	ctx, copied := request.Doubtful(ctx)
	defer func() { v.doubt = v.doubt || copied() }()
	for stale := (request.Stale{}); ; {
		v.value, v.err = send(ctx, p)
		if ctx.Err() != nil || !stale.Again(p.server.RDB, v.err) {
			break
		}
		v.doubt = true
	}
	if v.err == request.ErrNotSent {
		v.err = request.ErrCrowded // the poll has ended; the caller may still wait, and ask again
	}
	v.outcome, v.final = p.server.Classify(v.err)
	if q.heard(p.server, v.outcome, v.err, time.Since(began)); v.outcome == request.Answered {
		p.server.silent.Store(false)
	} else if time.Since(began) >= bound {
		p.server.silent.Store(true)
	}
	return v
}

// heard tells the log, once, when a server has given no answer for a second, and when the server
// answers again.
func (q *Quorum) heard(s *Server, o request.Outcome, err error, took time.Duration) {
	switch now := time.Now().UnixNano(); {
	case o == request.Answered:
		s.answered.Store(now)
		s.failing.Store(0)
		if s.down.Swap(false) {
			s.Log.Info(fmt.Sprintf("rlock: quorum: server %s answers again", s.address()))
		}
	case errors.Is(err, request.ErrCrowded), took < q.bound() && errors.Is(err, context.Canceled): // the server was not asked, or not waited for
	default:
		s.failing.CompareAndSwap(0, max(now-int64(took), s.answered.Load()))
		since := s.failing.Load()
		if since == 0 || now-since < int64(time.Second) || s.down.Swap(true) { // 0: another request was answered meanwhile
			return
		}
		left := 0
		for _, p := range q.nodes {
			if !p.server.down.Load() {
				left++
			}
		}
		s.Log.Warn(fmt.Sprintf("rlock: quorum: server %s does not answer: %d of %d left", s.address(), left, len(q.nodes)), "error", err)
	}
}

// tooYoung tells the log, once, how long a server just started is not counted.
func (s *Server) tooYoung(quarantine time.Duration) {
	if was := s.young.Swap(quarantine > 0); quarantine > 0 && !was {
		s.Log.Info(fmt.Sprintf("rlock: quorum: server %s has just started, and may have forgotten who holds a lock: it is not counted for another %v", s.address(), quarantine))
	}
}

// slow reports whether an earlier request has no answer.
func (s *Server) slow() bool { return s.overdue.Load() > 0 || s.silent.Load() }

// admit counts a request, and reports whether the request may be sent.
func (s *Server) admit(bound time.Duration) bool {
	n, now := s.asked.Add(1), time.Now().UnixNano()
	if n == 1 && !s.silent.Load() { // none was under way: the server may be well
		s.answered.Store(now)
	}
	if now-s.answered.Load() > int64(bound) {
		return n <= maxSilent
	}
	return n <= maxAsked
}

// poll is one request to all servers.
type poll[T any] struct {
	q       *Quorum
	answers chan numbered[T]
	votes   []vote[T]
	slow    []bool // whether a server was slow when asked
	prompt  int    // servers not slow, without a vote yet
	pending int    // servers without a vote yet
	began   time.Time
	cancel  func() // ends the requests; called when no request is left

	mu   sync.Mutex // guards over and late
	over bool       // votes from now on are late
	late int        // servers with a late vote to come
}

// numbered is the vote of a server.
type numbered[T any] struct {
	n int
	vote[T]
}

// isLate delivers a vote, unless the poll is over.
func (p *poll[T]) isLate(n int, v vote[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.answers <- numbered[T]{n, v}
		return false
	}
	p.q.nodes[n].server.overdue.Add(-1)
	if p.late--; p.late == 0 {
		p.cancel()
	}
	return true
}

// close ends the poll, with the votes delivered by now.
func (p *poll[T]) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.answers) > 0 {
		p.count(<-p.answers)
	}
	p.over, p.late = true, p.pending
	if p.late == 0 {
		p.cancel()
		return
	}
	for n, v := range p.votes {
		if v.err == errPending {
			p.q.nodes[n].server.overdue.Add(1)
		}
	}
}

// count counts a vote.
func (p *poll[T]) count(a numbered[T]) {
	p.votes[a.n], p.votes[a.n].took = a.vote, time.Since(p.began)
	if p.pending--; !p.slow[a.n] {
		p.prompt--
	}
}

// wait collects enough votes, and the votes of the grace period: see ask.
func (p *poll[T]) wait(ctx context.Context, enough, willDo func(votes []vote[T]) bool) {
	bound := p.q.bound()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for settled := false; p.pending > 0 && !(p.prompt == 0 && willDo(p.votes)); {
		select {
		case a := <-p.answers:
			p.count(a)
			if !settled && enough(p.votes) {
				settled = true
				timer.Reset(min(max(time.Since(p.began), 2*time.Millisecond), bound))
			}
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// outcomes counts the votes with an answer: done by servers that executed the request,
// refused by servers without such an owner.
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

// answeredBy is true when a majority has answered, in either way.
func answeredBy[T any](votes []vote[T]) bool {
	done, refused := outcomes(votes)
	return done+refused > len(votes)/2
}

// decisive is true when a majority has given the same answer.
func decisive[T any](votes []vote[T]) bool {
	done, refused := outcomes(votes)
	return done > len(votes)/2 || refused > len(votes)/2
}
