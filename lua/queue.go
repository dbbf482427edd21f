package lua

import (
	"context"
	_ "embed"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
)

//go:embed queue.lua
var queueSource string

//go:embed pass.lua
var passSource string

//go:embed ask.lua
var askSource string

//go:embed ask_fast.lua
var askFastSource string

//go:embed ask_fair.lua
var askFairSource string

//go:embed announce.lua
var announceSource string

//go:embed apart.lua
var apartSource string

// queueing is what the scripts of plain locks that know a queue begin with.
func queueing() string { return granting() + announceSource + queueSource + passSource }

var (
	askScript           = newJoint("ask", askFastSource, queueing()+recallSource+askSource, "ask(KEYS[k], KEYS[k+1], nil, unpack(ARGV, a, a+4))", 2, 5, 1)
	askFencedScript     = newJoint("ask", "", queueing()+recallSource+askSource, "ask(KEYS[k], KEYS[k+1], KEYS[k+2], unpack(ARGV, a, a+5))", 3, 6, 1)
	askFairScript       = newJoint("ask", "", queueing()+recallSource+askSource+askFairSource, "askfair(KEYS[k], KEYS[k+1], KEYS[k+2], KEYS[k+3], nil, unpack(ARGV, a, a+4))", 4, 5, 1)
	askFairFencedScript = newJoint("ask", "", queueing()+recallSource+askSource+askFairSource, "askfair(KEYS[k], KEYS[k+1], KEYS[k+2], KEYS[k+3], KEYS[k+4], unpack(ARGV, a, a+5))", 5, 6, 1)

	apartScript = newScript("apart", queueing()+apartSource, 0)
)

// Hearing says how the client of a queued owner receives the message that grants the lock.
type Hearing int

// Ways of hearing.
const (
	Deaf       Hearing = iota // the client receives no messages, or not yet, so the owner repeats its request on a timer
	Counted                   // by PUBLISH on a single server, which skips clients that are not subscribed
	Uncounted                 // by PUBLISH in a cluster, where the server does not know all subscribers
	ShardHeard                // by SPUBLISH, which skips clients that are not subscribed
)

// Ticket says how an owner waits. The zero value means that the owner does not wait.
type Ticket struct {
	Claim time.Duration // the lease with which the lock is granted to this owner at first, up to [MaxClaim]
	Hears Hearing
}

// MaxClaim is the maximum length of a claim, which is the provisional lease with which a lock is granted to a
// waiter.
const MaxClaim = 8 * time.Second

// Place is the place of an owner in the queue. The zero value means that the owner has no ticket (entry in the
// queue), because it did not ask for one or because the server has no memory left.
type Place struct {
	Time  int64 // the time of the server at the reply, in microseconds
	First bool  // true if no ticket is before the owner's, so Before is 0
	New   bool  // true if the owner had no ticket before
	Queue int64 // approximate number of tickets in the queue

	Before int64 // number of tickets before the owner's

	Absent bool // true if the server has no subscription of the client, although Hears is Counted
	Mute   bool // for a read/write lock: true if the server refuses to publish the messages for tickets
}

// Held reports whether the owner has a ticket.
func (p Place) Held() bool { return p.Time != 0 }

// Ask is [Acquire] for owners that queue. If the lock is free and no other owner is ahead in the queue, Ask
// acquires it for g.Owner. If Ask does not acquire the lock, g.Owner gets a ticket (an entry in the queue), or
// keeps its ticket and place if it already has one. If the lock is free but other owners are ahead in the
// queue, Ask grants the lock to the first of them.
func Ask(ctx context.Context, r Runner, g Grant, lease time.Duration, t Ticket, spare int64) (Reply, error) {
	s, keys := &askScript, make([]string, 2, 5)
	keys[0], keys[1] = g.Key, g.Queue
	claim, waits := int64(0), t.Claim > 0
	if waits {
		claim = min(millis(t.Claim), MaxClaim.Milliseconds())
	}
	args := make([]any, 5, 6)
	args[0], args[1], args[2], args[3], args[4] = millis(lease), g.Owner, g.ChannelKind.Publish(), claim, int(t.Hears)
	fair, fenced := g.Rivals[0] != "", g.Counter != ""
	if fair {
		s, keys = &askFairScript, append(keys, g.Rivals[:]...)
	}
	if fenced {
		keys, args = append(keys, g.Counter), append(args, spare)
		if s = &askFencedScript; fair {
			s = &askFairFencedScript
		}
	}
	answer, err := s.run(ctx, r, keys, args...)
	if err != nil {
		return Reply{}, err
	}
	reply, err := answer.granted(fenced)
	if !answer.done && waits {
		reply.Place = answer.place()
		reply.Leftover = reply.Place.Held()
	}
	return reply, err
}

// place reads where a refused owner stands.
func (r reply) place() Place {
	taken := r.int(5)
	if taken < 0 {
		return Place{}
	}
	return Place{Time: r.int(3), First: r.int(4) == 0, Before: r.int(4), New: taken == 1, Queue: r.int(6), Absent: r.int(7) == 1}
}

// ServeApart serves the queue of a lock on a cluster node that has the queue but not the lock, because their
// slot is moving. It removes the given tickets, which are entries of the queue. If the lock was released, it
// notifies the first owner that can receive messages, so that this owner requests the lock.
func ServeApart(ctx context.Context, r Runner, g Grant, tickets []string, released bool) error {
	ask := 0
	if released {
		ask = 1
	}
	_, err := apartScript.run(ctx, r, []string{g.Queue}, g.ChannelKind.Publish(), strings.Join(tickets, " "), ask)
	return err
}

// Message is a message that a client receives about the queue of a lock.
type Message struct {
	Owner   string        // the owner that the message is for; for [Everybody], all waiters of the client have lost their places and must send their requests again
	Granted bool          // true if the owner holds the lock now; otherwise it can request the lock
	Time    int64         // when the lock was granted, by the clock of the server, in microseconds
	Claim   time.Duration // the lease with which the lock was granted
	Token   int64         // fencing token; 0 if the client that released the lock uses no tokens
	Spare   int64         // number of tokens reserved after Token
	Next    []string      // owners of the same client that directly follow Owner in the queue
}

// Everybody is the owner in a message that is for all waiters of a client.
const Everybody = "*"

// ReadMessages reads the payload of a channel named by [GrantChannel] or [GrantChannelRW], or the Message that
// a release has returned. The text has one message per line. For a plain lock it has one line.
func ReadMessages(payload string) iter.Seq[Message] {
	return func(yield func(Message) bool) {
		for line := range strings.SplitSeq(payload, "\n") {
			if !yield(ReadMessage(line)) {
				return
			}
		}
	}
}

// ReadMessage reads one line of a payload. A line that does not have the expected form is not a grant.
func ReadMessage(line string) Message {
	words := strings.Split(line, " ")
	m := Message{Owner: words[0]}
	if len(words) < 5 || m.Owner == "" || m.Owner == Everybody {
		return m
	}
	var numbers [4]int64
	for i := range numbers {
		n, err := strconv.ParseInt(words[i+1], 10, 64)
		if err != nil || n < 0 {
			return m
		}
		numbers[i] = n
	}
	at, claim, token, spare := numbers[0], numbers[1], numbers[2], numbers[3]
	if claim == 0 || claim > MaxClaim.Milliseconds() || token > math.MaxInt64-spare {
		return m
	}
	m.Granted, m.Time, m.Claim = true, at, time.Duration(claim)*time.Millisecond
	m.Token, m.Spare, m.Next = token, spare, words[5:]
	return m
}
