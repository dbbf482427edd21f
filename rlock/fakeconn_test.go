package rlock_test

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// fakeConn has buffers in both directions, as a real connection has: the server reads no
// request while it writes a reply, and holds its mutex while it writes a message.
type fakeConn struct {
	net.Conn
	f       *fakeRedis
	deaf    atomic.Bool
	listens atomic.Bool // has subscribed
	used    atomic.Bool // go-redis has set it up: it holds a mutex meanwhile, which stops the bubble's clock
	gap     atomic.Bool // has lost something: nothing comes through any more
	sent    chan transit
	came    chan transit
	rest    []byte // of the newest arrival; of who reads
	closed  chan struct{}
	once    sync.Once

	mu       sync.Mutex // guards deadline
	deadline time.Time  // of reading
}

// carry brings to the server what was written.
func (c *fakeConn) carry() {
	for {
		select {
		case r := <-c.sent:
			time.Sleep(time.Until(r.due))
			if _, err := c.Conn.Write(r.b); err != nil {
				return
			}
		case <-c.closed:
			return
		}
	}
}

func (c *fakeConn) Write(b []byte) (int, error) {
	request := strings.ToLower(string(b))
	if !strings.Contains(request, "\r\nhello\r\n") && !strings.Contains(request, "\r\nclient\r\n") {
		c.used.Store(true)
	}
	if strings.Contains(request, "\r\nsubscribe\r\n") {
		c.listens.Store(true)
		c.deaf.Store(c.deaf.Load() || c.f.deafSubscribe.Load())
	}
	if c.f.deafUp.Load() || c.deaf.Load() {
		return len(b), nil
	}
	select {
	case c.sent <- transit{slices.Clone(b), nil, c.arrives()}:
		return len(b), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

// transit is what is on its way to the server or back, or why nothing more will come.
type transit struct {
	b   []byte
	err error
	due time.Time // when it arrives
}

// collect takes what the server writes. After the end of that each read fails, not only the first.
func (c *fakeConn) collect() {
	defer close(c.came)
	for {
		b := make([]byte, 4096)
		n, err := c.Conn.Read(b)
		select {
		case c.came <- transit{b[:n], err, c.arrives()}:
		case <-c.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

func (c *fakeConn) Read(b []byte) (int, error) {
	for {
		if len(c.rest) > 0 {
			n := copy(b, c.rest)
			c.rest = c.rest[n:]
			return n, nil
		}
		a := c.next()
		if a.err != nil {
			return 0, a.err
		}
		if d := max(time.Duration(c.f.late.Load()), time.Until(a.due)); d > 0 {
			if err := c.delay(d); err != nil {
				return 0, err
			}
		}
		if c.listens.Load() && c.f.deafListeners.Load() {
			c.gap.Store(true)
		}
		if !c.f.deafDown.Load() && !c.gap.Load() {
			c.rest = a.b
		}
	}
}

// next returns what has come, as long as the reader has patience.
func (c *fakeConn) next() transit {
	c.mu.Lock()
	deadline := c.deadline
	c.mu.Unlock()
	var end <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		end = timer.C
	}
	select {
	case a, open := <-c.came:
		if !open {
			return transit{err: io.EOF}
		}
		return a
	case <-end:
		return transit{err: os.ErrDeadlineExceeded}
	case <-c.closed:
		return transit{err: net.ErrClosed}
	}
}

// arrives returns when something arrives that is sent now.
func (c *fakeConn) arrives() time.Time {
	most := time.Duration(c.f.jitter.Load())
	if most == 0 || !c.used.Load() {
		return time.Now()
	}
	return time.Now().Add(rand.N(most))
}

// delay holds up what was read, as long as the reader has patience.
func (c *fakeConn) delay(d time.Duration) error {
	c.mu.Lock()
	left := time.Until(c.deadline)
	impatient := !c.deadline.IsZero() && left < d
	c.mu.Unlock()
	if impatient {
		d = left
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
		return net.ErrClosed
	}
	if impatient {
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (c *fakeConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	return nil
}

func (c *fakeConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *fakeConn) SetWriteDeadline(_ time.Time) error { return nil } // there is room

func (c *fakeConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
