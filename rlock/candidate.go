package rlock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/watchdog"
)

// candidate is an owner that asks for a lock: its name, and what it may have left on the server. A name is not asked
// for any more after a request that was left, or was granted. What its requests may have left does not change after the
// grant, so the grant reads it here.
type candidate struct {
	lock     *Lock
	fate     atomic.Uint32 // a set of the bits below
	name     string
	ticket   bool // a request may have left a ticket, for a release to remove
	likely   bool // the server has said so, or an answer was lost
	doubt    bool // a request may have been executed, or may still be, without an answer
	acquired bool // it has the lock, and nobody wants it

	token, spare int64 // of a message that nobody has used

	first grant // what it gets: a field saves an allocation
}

const (
	ownerOver  = 1 << iota // neither asked for nor granted any more: what comes for it now is to be released
	ownerLate              // an attempt that nobody waits for has left something, for the next release to end
	ownerDoubt             // such an attempt may still be executed
)

// ends notes that the owner is over, and returns what has come late before.
func (o *candidate) ends() uint32 { return o.fate.Or(ownerOver) }

// releases notes that a release is about to end what has come late by now.
func (o *candidate) releases() { o.fate.And(^uint32(ownerLate)) }

// init gives the owner a new name. The owner of a polling lock has a mark: the release is announced in
// Redisson's way, so waiters must treat the owner as foreign.
func (o *candidate) init(l *Lock) *candidate {
	mark := ""
	if l.terms.polls {
		mark = "-poll"
	}
	o.lock, o.name = l, l.client.newOwner(mark)
	return o
}

// ask asks the server.
func (o *candidate) ask(ctx context.Context, p request.Policy, opts kind.Options) request.Answer[lua.Reply] {
	p.Leaves = true
	l, name, doubt := o.lock, o.name, o.doubt // the name may change while an abandoned attempt still reads it
	o.doubt = true                            // if a hook ends the goroutine
	a := send(ctx, l, p, func(ctx context.Context, r lua.Runner) (lua.Reply, error) {
		return l.wire.Acquire(ctx, r, name, l.terms.lease, opts)
	}, func(r lua.Reply, err error) { o.late(name, r, err) })
	o.doubt = doubt || a.Doubt
	if a.Value.Owner != "" { // a quorum is asked for a new owner in each round
		o.name, a.Sent = a.Value.Owner, a.Value.Sent
	}
	o.ticket = o.ticket || a.Value.Leftover || o.doubt && opts.Ticket.Claim > 0
	o.likely = o.likely || a.Lost || a.Value.Leftover
	return a
}

// grant makes the grant of an acquired lock: the watchdog has the lease from now on, and the queue the grant. queues.mu is
// held. After an error, which means that no time is left or the client is closed, the owner is to be withdrawn.
func (o *candidate) grant(sent time.Time, lease time.Duration, token int64, r run) (*grant, error) {
	l, c := o.lock, o.lock.client
	g := o.first.init(l, o, sent, lease, token, r)
	g.mu.Lock() // lose waits until the grant is complete
	entry, err := c.dog.Add(watchdog.Lease[*grant]{Key: g, Duration: lease, Renew: l.terms.lease, Sent: sent, Fixed: l.terms.fixed, OnLost: g.lose})
	g.entry = entry
	g.mu.Unlock()
	if err != nil {
		o.acquired = true
		return nil, err
	}
	c.more()
	l.queues.of(l.key).add(g)
	return g, nil
}

// unwanted notes that the owner has the lock, and nobody wants it.
func (o *candidate) unwanted() { o.acquired = true }

// toldOf notes a message that grants the lock to the owner, and that nobody has looked at.
func (o *candidate) toldOf(m lua.Message) {
	o.acquired, o.ticket = true, true
	if o.lock.terms.fenced {
		o.token, o.spare = m.Token, m.Spare
	}
}

// askedTogether notes the outcome of a request for several owners.
func (o *candidate) askedTogether(u request.Unsettled, acquired bool) {
	o.doubt, o.likely, o.acquired = u.Doubt, u.Lost, acquired
}

// withdraw has the janitor take back what the owner may have on the server. Most often there is nothing.
func (o *candidate) withdraw() {
	came := o.ends()
	if o.doubt = o.doubt || came&ownerDoubt != 0; came&ownerLate != 0 {
		o.acquired, o.ticket = true, true
	}
	if o.acquired || o.ticket || o.doubt {
		left := o.lock.leftBy(o.name, o.likely || o.acquired).withTokens(o.token, o.spare)
		if o.ticket {
			left = left.withTicket()
		}
		if left.sweep(); o.doubt {
			left.sweepLater()
		}
	}
}

// late gets the answer to an attempt that nobody waits for any more. While the owner is asked for again, or has the
// lock, the doubt about that attempt is known, and the owner's release ends what it has left.
func (o *candidate) late(owner string, r lua.Reply, err error) {
	l := o.lock
	if r.Owner != "" {
		l.leftBy(r.Owner, false).sweep()
		return
	}
	outcome, _ := l.client.classify(err)
	if outcome == request.NotExecuted || err == nil && !r.Acquired && !r.Leftover {
		return
	}
	doubt, came := outcome == request.Unknown && err != request.ErrUnread, uint32(ownerLate)
	if doubt {
		came |= ownerDoubt
	}
	if o.fate.Or(came)&ownerOver == 0 {
		l.askAgain(owner)
		return
	}
	left := l.leftBy(owner, true).withTicket()
	if left.sweep(); doubt {
		left.sweepLater()
	}
}
