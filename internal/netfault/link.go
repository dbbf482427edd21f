package netfault

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// link is one direction of a connection: a queue between the reader and the writer.
type link struct {
	wake chan struct{} // capacity 1; the reader sends after a put

	mu    sync.Mutex // guards items
	items []item

	// Guarded by Proxy.mu:
	gap     bool // something was swallowed
	endLost bool // the end of the stream was swallowed
}

// item is data to write, or an act after the writing of all earlier items.
type item struct {
	raw []byte
	due time.Time // zero: at once
	req *request  // that raw is; nil for what comes from the server
	end end
}

type end int

const (
	goesOn end = iota
	closes     // the sender has closed
	resets     // the fault is to reset the connection here
)

func newLink() *link { return &link{wake: make(chan struct{}, 1)} }

func (l *link) put(it item) {
	l.mu.Lock()
	l.items = append(l.items, it)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns all items, and keeps spare for later items.
func (l *link) take(spare []item) []item {
	l.mu.Lock()
	defer l.mu.Unlock()
	items := l.items
	l.items = spare[:0]
	return items
}

// write sends the items of l. Errors are ignored: the reader of the same connection notices a
// gone peer, and the remaining items are still taken.
func (c *conn) write(l *link) {
	dst := c.client
	if l == c.up {
		dst = c.server
	}
	w := bufio.NewWriterSize(dst, 16<<10)
	var items []item
	for {
		select {
		case <-l.wake:
		case <-c.done:
			return
		}
		items = l.take(items)
		for _, it := range items {
			if !c.await(w, it) {
				return
			}
			switch {
			case it.end == closes:
				_ = w.Flush()
				c.close(l)
				return
			case it.end == resets:
				_ = w.Flush()
				c.p.mu.Lock()
				c.abort()
				c.p.mu.Unlock()
				return
			}
			if it.req != nil {
				c.p.mu.Lock()
				c.pending = append(c.pending, it.req)
				c.p.stats.Requests++
				c.p.mu.Unlock()
			}
			_, _ = w.Write(it.raw)
		}
		_ = w.Flush()
	}
}

// await waits until an item may go, and reports false if the connection ends before. Items
// written already must not wait as well.
func (c *conn) await(w *bufio.Writer, it item) bool {
	var due <-chan time.Time
	if wait := time.Until(it.due); !it.due.IsZero() && wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	var released, serverGone <-chan struct{}
	if it.req != nil {
		serverGone = c.serverGone // no use in waiting longer
		if it.req.held != nil {
			released = it.req.held.released
		}
	}
	for due != nil || released != nil {
		_ = w.Flush()
		select {
		case <-due:
			due = nil
		case <-released:
			released = nil
		case <-serverGone:
			return true
		case <-c.done:
			return false
		}
	}
	return true
}

// close passes the end of a stream on. The server's direction stays open for
// replies, which tell that a late request was executed.
func (c *conn) close(l *link) {
	if l == c.up {
		_ = c.server.(*net.TCPConn).CloseWrite()
		return
	}
	_ = c.client.Close()
}
