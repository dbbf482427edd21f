package rlock

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
	"github.com/go-rlock/rlock/watchdog"
)

// tickets are those of a client's goroutines that wait for fair locks.
type tickets struct {
	mu      sync.Mutex // guards what follows
	byOwner map[string]*ticket
	newest  map[string]*ticket // by lock key, of those that listen; it is the last to leave
}

// ticket is the place of an owner in the queue of a fair lock, and what it hears.
//
// # On the message alone
//
// A message, also one that came as the answer to a release, says when, on the
// server's clock, the lock was granted, and for how long. To trust it, a moment on the
// clock here is needed that was not after that. Every answer "you are in the queue"
// gives one: the request was sent before it was executed, and was executed before the
// grant, as it found the owner queueing. So the newest such answer says most, and the
// window of the grant is that of a lease taken at the moment its request was sent.
//
// An owner may lose its claim, by being slow, and queue anew. A message from before
// that must not be trusted by an answer from after it: therefore the answer's
// server time must not be later than the message's.
//
// As each ticket is renewed every third of its life, that moment is hardly ever
// longer ago than half a claim, and the window is open. If it was, the owner asks.
type ticket struct {
	*fair // but for the renewals: those of a ticket keep its place
	owner string

	mu     sync.Mutex              // guards what follows
	waiter *pubsub.Waiter          // nil before there is something to hear
	entry  *watchdog.Entry[*grant] // renews the ticket; nil before it is in the queue
	sent   time.Time               // of the newest request that found the owner queueing
	at     int64                   // when that was, on the server's clock, in microseconds
	call   string                  // newest message that came as an answer
	left   bool
}

// open returns a new ticket.
func (ts *tickets) open(f *fair, owner string) *ticket {
	t := &ticket{fair: f, owner: owner}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.byOwner == nil {
		ts.byOwner, ts.newest = make(map[string]*ticket), make(map[string]*ticket)
	}
	ts.byOwner[owner] = t
	return t
}

// of returns the ticket of an owner, nil if there is none.
func (ts *tickets) of(owner string) *ticket {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.byOwner[owner]
}

// tell brings a message to its addressee. One that has left is being released.
func (ts *tickets) tell(call string) {
	owner, _, _ := strings.Cut(call, " ")
	if t := ts.of(owner); t != nil {
		t.mu.Lock()
		t.call = call
		t.mu.Unlock()
		t.wake()
	}
}

// granted returns what a message grants, if it can be trusted.
func (t *ticket) granted() (reply, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiter == nil || t.lock.fixed { // a lease that is not renewed must be a whole one
		return reply{}, false
	}
	if r, ok := t.trust(t.call); ok {
		return r, true
	}
	return t.trust(t.waiter.Message())
}

// trust reads a message. mu is held.
func (t *ticket) trust(call string) (reply, bool) {
	words := strings.Split(call, " ")
	if len(words) < 4 {
		return reply{}, false
	}
	at, err1 := strconv.ParseInt(words[1], 10, 64)
	claim, err2 := strconv.ParseInt(words[2], 10, 64)
	token, err3 := strconv.ParseInt(words[3], 10, 64)
	lease := time.Duration(claim) * time.Millisecond
	if err1 != nil || err2 != nil || err3 != nil || at < t.at || time.Since(t.sent) > lease/2 {
		return reply{}, false
	}
	return reply{Reply: lua.Reply{Acquired: true, Token: token}, sent: t.sent, armed: lease, next: words[4:]}, true
}

// joinEarly begins to listen before the owner asks, if this costs nothing because
// others of the client do: then the grant cannot be missed, and there is no need to
// ask once more.
func (t *ticket) joinEarly() {
	ts := &t.client.tickets
	ts.mu.Lock()
	other := ts.newest[t.key()]
	ts.mu.Unlock()
	if other == nil || !other.Live() {
		return
	}
	if w := t.join(); w != nil {
		select {
		case <-w.C(): // the confirmation, of which nothing new can be learnt
		default:
		}
		if !w.Live() { // any more, and what said so may just have been taken
			w.Wake()
		}
	}
}

// join begins to listen, and returns the waiter if it has not before.
func (t *ticket) join() *pubsub.Waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left || t.waiter != nil {
		return nil
	}
	t.waiter = t.client.hub.JoinNamed(t.channel(), t.owner)
	ts := &t.client.tickets
	ts.mu.Lock()
	ts.newest[t.key()] = t
	ts.mu.Unlock()
	return t.waiter
}

// refused notes that the owner has been put, or left, in the queue.
func (t *ticket) refused(sent time.Time, at int64) {
	t.join()
	t.queueing(sent, at)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.left:
	case t.entry != nil && t.entry.Err() == nil:
		t.entry.Rearm(sent, ticketLife, false)
	default:
		// An error says that the answer was late, or that the client has closed.
		g := &grant{lock: &Lock{client: t.client, name: t.lock.name, protocol: t}, owner: t.owner}
		t.entry, _ = t.client.dog.Add(watchdog.Lease[*grant]{Key: g, Duration: ticketLife, Sent: sent, OnLost: func(error) { t.wake() }})
	}
}

// queueing notes that a request sent at sent found the owner in the queue.
func (t *ticket) queueing(sent time.Time, at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at > t.at {
		t.sent, t.at = sent, at
	}
}

// renewals keep the ticket alive.
func (t *ticket) renewals(owner string, life time.Duration) []renewal {
	sent := time.Now()
	return []renewal{{t.client.rdb, lua.KeepTicket(t.of(owner), life, func(granted bool, at int64) {
		if granted { // the message is on its way, or lost
			t.wake()
		} else {
			t.queueing(sent, at)
		}
	})}}
}

// wake has the owner look for a message, or ask, unless it is about to.
func (t *ticket) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiter != nil {
		t.waiter.Wake()
	}
}

// C, Live and Leave make it an ear.

func (t *ticket) C() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiter == nil {
		return nil
	}
	return t.waiter.C()
}

func (t *ticket) Live() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiter != nil && t.waiter.Live()
}

func (t *ticket) Leave() {
	t.mu.Lock()
	t.left = true
	if t.waiter != nil {
		t.waiter.Leave()
	}
	if t.entry != nil {
		t.entry.Stop()
	}
	t.mu.Unlock()
	ts := &t.client.tickets
	ts.mu.Lock()
	delete(ts.byOwner, t.owner)
	if ts.newest[t.key()] == t {
		delete(ts.newest, t.key())
	}
	ts.mu.Unlock()
}
