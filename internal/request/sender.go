package request

import (
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// lone sends a batch in the goroutine of its caller.
func (g *Group) lone(b *batch) {
	defer func() { // also if a hook of the client panics
		if g.pass(b) {
			g.Begin()
			go g.send()
		}
	}()
	g.carry(b)
}

// drain is a sender: it sends the queue until that is empty. What is too much for one
// batch is sent by one more sender, if there may be one. It ends as well when its batch
// was given up: another sender has taken over.
func (g *Group) drain() {
	defer g.End()
	for {
		g.mu.Lock()
		g.starting--
		b := g.take(time.Now())
		g.start()
		g.mu.Unlock()
		if b == nil {
			return
		}
		g.carry(b)
		runtime.Gosched() // whoever was answered, and asks for more, comes along
		if !g.pass(b) {
			return
		}
	}
}

// pass ends a batch's being under way. It reports whether there is a queue that
// nobody else is about to send; then that is counted as starting, and has to send it.
func (g *Group) pass(b *batch) bool {
	defer b.free()
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.given {
		return false
	}
	g.open = slices.DeleteFunc(g.open, func(other *batch) bool { return other == b })
	if g.ready.n == 0 || g.starting > 0 {
		return false
	}
	g.starting++
	return true
}

// carry sends a batch, and tells its callers what has become of it.
func (g *Group) carry(b *batch) {
	if len(b.calls) == 1 && !g.guard {
		b.note.Cmder = b.calls[0].cmd
		_ = g.Client.Process(&b.wait, &b.note)
	} else {
		start := time.Now()
		cmds := make([]redis.Cmder, len(b.calls))
		for i, c := range b.calls {
			if cmds[i] = c.cmd; c.terms.Repeat {
				cmds[i] = apart{c.cmd}
			}
		}
		if g.Send(&b.wait, &marking{g.Client, &b.note, g.guard}, cmds, start.UnixNano() >= g.alone.Load()) {
			g.alone.Store(start.Add(aloneFor).UnixNano())
		}
	}
	g.settle(b)
}

// settle ends the calls of a batch that is over.
func (g *Group) settle(b *batch) {
	var gone []*Call
	now, at := time.Now(), b.note.at.Load()
	unsent := at == 0 && b.wait.Err() != nil
	g.mu.Lock()
	if at != 0 {
		g.pace.answered(b, now.Sub(time.Unix(0, at)))
	}
	b.ended = true
	for _, c := range b.calls {
		switch {
		case c.state == left:
			gone = append(gone, c)
		case c.state != sent:
		case unsent:
			c.tell(over, ErrCrowded)
		default:
			c.tell(over, c.cmd.Err())
		}
	}
	g.mu.Unlock()
	for _, c := range gone {
		if c.terms.Late != nil && !unsent {
			c.terms.Late(c.unread())
		}
	}
}
