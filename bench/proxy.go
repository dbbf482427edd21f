package bench

import (
	"net"
	"runtime"
	"sync"
	"time"
)

// proxy delays what passes through it, half of its round trip in each direction.
// It is not package netfault, which is for tests and sleeps on timers: those of
// an idle program are off by more than the delay.
type proxy struct {
	server   Server
	delay    time.Duration
	listener net.Listener
	queue    chan parcel // the delay is the same for all, so first come, first due
	readers  sync.WaitGroup
	writer   sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

// parcel is something to write, or nothing if the sender has closed.
type parcel struct {
	due  time.Time
	to   net.Conn
	data []byte
}

func newProxy(server Server, rtt time.Duration) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{server: server, delay: rtt / 2, listener: listener, queue: make(chan parcel, 1<<16)}
	p.readers.Go(p.accept)
	p.writer.Go(p.deliver)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		network := "tcp"
		if p.server.Network != "" {
			network = p.server.Network
		}
		server, err := net.Dial(network, p.server.Addr)
		if err != nil {
			_ = client.Close()
			continue
		}
		if p.own(client, server) {
			p.readers.Go(func() { p.read(client, server) })
			p.readers.Go(func() { p.read(server, client) })
		}
	}
}

// own remembers connections for close, or closes them if that has been.
func (p *proxy) own(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	}
	p.conns = append(p.conns, conns...)
	return true
}

func (p *proxy) read(from, to net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		p.queue <- parcel{time.Now().Add(p.delay), to, append([]byte(nil), buffer[:n]...)}
		if err != nil {
			return
		}
	}
}

// deliver writes everything, alone: a goroutine per direction would need a
// thread each to sleep as precisely.
func (p *proxy) deliver() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for parcel := range p.queue {
		pause(time.Until(parcel.due))
		if len(parcel.data) == 0 {
			_ = parcel.to.Close()
			continue
		}
		_, _ = parcel.to.Write(parcel.data) // its reader notices
	}
}

// close ends all connections and returns when every goroutine has.
func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.readers.Wait()
	close(p.queue)
	p.writer.Wait()
}
