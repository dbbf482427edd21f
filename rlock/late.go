package rlock

import (
	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
)

// leftover is whether attempts to acquire have left something on the server.
type leftover struct {
	some  bool // something to release
	doubt bool // one of them may still arrive
}

// lateAnswers is what answers have told that came when their caller had left.
type lateAnswers struct {
	leftover
	over bool // nothing is sent for the grant any more
}

// late gets the answer to an attempt to acquire whose caller has left.
func (g *grant) late(a kind.Answer, err error) {
	if a.Owner != "" { // another owner than g's: what became of g says nothing about it
		g.lock.leftBy(a.Owner).sweep()
		return
	}
	o, _ := classify(err)
	if o == request.NotExecuted || err == nil && !a.Acquired && !a.Leftover {
		return
	}
	doubt := o == request.Unknown && err != request.ErrUnread
	if g.keep(doubt) { // a waiter that took the attempt over may have the lock by now
		g.lock.askAgain(g.owner)
		return
	}
	left := g.lock.leftBy(g.owner).withTicket()
	left.likely = true
	left.clear(leftover{some: true, doubt: doubt})
}

// keep notes that an attempt has left something on the server, which is released with the
// grant. It returns false if the grant has been released or lost already.
func (g *grant) keep(doubt bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left.some, g.left.doubt = true, g.left.doubt || doubt
	return !g.left.over && g.state != lost
}

// takeLeft returns what late answers have reported since the last call. last says that
// nothing is sent for the grant any more.
func (g *grant) takeLeft(last bool) leftover {
	g.mu.Lock()
	defer g.mu.Unlock()
	left := g.left.leftover
	g.left = lateAnswers{over: last}
	return left
}
