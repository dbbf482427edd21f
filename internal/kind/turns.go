package kind

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
)

// Pauses of a client that waits for a quorum lock.
const (
	minorityPause = 10 * time.Millisecond  // after the message of a minority: the messages of a majority come together
	turnPause     = 220 * time.Millisecond // after the message that another client has the turn: a little longer than the turn, see turn.lua
)

// Only a round takes shares, whoever has the turn: what is said of rounds, in [Quorum.Renewals] above all,
// does not depend on turns.

// turns is the subscription of a client that waits for a quorum lock, to the messages of all servers, and
// what the client knows of its tickets there. A client has one turns for a lock, however many Quorum
// values, so turns is kept by the host.
type turns struct {
	q   *Quorum
	e   Events
	all []*pubsub.Subscription // complete once mu is free

	mu     sync.Mutex  // guards what follows
	over   bool        // closed
	heard  bool        // the messages of a majority arrived when a subscription changed last
	queued bool        // some server may have a ticket
	number int64       // of the tickets; 0 if not known
	told   []string    // by server, the owner in the newest message; "" if another client has the turn
	next   *time.Timer // asks if nothing else happens, at the time at
	at     time.Time
}

// waiting are the turns of a host by the id of the quorum lock.
type waiting struct {
	mu   sync.Mutex
	byID map[string]*turns
}

func (w *waiting) of(id string) *turns {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[id]
}

// Subscribe hears on all servers that this client has the turn.
func (q *Quorum) Subscribe(e Events) Subscription {
	t, w := &turns{q: q, e: e, told: make([]string, len(q.nodes))}, &q.host().waiting
	t.mu.Lock() // until all is complete
	defer t.mu.Unlock()
	for n, p := range q.nodes {
		channel := lua.GrantChannel(p.grant.Key, q.host().ID)
		t.all = append(t.all, p.server.Hub.Subscribe(channel, func(message string) { t.hear(n, message) }, t.changed))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID == nil {
		w.byID = make(map[string]*turns)
	}
	w.byID[q.id] = t
	return t
}

// hear gets a message of server n, see turn.lua. Once a majority has told of the turn the client asks; after
// a minority, the other servers would refuse. The messages of two releases may come mixed, so the newest
// message of each server counts.
func (t *turns) hear(n int, message string) {
	by, another := strings.CutSuffix(message, " +")
	if another {
		by = ""
	}
	told := 0
	t.mu.Lock()
	t.told[n] = by
	for _, other := range t.told {
		if other == by {
			told++
		}
	}
	asks := !another && told == t.q.majority()
	switch {
	case asks:
		t.sleep(0)
	case another:
		t.sleep(turnPause)
	case told < t.q.majority():
		t.sleep(minorityPause)
	}
	t.mu.Unlock()
	if asks {
		t.e.Released()
	}
}

// sleep has the client ask after a pause, unless it is about to ask earlier; not at all if the pause is 0.
// mu is held.
func (t *turns) sleep(pause time.Duration) {
	now := time.Now()
	switch at := now.Add(pause); {
	case pause > 0 && (t.over || t.at.After(now) && t.at.Before(at)):
	case pause > 0:
		if t.next != nil {
			t.next.Stop()
		}
		t.next, t.at = time.AfterFunc(pause, t.e.Released), at
	case t.next != nil:
		t.next.Stop()
		t.next, t.at = nil, time.Time{}
	}
}

// live counts the servers whose messages arrive.
func (t *turns) live() (n int) {
	t.mu.Lock()
	all := t.all
	t.mu.Unlock()
	for _, s := range all {
		if s.Live() {
			n++
		}
	}
	return n
}

// Live reports whether the messages of a majority arrive.
func (t *turns) Live() bool { return t.live() >= t.q.majority() }

// changed is called when a server has confirmed a subscription, or lost it. The client asks once all
// servers have confirmed, or a majority, and the rest is late; and when too few are left.
func (t *turns) changed() {
	n := t.live()
	t.mu.Lock()
	was := t.heard
	t.heard = n >= t.q.majority()
	changed := n == len(t.q.nodes) || was && !t.heard
	switch {
	case changed:
		t.sleep(0)
	case t.heard:
		t.sleep(minorityPause)
	}
	t.mu.Unlock()
	if changed {
		t.e.Changed()
	}
}

// ticket is what a round tells the servers of this client; the zero value in the first round of a wait,
// before the client listens to the messages. A client that cannot listen takes no ticket.
func (q *Quorum) ticket() (*turns, lua.Turn) {
	t := q.host().waiting.of(q.id)
	switch {
	case t == nil:
		return nil, lua.Turn{}
	case !t.Live():
		return t, lua.Turn{Client: lua.Everybody}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queued = true
	return t, lua.Turn{Client: q.host().ID, Number: t.number}
}

// refused notes the numbers of this client's tickets. It reports whether the servers disagree: the client
// has to raise its tickets to the greatest number.
func (t *turns) refused(numbers []int64) (disagree bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range numbers {
		t.number = max(t.number, n)
	}
	for _, n := range numbers {
		disagree = disagree || n > 0 && n < t.number
	}
	return disagree
}

// granted notes that the client has the lock. The release takes out the tickets.
func (t *turns) granted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number, t.queued = 0, false
	t.sleep(0)
}

// released notes that a release has taken out the tickets of this client. A waiter asks for new tickets,
// as otherwise nobody would tell the client:
//
//	waiter, same client           servers                          holder a:1
//	round a:2, after 5 s  ──────► refused, a ticket
//	                              free, no ticket          ◄────── release a:1
//	                      ◄────── the refusals
//	asks, by released     ──────► a:3 holds
func (t *turns) released() {
	t.mu.Lock()
	t.number = 0
	t.mu.Unlock()
	t.e.Released()
}

// Close ends the subscription. A client that leaves without the lock takes out its tickets, and passes on
// the turn.
func (t *turns) Close() {
	w := &t.q.host().waiting
	w.mu.Lock()
	if w.byID[t.q.id] == t {
		delete(w.byID, t.q.id)
	}
	w.mu.Unlock()
	for _, s := range t.all {
		s.Close()
	}
	t.mu.Lock()
	t.over = true
	t.sleep(0)
	leaves, number := t.queued, t.number
	t.mu.Unlock()
	if leaves && number > 0 {
		t.q.leave(number)
	}
}

// late is called when a server has answered after its round, with the number of the ticket there, 0 if not
// known. The client may have left by then, and its request to take the ticket out may have overtaken the
// request for the ticket.
func (t *turns) late(server int, number int64) {
	t.mu.Lock()
	leaves := t.over && t.queued
	number = max(number, t.number)
	t.mu.Unlock()
	if leaves {
		t.q.leaveServer(server, number, t.q.host().Owner())
	}
}

// leave takes out the tickets of this client, with this number at most, or any number if that is 0: in one
// attempt, as a ticket that stays costs the others one turn. The messages about the turns that the servers give
// then have the name of a new owner without a share, because hear takes messages with one name for those of one
// event.
func (q *Quorum) leave(number int64) {
	owner := q.host().Owner()
	for n := range q.nodes {
		q.leaveServer(n, number, owner)
	}
}

func (q *Quorum) leaveServer(n int, number int64, owner string) {
	p := q.nodes[n]
	p.server.Background(func() {
		ctx, cancel := context.WithTimeout(context.Background(), q.bound())
		defer cancel()
		_, _ = lua.Yield(ctx, p.server.Scripts, p.shareOf(owner), lua.Turn{Client: q.host().ID, Number: number}, false)
	})
}
