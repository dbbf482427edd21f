package netfault

import (
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Proxy passes connections on to one server. All goroutines may call the methods.
//
// Some methods take names of commands in lower case, and then concern only connections with such
// a command: DropDown(true, "subscribe") makes only the pub/sub connections deaf, also after
// a later SUBSCRIBE.
type Proxy struct {
	tb       testing.TB
	upstream string
	listener net.Listener
	wg       sync.WaitGroup // accept, and one per connection

	mu       sync.Mutex // guards the rest, and the marked fields of conn, link and Held
	conns    map[*conn]struct{}
	closed   bool
	refuse   bool
	up, down direction
	rules    []*rule
	stats    Stats
}

// direction is what happens to everything that flows one way.
type direction struct {
	drop  bool
	only  []string // connections to drop, by the commands they have sent; empty: all
	delay time.Duration
}

// Stats counts the acts of the proxy since New, as evidence in tests that the faults happened.
type Stats struct {
	Accepted    int64 // connections
	Refused     int64 // connections, by Refuse
	Requests    int64 // sent to the server
	Dropped     int64 // requests, replies and push messages swallowed after DropUp or DropDown
	RepliesCut  int64 // by CutReplies and CutRandom
	Held        int64 // requests caught by Hold
	HeldReplied int64 // held requests answered by the server
	Late        int64 // requests caught by LateRandom
	LateReplied int64 // late requests answered by the server
	LatePending int64 // late requests that the server may still execute
}

// New listens on a loopback port and passes connections on to upstream until
// the test ends.
func New(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{tb: tb, upstream: upstream, listener: l, conns: make(map[*conn]struct{})}
	tb.Cleanup(p.close)
	p.wg.Go(p.accept)
	return p
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.abort()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				p.tb.Errorf("netfault: %v", err)
			}
			return
		}
		p.mu.Lock()
		refuse := p.refuse
		if refuse {
			p.stats.Refused++
		}
		p.mu.Unlock()
		if refuse {
			reset(client)
			continue
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// Addr returns the host:port to connect to instead of the server's.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Heal switches all faults off, and resets forgotten connections. Requests that are held back or late already
// stay so.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = false
	p.rules = nil
	p.setDelay(0, 0)
	p.setDrop(&p.up, false, nil)
	p.setDrop(&p.down, false, nil)
	for c := range p.conns {
		if c.forgotten { // the keep-alive of TCP finds out
			c.abort()
		}
	}
}

// DropUp swallows the data of clients, and leaves the connections open: a close does not get
// through either. New connections are accepted and treated alike. A connection with lost data
// stays silent in that direction after the fault, because TCP delivers nothing behind a gap; the
// end of the connection is passed on.
func (p *Proxy) DropUp(on bool, sent ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setDrop(&p.up, on, sent)
}

// DropDown swallows the data of the server, as DropUp swallows the data of clients.
func (p *Proxy) DropDown(on bool, sent ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setDrop(&p.down, on, sent)
}

func (p *Proxy) setDrop(d *direction, on bool, only []string) {
	d.drop, d.only = on, only
	for c := range p.conns {
		c.retryEnd()
	}
}

// Forget makes the present connections swallow everything from now on, and returns how many there are.
// Nobody is told, as a firewall tells nobody that has forgotten its connections. New ones are well.
func (p *Proxy) Forget() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if !c.clientGone && !c.forgotten {
			c.forgotten = true
			n++
		}
	}
	return n
}

// Refuse resets new connections as soon as they are accepted.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Delay makes all traffic take that long on the way to the server and back. Data sent together
// arrives together: the order is kept, the throughput as well.
func (p *Proxy) Delay(up, down time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setDelay(up, down)
}

func (p *Proxy) setDelay(up, down time.Duration) { p.up.delay, p.down.delay = up, down }

// CutAll resets the connections. Requests of clients with a closed connection stay on their way:
// no connection is left for such a request.
func (p *Proxy) CutAll(sent ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if !c.clientGone && c.hasSent(sent) {
			c.abort()
		}
	}
}

// Connections returns the number of connections that the clients' side has open.
func (p *Proxy) Connections(sent ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for c := range p.conns {
		if !c.clientGone && c.hasSent(sent) {
			n++
		}
	}
	return n
}

// Stats returns the counters.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// CutReplies lets the server execute the next n matching requests, swallows the replies and resets
// the connections. A nil match is any request; then HELLO and other opening commands count too.
func (p *Proxy) CutReplies(n int, match Match) {
	p.addRule(&rule{match: match, left: n, action: cutReply})
}

// CutRandom cuts like CutReplies, each matching request with that probability. The decisions
// follow from the seed and the order of requests.
func (p *Proxy) CutRandom(rate float64, seed uint64, match Match) {
	p.addRule(&rule{match: match, left: -1, chance: newChance(rate, seed), action: cutReply})
}

// LateRandom resets the connection of each matching request with that
// probability, and delivers the request to the server after a random time
// between least and most. Later requests on the connection are lost.
func (p *Proxy) LateRandom(rate float64, least, most time.Duration, seed uint64, match Match) {
	p.addRule(&rule{match: match, left: -1, chance: newChance(rate, seed), action: late, least: least, most: most})
}

// Hold keeps the next matching request back until [Held.Deliver]. Later requests on the same
// connection wait behind the held request.
func (p *Proxy) Hold(match Match) *Held {
	h := &Held{
		caught:   make(chan struct{}),
		released: make(chan struct{}),
		replied:  make(chan struct{}),
	}
	p.addRule(&rule{match: match, left: 1, action: hold, held: h})
	return h
}

// addRule puts a rule behind the earlier rules. The first rule to fire wins.
func (p *Proxy) addRule(r *rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = slices.DeleteFunc(p.rules, func(r *rule) bool { return r.left == 0 })
	p.rules = append(p.rules, r)
}

// fire returns the rule that hits a request, or nil, and the request's
// arguments. mu is held.
func (p *Proxy) fire(words [][]byte) (*rule, []string) {
	if len(p.rules) == 0 {
		return nil, nil
	}
	args := make([]string, len(words))
	for i, w := range words {
		args[i] = string(w)
	}
	for _, r := range p.rules {
		if r.left != 0 && (r.match == nil || r.match(args)) && (r.chance == nil || r.chance.hit()) {
			r.left = max(r.left-1, -1)
			return r, args
		}
	}
	return nil, nil
}
