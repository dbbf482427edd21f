package pubsub

import (
	"maps"
	"math"
	"slices"
	"time"
)

// maxInquiries bounds the inquiries under way. An inquiry may have asked a silent server, and
// ends with a time-out of the client; the next inquiry perhaps asks another server.
const maxInquiries = 12

// route assigns ch, without a server so far, to the server that serves ch.
func (h *Hub) route(ch *channel) {
	name, err := h.servers.Find(h.ctx, ch.name)
	h.mu.Lock()
	defer h.unlock()
	switch {
	case h.channels[ch.name] != ch: // nobody wants ch any more
	case err != nil:
		h.lose(ch)
	default:
		h.assign(ch, name)
	}
}

// assign makes ch a channel of the named server. mu is held, as for the rest of this file but
// search.
func (h *Hub) assign(ch *channel, name string) {
	n := h.nodes[name]
	if n == nil {
		n = newNode(h, name)
		h.nodes[name] = n
		h.wg.Go(n.run)
	}
	ch.node = n
	n.channels[ch.name] = ch
	if ch.occupied() {
		ch.stir()
	}
	h.settle(ch)
}

// lose takes ch from a server that does not serve ch, or not now, and has another server
// looked for. No request about ch is open.
func (h *Hub) lose(ch *channel) {
	if ch.node != nil {
		ch.node.drop(ch)
	}
	ch.asked = false
	if ch.live {
		ch.live = false
		ch.changed() // listeners of channels not live rely on nothing
	}
	if !ch.wanted() {
		h.forget(ch)
		return
	}
	h.lost = append(h.lost, ch)
	h.inquire()
	if !h.searching {
		h.searching = true
		h.wg.Go(h.search)
	}
}

// search routes lost channels, and ends when there are none. The pauses give the news about
// the servers time to arrive, and grow until the news arrives.
func (h *Hub) search() {
	for {
		h.mu.Lock()
		fewest := math.MaxInt
		for _, ch := range h.lost {
			fewest = min(fewest, ch.moves)
		}
		h.searching = len(h.lost) > 0 && !h.closed
		again := h.searching
		h.mu.Unlock()
		if !again {
			return
		}
		select {
		case <-time.After(backoff(fewest)):
		case <-h.ctx.Done():
		}
		h.mu.Lock()
		lost := h.lost
		h.lost = nil
		for _, ch := range lost {
			ch.moves++
		}
		h.mu.Unlock()
		for _, ch := range lost {
			h.route(ch)
		}
	}
}

// inquire fetches the news about the servers in the background, and then has every node
// verified. The caller waits for nothing.
func (h *Hub) inquire() {
	if h.inquiries == maxInquiries || h.closed {
		return
	}
	h.inquiries++
	h.wg.Go(func() {
		h.servers.Refresh(h.ctx)
		h.mu.Lock()
		h.inquiries--
		nodes := slices.Collect(maps.Values(h.nodes))
		h.mu.Unlock()
		for _, n := range nodes {
			n.verify()
		}
	})
}

// forget ends an unwanted channel; no request about the channel is open.
func (h *Hub) forget(ch *channel) {
	delete(h.channels, ch.name)
	h.active.Store(int64(len(h.channels)))
	if ch.node != nil {
		ch.node.drop(ch)
	}
}
