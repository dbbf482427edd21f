package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/rlock"
)

// variety is a kind of lock.
type variety string

const (
	plain     variety = "" // fenced or not
	polling   variety = "polling"
	fair      variety = "fair"
	retained  variety = "retained" // plain locks that their clients keep
	readWrite variety = "rw"
	multi     variety = "multi"
	quorum    variety = "quorum"
	elected   variety = "election" // terms of leaders, which hold a plain lock
	results   variety = "once"     // of package once, under plain locks
)

var varieties = []variety{plain, polling, fair, retained, readWrite, multi, quorum, elected, results}

func (v variety) String() string { return cmp.Or(string(v), "plain") }

// masters is the number of servers that a lock is on.
func (v variety) masters() int {
	if v == quorum {
		return 3
	}
	return 1
}

// retention is how long a lock is kept if its recall is lost.
const retention = 300 * ms

// members is the number of locks in each history of a lock that has members.
const members = 3

// strays reports whether a call may leave something behind for a moment although
// no request is lost: a member that was free, a share of the servers.
func (v variety) strays() bool { return v == multi || v == quorum }

// selection has the faults that each further kind is looked at under: those that
// its own protocol could get wrong, and some of every group. Locks that are kept are looked at
// under all: recalls are lost with subscriptions and replies, and whoever keeps a lock may
// lose it in any way; but nobody keeps one for which a crowd waits. Elections are looked at under all
// as well, but for those that strike nested holds, and the first request of a waiter alone.
var selection = map[variety][]string{
	polling: {
		"nothing", "server killed, restarted empty", "connections cut", "any reply lost", "ACL without SUBSCRIBE",
		"process killed while it holds", "contexts cancelled, replies lost",
	},
	fair: {
		"nothing", "server killed, restarted empty", "server killed, restarted with its data", "FLUSHALL", "DEL",
		"CLIENT KILL, subscriptions", "subscriptions deaf", "connections cut", "connections cut, unseen by the clients", "server slow, hasty callers", "crowd of 2,000",
		"crowd of 2,000, server slow", "reply lost: acquire", "reply lost: release",
		"request late: acquire", "request held back: release", "process stopped for a moment",
		"process killed while it holds", "process killed while it waits", "contexts cancelled, replies lost",
		"Close while waiting and holding",
	},
	multi: {
		"nothing", "server killed, restarted with its data", "server stopped for longer than leases", "connections cut",
		"reply lost: acquire", "request held back: acquire", "any reply lost", "process killed while it holds",
		"contexts cancelled, replies lost", "Close while waiting and holding",
	},
	results: {
		"nothing", "server killed, restarted empty", "server killed, restarted with its data", "server stopped for longer than leases", "FLUSHALL", "DEL",
		"CLIENT KILL, subscriptions", "subscriptions deaf", "connections cut", "connections cut, unseen by the clients", "any reply lost",
		"process stopped for longer than its lease", "process stopped for a moment", "process killed while it holds",
		"process killed while it waits", "contexts cancelled, replies lost", "Close while waiting and holding", "ACL without SUBSCRIBE",
	},
	quorum: { // they strike one server of three
		"nothing", "server killed, restarted empty", "server stopped for longer than leases", "connections cut",
		"connections cut, unseen by the clients", "black hole", "replies swallowed", "process killed while it holds", "contexts cancelled, replies lost",
	},
}

// notReadWrite are the rows of plain locks that are none of read/write locks, which have the same queue,
// with the reasons. TestReadWriteLocksHaveTheRowsOfPlainLocks looks whether each row is here or runs.
var notReadWrite = map[string]string{
	"crowd of 2,000":              "readers of a crowd enter together, so nothing is left of the order that the row looks at",
	"crowd of 2,000, server slow": "likewise",
	"reply lost: queue":           "no request of a read/write lock is for the queue alone",
	"request late: queue":         "likewise",
	"request held back: queue":    "likewise",
}

// ownFaults are those that other kinds do not know.
var ownFaults = map[variety][]fault{retained: retainedFaults, quorum: majorityFaults}

// furtherKinds are the rows of the kinds that are not plain.
func furtherKinds() (rows []fault) {
	for _, v := range varieties[1:] {
		for _, f := range plainRows() {
			if v == retained && !f.alone && !f.crowd || slices.Contains(selection[v], f.name) || slices.Contains(f.also, v) ||
				v == readWrite && !f.alone && notReadWrite[f.name] == "" ||
				v == elected && !f.alone && !f.crowd && !strings.HasSuffix(f.name, ": count") && !strings.HasSuffix(f.name, ": queue") {
				rows = append(rows, f.of(v))
			}
		}
		for _, f := range ownFaults[v] {
			rows = append(rows, f.of(v))
		}
	}
	return rows
}

// of returns the row for another kind of lock.
func (f fault) of(v variety) fault {
	f.lock, f.name = v, string(v)+": "+f.name
	f.harmless = f.harmless && !v.strays()
	if v == quorum { // a server has a tenth of the lease to answer
		f.leases = []string{"900ms", "1500ms"}
	}
	return f
}

// target is one of the locks that an operation is about, and what is known of its
// grant.
type target struct {
	lock, owner string
	token       int64
}

// access is how a client goes about the locks of a step.
type access struct {
	on      []target
	lock    *rlock.Lock   // nil if it has members
	side    *rlock.Lock   // of a read/write lock: the reader
	members []*rlock.Lock // of a multi lock
	leads   *election.Election
}

// of returns the lock, or its reader.
func (a access) of(shared bool) *rlock.Lock {
	if shared {
		return a.side
	}
	return a.lock
}

// taker returns what takes the lock, or its reader.
func (a access) taker(shared bool) taker {
	switch {
	case a.members != nil:
		return several(rlock.NewMultiLock(a.members...))
	case a.leads != nil:
		return candidate{a.leads}
	}
	return one(a.of(shared))
}

// taker is a Lock or a MultiLock, or a candidate.
type taker interface {
	Do(ctx context.Context, fn func(context.Context) error) error
	Lock(ctx context.Context) (context.Context, unlocker, error)
	TryLock(ctx context.Context) (context.Context, unlocker, error)
	TryLockFor(ctx context.Context, wait time.Duration) (context.Context, unlocker, error)
}

// unlocker is a Hold or a MultiHold.
type unlocker interface {
	Unlock(ctx context.Context) error
}

func one(l *rlock.Lock) taker          { return typed[*rlock.Hold]{l} }
func several(m *rlock.MultiLock) taker { return typed[*rlock.MultiHold]{m} }

// candidate takes the leadership, as a lock.
type candidate struct{ *election.Election }

func (c candidate) Lock(ctx context.Context) (context.Context, unlocker, error) {
	held, term, err := c.Campaign(ctx)
	if err != nil {
		return ctx, nil, fmt.Errorf("%w: no term: %v", rlock.ErrUnavailable, err) // it may have been lost, which no lock call says
	}
	return held, leadership{c.Election, term}, nil
}

// TryLock waits: a campaign does.
func (c candidate) TryLock(ctx context.Context) (context.Context, unlocker, error) {
	return c.Lock(ctx)
}

// TryLockFor bounds the campaign, and not the term.
func (c candidate) TryLockFor(ctx context.Context, wait time.Duration) (context.Context, unlocker, error) {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, cancel) // with that of the step
	defer time.AfterFunc(wait, cancel).Stop()
	return c.Lock(ctx)
}

func (c candidate) Do(ctx context.Context, fn func(context.Context) error) error {
	return c.Run(ctx, func(ctx context.Context, _ *election.Term) error { return fn(ctx) })
}

// leadership is a term, as a hold.
type leadership struct {
	e *election.Election
	*election.Term
}

func (l leadership) Unlock(ctx context.Context) error { return l.Resign(ctx) }

// proclaim changes the value and reads it, as leaders and observers do meanwhile. Nothing is required of the
// answers: a failover may forget them.
func (l leadership) proclaim(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 300*ms)
	defer cancel()
	if l.Proclaim(ctx, "again") == nil {
		_, _ = l.e.Leader(ctx)
	}
}

// returns is a lock whose calls return holds of type H.
type returns[H unlocker] interface {
	rlock.Locker
	Lock(ctx context.Context) (context.Context, H, error)
	TryLock(ctx context.Context) (context.Context, H, error)
	TryLockFor(ctx context.Context, wait time.Duration) (context.Context, H, error)
}

// typed makes a taker of such a lock.
type typed[H unlocker] struct{ returns[H] }

func (t typed[H]) Lock(ctx context.Context) (context.Context, unlocker, error) {
	return t.returns.Lock(ctx)
}

func (t typed[H]) TryLock(ctx context.Context) (context.Context, unlocker, error) {
	return t.returns.TryLock(ctx)
}

func (t typed[H]) TryLockFor(ctx context.Context, wait time.Duration) (context.Context, unlocker, error) {
	return t.returns.TryLockFor(ctx, wait)
}

func (c *client) access(s step) (a access) {
	opts := []rlock.LockOption{rlock.WithLeaseTime(c.agenda.lease)}
	if c.agenda.fenced {
		opts = append(opts, rlock.WithFencing())
	}
	if s.fixed {
		opts = append(opts, rlock.WithoutRenewal())
	}
	for _, n := range s.locks {
		a.on = append(a.on, target{lock: c.agenda.locks[n]})
	}
	locks := c.p.locks.Load().clients
	first, name := locks[0], a.on[0].lock
	switch v := c.p.job.Lock; v {
	case polling:
		a.lock = first.NewLock(name, append(opts, rlock.WithPolling(rlock.Polling{First: 5 * ms, Longest: 100 * ms}))...)
	case fair:
		a.lock = first.NewFairLock(name, opts...)
	case readWrite:
		rw := first.NewRWLock(name, opts...)
		a.lock, a.side = rw.Writer(), rw.Reader()
	case quorum:
		a.lock = rlock.NewQuorumLock(name, locks, opts...)
	case elected:
		options := []election.Option{election.WithLease(c.agenda.lease)}
		if !c.agenda.fenced {
			options = append(options, election.WithTakeoverDelay(50*ms))
		}
		a.leads, a.lock = election.New(first, name, "first", options...), first.NewLock(name) // the lock knows the owner
	case retained:
		if !s.fixed {
			opts = append(opts, rlock.WithRetention(retention))
		}
		a.lock = first.NewLock(name, opts...)
	default:
		if len(a.on) == 1 {
			a.lock = first.NewLock(name, opts...)
			break
		}
		for _, t := range a.on {
			a.members = append(a.members, first.NewLock(t.lock, opts...))
		}
	}
	return a
}
