package verify

import (
	"io"
	"net"
	"sync"
	"testing"
)

// gateway passes connections on to a server that can be exchanged: the address
// that clients know while a replica takes over.
type gateway struct {
	listener net.Listener
	all      sync.WaitGroup

	mu     sync.Mutex // guards what follows
	target string
	conns  map[net.Conn]struct{}
	closed bool
}

func newGateway(tb testing.TB, target string) *gateway {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	g := &gateway{listener: l, target: target, conns: make(map[net.Conn]struct{})}
	g.all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			g.all.Go(func() { g.serve(client) })
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		g.mu.Lock()
		g.closed = true
		g.mu.Unlock()
		g.point("")
		g.all.Wait()
	})
	return g
}

func (g *gateway) addr() string { return g.listener.Addr().String() }

// turn sends new connections elsewhere.
func (g *gateway) turn(target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.target = target
}

// point also cuts those that there are.
func (g *gateway) point(target string) {
	g.turn(target)
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		_ = c.Close()
	}
}

func (g *gateway) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	g.mu.Lock()
	target := g.target
	g.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !g.admit(client, server, target) {
		return
	}
	var copies sync.WaitGroup
	pass := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		_ = dst.(*net.TCPConn).CloseWrite()
	}
	copies.Go(func() { pass(server, client) })
	copies.Go(func() { pass(client, server) })
	copies.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, client)
	delete(g.conns, server)
}

// admit registers a connection, unless it leads to where nobody is sent any more.
func (g *gateway) admit(client, server net.Conn, target string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.target != target {
		return false
	}
	g.conns[client], g.conns[server] = struct{}{}, struct{}{}
	return true
}
