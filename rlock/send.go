package rlock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/lua"
)

// maxAttempt bounds a single attempt, whatever the time-outs of the client
// underneath.
const maxAttempt = 2 * time.Second

// outcome is what is known of a request.
type outcome int

const (
	answered    outcome = iota // the script ran and this is its reply
	notExecuted                // it did not run and will not
	unknown                    // it may have run, or may still run
)

// classify reads the error of a request. final says that repeating it would not
// help. What is not recognised counts as unknown.
func classify(err error) (o outcome, final bool) {
	if err == nil || errors.Is(err, lua.ErrNotOwner) || errors.Is(err, ErrNotReplicated) {
		return answered, true
	}
	var conflict *lua.ConflictError
	var minority *minorityError
	var netErr *net.OpError
	var untrusted *tls.CertificateVerificationError
	var reply redis.Error
	switch {
	case errors.As(err, &conflict):
		return answered, true
	case errors.As(err, &minority):
		return minority.outcome, minority.final
	case errors.Is(err, redis.ErrClosed), errors.Is(err, ErrClosed), errors.Is(err, errNotSent), err == errRested, errors.As(err, &untrusted):
		return notExecuted, true
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		errors.As(err, &netErr) && netErr.Op == "dial":
		return notExecuted, false
	case !errors.As(err, &reply):
		return unknown, false
	case hasCode(reply, "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS",
		"BUSY", "MISCONF", "MOVED", "ASK", "ERR max number of clients reached"):
		return notExecuted, false
	case hasCode(reply, "NOAUTH", "WRONGPASS", "OOM", "CROSSSLOT", "ERR unknown command"):
		return notExecuted, true
	default:
		return unknown, true // NOPERM, say, which may strike in the middle of a script
	}
}

// hasCode tells whether a reply is an error with one of the codes. Redis before
// 7 wraps what a script runs into: `ERR Error running script …: -OOM …`.
func hasCode(reply redis.Error, codes ...string) bool {
	text := reply.Error()
	for _, code := range codes {
		if strings.HasPrefix(text, code) ||
			strings.HasPrefix(text, "ERR Error running script") && strings.Contains(text, code+" ") {
			return true
		}
	}
	return false
}

// patience is how long a request is repeated.
type patience struct {
	attempt time.Duration   // bound of one attempt
	total   time.Duration   // bound of all together, counted from since
	since   time.Time       // zero: from the first attempt
	trouble error           // why since is earlier: what others' attempts came to
	once    bool            // an attempt that was surely not executed is not repeated
	stop    <-chan struct{} // ends it; nil for what has to be finished
	told    func(error)     // if set, is told how the attempts go: an error if one got no answer, nil if one did after that
}

// answer is how a request ended.
type answer[T any] struct {
	value T
	sent  time.Time // before the attempt that was answered went out
	doubt bool      // an attempt may have been executed, or may still be, without our knowing
	cut   bool      // ctx ended, and nothing had gone wrong until then
	err   error     // lua.ErrNotOwner as it is; any other names the lock
}

// send repeats a request until it is answered, cannot succeed, ctx is over or
// patience ends. late, if set, gets what an attempt returned that nobody waited
// for any more.
func send[T any](ctx context.Context, l *Lock, p patience, request func(context.Context) (T, error), late func(T, error)) (a answer[T]) {
	last := p.trouble
	for n := 0; ; n++ {
		a.sent = time.Now()
		if p.since.IsZero() {
			p.since = a.sent
		}
		left := p.total - a.sent.Sub(p.since)
		if left <= 0 {
			a.err = &lockError{l.name, ErrUnavailable, advise(last)}
			return a
		}
		var err error
		switch {
		case n == 0 && ctx.Err() != nil:
			err = errNotSent
		case n == 0 && l.grouped && l.client.scripts.prompt(min(p.attempt, left)):
			quick := l.client.scripts.request(ctx)
			if late != nil {
				quick.late = func() {
					var unread T
					late(unread, errNoAnswer)
				}
			}
			a.value, err = request(quick)
			l.client.scripts.put(quick)
		default:
			a.value, err = attempt(ctx, l, min(p.attempt, left), p.stop, request, late)
		}
		o, final := classify(err)
		if o == answered {
			if last != nil {
				p.tell(nil)
			}
			a.err = l.translate(err)
			return a
		}
		a.doubt = a.doubt || o == unknown
		switch err {
		case errRested:
			a.cut, a.err = true, &NotAcquiredError{Name: l.name, Err: ended(ctx)}
			return a
		case errAbandoned, errNotSent:
			a.cut = last == nil && ctx.Err() != nil
			a.err = l.givenUp(ctx, last)
			return a
		}
		l.client.reload(l.client.rdb)
		p.tell(err)
		last = err
		switch {
		case final, p.once && o == notExecuted:
			a.err = &lockError{l.name, ErrUnavailable, advise(err)}
			return a
		case !p.sleep(ctx, min(backOff(n), left-time.Since(a.sent))):
			a.err = l.givenUp(ctx, last)
			return a
		}
	}
}

// givenUp is the error of a call that ended without an answer, because ctx is
// over or, if not, because the client closes. trouble is the error of the last
// attempt, if there was one.
func (l *Lock) givenUp(ctx context.Context, trouble error) error {
	switch {
	case ctx.Err() == nil:
		return &lockError{l.name, ErrClosed, trouble}
	case trouble == nil:
		return &lockError{l.name, ErrUnavailable, fmt.Errorf("no answer: %w", ended(ctx))}
	}
	return &lockError{l.name, ErrUnavailable, fmt.Errorf("%w; last error: %w", ended(ctx), advise(trouble))}
}

func (p patience) tell(err error) {
	if p.told != nil {
		p.told(err)
	}
}

// advise adds to a refusal what an operator can do about it.
func advise(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return err
	}
	var advice string
	switch {
	case hasCode(reply, "NOPERM", "ERR The user executing the script"):
		advice = "the ACL user needs the lock's keys, its channels, and the commands EVALSHA, EVAL, PUBLISH, SUBSCRIBE and those of the scripts"
	case hasCode(reply, "NOAUTH", "WRONGPASS"):
		advice = "check user name and password"
	case hasCode(reply, "OOM"):
		advice = "the server has reached maxmemory and may not evict: it can release and renew locks, but not grant them"
	case hasCode(reply, "READONLY"):
		advice = "this server is a replica: connect to the master"
	case hasCode(reply, "CROSSSLOT"):
		advice = "the keys of this lock are in different cluster slots: rename it"
	default:
		return err
	}
	return fmt.Errorf("%w (%s)", err, advice)
}

// translate turns an answer that is not a success into an error of this package.
func (l *Lock) translate(err error) error {
	if err == nil || errors.Is(err, lua.ErrNotOwner) || errors.Is(err, ErrNotReplicated) {
		return err
	}
	if conflict, ok := errors.AsType[*lua.ConflictError](err); ok {
		err = fmt.Errorf("key %s holds a %s, not a lock", quote(conflict.Key), conflict.Type)
	}
	return &lockError{l.name, ErrKeyConflict, err}
}

var (
	errNotSent   = errors.New("not sent")
	errRested    = errors.New("not sent while this client has the lock")
	errAbandoned = errors.New("abandoned")
	errNoAnswer  = errors.New("no answer in time")
)

// attempt makes a request in a goroutine of its own, because go-redis ends a
// command on the wire neither with its context nor, necessarily, at all. When ctx
// is over, bound has passed, stop is closed or another master of a cluster has taken
// over, it returns and leaves the request behind; what that returns goes to late.
func attempt[T any](ctx context.Context, l *Lock, bound time.Duration, stop <-chan struct{}, request func(context.Context) (T, error), late func(T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none result
	select {
	case <-ctx.Done():
		return none.value, errNotSent
	case <-stop:
		return none.value, errNotSent
	default:
	}
	c := l.client
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	results := make(chan result, 1)
	c.background(func() {
		defer cancel()
		if cluster, ok := c.rdb.(*redis.ClusterClient); ok {
			defer l.leave(own, cluster, cancel).Stop()
		}
		value, err := request(own)
		results <- result{value, err}
	})
	err := errAbandoned
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
	case <-stop:
	case <-own.Done():
		err = errNoAnswer
	}
	select {
	case r := <-results: // it came together with what ended the wait
		return r.value, r.err
	default:
	}
	if late != nil {
		c.background(func() {
			r := <-results
			late(r.value, r.err)
		})
	}
	return none.value, err
}

// backOff is the pause after failed attempt n, counted from 0: 1 ms doubling to
// half a second, the upper half of it random.
func backOff(n int) time.Duration {
	d := min(time.Millisecond<<min(n, 10), 500*time.Millisecond)
	return d/2 + rand.N(d/2)
}

// sleep returns false if ctx or p is over first.
func (p patience) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-p.stop:
		return false
	}
}
