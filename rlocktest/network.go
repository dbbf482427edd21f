package rlocktest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// network joins clients and server in memory.
type network struct {
	name  string
	serve func(net.Conn) // starts to serve the other end of a new connection

	mu    sync.Mutex // guards what follows and every pipe; held for moments only, as a bubble's clock stands still meanwhile
	state state
	pipes map[*pipe]struct{} // those with a reader
}

type state int

const (
	healthy state = iota
	hanging
	refusing
)

var networks atomic.Int64

func newNetwork(serve func(net.Conn)) *network {
	return &network{name: fmt.Sprintf("rlocktest-%d", networks.Add(1)), serve: serve, pipes: make(map[*pipe]struct{})}
}

// dial fits redis.Options.Dialer.
func (n *network) dial(_ context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	if n.state == refusing {
		n.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: "memory", Addr: address(addr), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	up, down := n.newPipe(), n.newPipe()
	n.mu.Unlock()
	n.serve(&conn{in: up, out: down})
	return &conn{in: down, out: up}, nil
}

// set changes the state of all connections, present and future.
func (n *network) set(s state) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = s
	for p := range n.pipes {
		if s == refusing {
			p.data, p.err = nil, syscall.ECONNRESET
		}
		p.changed.Broadcast()
	}
}

// pipe is one direction of a connection. It takes whatever is written to it: over
// a net.Pipe, a client in the middle of a long pipeline and a server that answers
// its beginning would wait for each other, and one subscriber that does not read
// would block every PUBLISH.
type pipe struct {
	net *network

	// Guarded by net.mu.
	changed  *sync.Cond // told of every change of what follows, and of net.state
	data     []byte     // written, not read yet
	err      error      // what the reader gets after data; nil while there is a writer
	closed   bool       // there is no reader any more
	deadline time.Time  // of the reader
	timer    *time.Timer
}

func (n *network) newPipe() *pipe {
	p := &pipe{net: n, changed: sync.NewCond(&n.mu)}
	n.pipes[p] = struct{}{}
	return p
}

func (p *pipe) read(b []byte) (int, error) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	for {
		switch {
		case p.closed:
			return 0, net.ErrClosed
		case !p.deadline.IsZero() && !time.Now().Before(p.deadline):
			return 0, os.ErrDeadlineExceeded
		case p.net.state == hanging:
		case len(p.data) > 0:
			n := copy(b, p.data)
			p.data = p.data[n:]
			return n, nil
		case p.err != nil:
			return 0, p.err
		}
		p.changed.Wait()
	}
}

func (p *pipe) write(b []byte) (int, error) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if p.closed || p.err != nil {
		return 0, syscall.EPIPE
	}
	p.data = append(p.data, b...)
	p.changed.Broadcast()
	return len(b), nil
}

// finish is the writer's end: the reader gets the rest, then EOF.
func (p *pipe) finish() {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if p.err == nil {
		p.err = io.EOF
	}
	p.changed.Broadcast()
}

// close is the reader's end.
func (p *pipe) close() {
	p.setDeadline(time.Time{})
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	p.closed, p.data = true, nil
	delete(p.net.pipes, p)
	p.changed.Broadcast()
}

func (p *pipe) setDeadline(t time.Time) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.deadline, p.timer = t, nil
	if !t.IsZero() {
		p.timer = time.AfterFunc(time.Until(t), p.wake)
	}
	p.changed.Broadcast()
}

// wake lets the reader look at its deadline. It takes the mutex, so that it
// cannot come between that look and the wait.
func (p *pipe) wake() {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	p.changed.Broadcast()
}

// conn is one end of a connection.
type conn struct{ in, out *pipe }

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

func (c *conn) Close() error {
	c.out.finish()
	c.in.close()
	return nil
}

func (c *conn) SetDeadline(t time.Time) error     { return c.SetReadDeadline(t) }
func (c *conn) SetReadDeadline(t time.Time) error { c.in.setDeadline(t); return nil }
func (c *conn) SetWriteDeadline(time.Time) error  { return nil } // Write does not wait
func (c *conn) LocalAddr() net.Addr               { return address("client") }
func (c *conn) RemoteAddr() net.Addr              { return address("server") }

type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }
