package netfault

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// conn is a client's connection, and the connection to the server for this client. Each
// direction has a reading and a writing goroutine, and a link between the two.
type conn struct {
	p              *Proxy
	client, server net.Conn
	up, down       *link
	done           chan struct{} // closed by abort
	serverGone     chan struct{} // closed when no reply can come any more

	// Guarded by p.mu:
	clientGone bool
	forgotten  bool // swallows everything, in both directions
	aborted    bool
	sent       map[string]bool // commands seen from the client
	subscribed bool            // in RESP2, where messages look like replies
	pending    []*request      // sent to the server, oldest first
	late       bool            // a late request is on its way
}

// request is a request on the way to an answer by the server.
type request struct {
	name     string // lower case
	confirms int    // messages that answer a SUBSCRIBE or the like; 0 for other commands
	cut      bool   // swallow the reply and reset
	late     bool
	held     *Held
}

// reset closes a connection: the peer sees "connection reset".
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

// serve runs one connection until both sides have ended.
func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		reset(client)
		return
	}
	c := &conn{
		p: p, client: client, server: server,
		up: newLink(), down: newLink(),
		done: make(chan struct{}), serverGone: make(chan struct{}),
		sent: make(map[string]bool),
	}
	p.mu.Lock()
	p.conns[c] = struct{}{}
	p.stats.Accepted++
	if p.closed {
		c.abort()
	}
	p.mu.Unlock()

	var readers, writers sync.WaitGroup
	readers.Go(c.readClient)
	readers.Go(c.readServer)
	writers.Go(func() { c.write(c.up) })
	writers.Go(func() { c.write(c.down) })
	readers.Wait()
	// An end that was swallowed keeps a peer waiting; nobody is left to wait.
	c.up.put(item{end: closes})
	c.down.put(item{end: closes})
	writers.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	c.abort()
	delete(p.conns, c)
	if c.late {
		p.stats.LatePending--
	}
}

// abort resets both sides. p.mu is held.
func (c *conn) abort() {
	if c.aborted {
		return
	}
	c.aborted, c.clientGone = true, true
	close(c.done)
	reset(c.client)
	reset(c.server)
}

// hasSent reports whether the client has sent one of these commands, or none is
// asked for. p.mu is held.
func (c *conn) hasSent(names []string) bool {
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return c.sent[name] })
}

func (c *conn) direction(l *link) *direction {
	if l == c.up {
		return &c.p.up
	}
	return &c.p.down
}

// drops reports whether data on its way over l is to be swallowed now. p.mu is held.
func (c *conn) drops(l *link) bool {
	d := c.direction(l)
	return c.forgotten || d.drop && c.hasSent(d.only)
}

// swallows does the same for data, and remembers the gap. p.mu is held.
func (c *conn) swallows(l *link) bool {
	if !l.gap && !c.drops(l) {
		return false
	}
	l.gap = true
	c.p.stats.Dropped++
	return true
}

// finish passes the end of a stream on. p.mu is held.
func (c *conn) finish(l *link) {
	if c.drops(l) {
		l.endLost = true
		return
	}
	l.endLost = false
	l.put(item{end: closes, due: c.direction(l).due()})
}

// retryEnd passes on an end swallowed by a fault that is over. p.mu is held.
func (c *conn) retryEnd() {
	for _, l := range []*link{c.up, c.down} {
		if l.endLost {
			c.finish(l)
		}
	}
}

// due returns when data arriving now leaves.
func (d *direction) due() time.Time {
	if d.delay == 0 {
		return time.Time{}
	}
	return time.Now().Add(d.delay)
}

func (c *conn) readClient() {
	r := newRequestReader(c.client)
	for {
		f, err := r.next()
		if err != nil {
			c.complain(err)
			break
		}
		if !c.fromClient(f) {
			break
		}
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.clientGone = true
	c.finish(c.up)
}

// fromClient deals with one request, and reports whether the client still has
// its connection.
func (c *conn) fromClient(f frame) bool {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	it := item{raw: f.raw, due: p.up.due()}
	if len(f.words) == 0 { // the server ignores an empty request
		c.up.put(it)
		return true
	}
	req := &request{name: strings.ToLower(string(f.words[0]))}
	if isSubscription(req.name) {
		req.confirms = max(1, len(f.words)-1)
	}
	it.req = req
	c.sent[req.name] = true
	if c.swallows(c.up) {
		return true
	}
	if r, args := p.fire(f.words); r != nil {
		switch r.action {
		case cutReply:
			req.cut = true
		case hold:
			req.held = r.held
			r.held.conn, r.held.args = c, args
			close(r.held.caught)
			p.stats.Held++
		case late:
			c.late, req.late = true, true
			it.due = time.Now().Add(r.lateness())
			p.stats.Late++
			p.stats.LatePending++
			reset(c.client)
		}
	}
	c.up.put(it)
	return !req.late
}

func (c *conn) readServer() {
	r := newReplyReader(c.server)
	for {
		f, err := r.next()
		if err != nil {
			c.complain(err)
			break
		}
		c.fromServer(f)
	}
	close(c.serverGone)
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.finish(c.down)
}

func (c *conn) fromServer(f frame) {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	it := item{raw: f.raw, due: p.down.due()}
	req := c.answered(f)
	if req != nil && req.held != nil {
		p.stats.HeldReplied++
		defer close(req.held.replied)
	}
	if req != nil && req.late {
		p.stats.LateReplied++
		p.stats.LatePending--
		c.late = false
	}
	if c.swallows(c.down) {
		return
	}
	if req != nil && req.cut {
		p.stats.RepliesCut++
		it.raw, it.end = nil, resets
	}
	c.down.put(it)
}

// answered returns the request completed by a frame from the server: none for a push message.
// p.mu is held.
func (c *conn) answered(f frame) *request {
	var head *request
	if len(c.pending) > 0 {
		head = c.pending[0]
	}
	var word string
	if kind := f.raw[0]; len(f.words) > 0 && (kind == '>' || kind == '*') {
		word = string(f.words[0])
	}
	switch {
	case head == nil: // -ERR max number of clients reached comes unasked
		return nil
	case head.confirms > 0 && word == head.name:
		c.subscribed = f.raw[0] == '*'
		head.confirms--
		if head.confirms > 0 {
			return nil
		}
	case f.raw[0] == '>', c.subscribed && isPubSub(word):
		return nil
	}
	c.pending = c.pending[1:]
	return head
}

func isSubscription(word string) bool {
	switch word {
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		return true
	}
	return false
}

// isPubSub reports whether an array that starts with word is no reply to a
// connection in RESP2's subscribed mode.
func isPubSub(word string) bool {
	return isSubscription(word) || word == "message" || word == "pmessage" || word == "smessage"
}

// complain makes a test fail after traffic beyond the proxy's understanding: the lost connection
// would pass for a fault.
func (c *conn) complain(err error) {
	if errors.Is(err, errMalformed) {
		c.p.tb.Errorf("netfault: %v", err)
	}
}
