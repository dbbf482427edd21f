package kind

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/request"
)

// A pipeline of scripts that replicas have to acknowledge keeps its connection until they have, or
// their time is over; and callers may come faster than connections are there. So few are under way
// at once, and each takes all that is there for the same trailer: the application and the renewals
// of the client need connections, too.
const (
	maxPipelines = 4                      // under way at once to a node, and as many more that are overdue
	maxScripts   = 256                    // in one
	overdue      = 500 * time.Millisecond // longer than the replicas have: then the connection may be dead
)

// pipelines sends scripts in pipelines that end with a command about all of them. The zero value
// is usable, by several goroutines.
type pipelines struct {
	mu    sync.Mutex // guards what follows, and all that is to be sent
	nodes map[process]*outgoing
}

// outgoing is what is to be sent to a node. pipelines.mu guards it.
type outgoing struct {
	node  process
	ready list.List // of *trailed, which any of them may leave at any time
	busy  int       // pipelines under way, other than those that are overdue
	late  int       // pipelines that are overdue
}

// trailed is commands of one caller, the last of which is a script.
type trailed struct {
	trailer
	ctx  context.Context
	cmds []redis.Cmder
	at   *list.Element // in ready; nil when it is sent. Guarded by pipelines.mu
	done chan struct{} // closed when all is answered
	last redis.Cmder   // written before done is closed
}

// exec sends the commands of a caller, and returns the one behind them. It returns nil, and
// request.ErrNotSent as the error of the script, if ctx has ended before. background runs a function
// in a goroutine that the client waits for.
func (p *pipelines) exec(ctx context.Context, background func(func()), node process, t trailer, cmds []redis.Cmder) redis.Cmder {
	one := &trailed{trailer: t, ctx: ctx, cmds: cmds, done: make(chan struct{})}
	p.mu.Lock()
	to := p.nodes[node]
	if to == nil {
		if p.nodes == nil {
			p.nodes = make(map[process]*outgoing)
		}
		to = &outgoing{node: node}
		p.nodes[node] = to
	}
	one.at = to.ready.PushBack(one)
	p.start(background, to)
	p.mu.Unlock()
	select {
	case <-one.done:
	case <-ctx.Done():
		if p.takeBack(to, one) {
			cmds[len(cmds)-1].SetErr(request.ErrNotSent)
			return nil
		}
		<-one.done
	}
	return one.last
}

// start starts a goroutine that sends, if one more may. mu is held.
func (p *pipelines) start(background func(func()), to *outgoing) {
	if to.ready.Len() > 0 && to.busy < maxPipelines {
		to.busy++
		background(func() { p.drain(background, to) })
	}
}

// takeBack reports whether commands were not sent, and will not be.
func (p *pipelines) takeBack(to *outgoing, one *trailed) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.at == nil {
		return false
	}
	to.ready.Remove(one.at)
	return true
}

// drain sends pipelines until nothing is left to send, or one was overdue.
func (p *pipelines) drain(background func(func()), to *outgoing) {
	for {
		if all := p.take(to); len(all) == 0 || !p.carry(background, to, all) {
			return
		}
	}
}

// carry sends a pipeline, and reports whether its goroutine is to send the next. If the pipeline is
// overdue, another goroutine may send in place of this one.
func (p *pipelines) carry(background func(func()), to *outgoing, all []*trailed) (more bool) {
	replaced, looked := false, make(chan struct{})
	late := time.AfterFunc(all[0].timeout+overdue, func() {
		defer close(looked)
		p.mu.Lock()
		defer p.mu.Unlock()
		if replaced = to.late < maxPipelines; replaced {
			to.busy, to.late = to.busy-1, to.late+1
			p.start(background, to)
		}
	})
	ended := true // this goroutine, by a hook of the application
	defer func() {
		if !late.Stop() {
			<-looked // before this goroutine, which the client waits for, has ended
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case replaced:
			to.late--
			p.tidy(to)
		case ended:
			to.busy--
			p.start(background, to)
			p.tidy(to)
		default:
			more = true
		}
	}()
	send(to.node, all)
	ended = false
	return false
}

// take returns what the next pipeline has: the first that waits, and all that ask for the same.
// If it returns nothing, the caller sends no more.
func (p *pipelines) take(to *outgoing) (all []*trailed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := to.ready.Front(); e != nil && len(all) < maxScripts; {
		one, next := e.Value.(*trailed), e.Next()
		if len(all) == 0 || one.trailer == all[0].trailer {
			to.ready.Remove(e)
			one.at = nil
			all = append(all, one)
		}
		e = next
	}
	if len(all) == 0 {
		to.busy--
		p.tidy(to)
	}
	return all
}

// tidy forgets a node that nothing is sent to. mu is held.
func (p *pipelines) tidy(to *outgoing) {
	if to.busy == 0 && to.late == 0 && to.ready.Len() == 0 {
		delete(p.nodes, to.node)
	}
}

// send sends one pipeline. A single caller's has the values of its context, that of several has
// the contexts of all: see [request.Callers].
func send(node process, all []*trailed) {
	var cmds []redis.Cmder
	var callers []context.Context
	for _, one := range all {
		cmds, callers = append(cmds, one.cmds...), append(callers, one.ctx)
	}
	ctx := context.WithoutCancel(callers[0])
	if len(callers) > 1 {
		ctx = request.WithCallers(context.Background(), callers)
	}
	ctx, cancel := context.WithTimeout(ctx, all[0].bound())
	defer cancel()
	last := all[0].command(ctx)
	answered := false
	defer func() { // also if a hook of the application ends this goroutine
		if !answered {
			last.SetErr(request.ErrNoAnswer)
		}
		for _, one := range all {
			if !answered {
				one.cmds[len(one.cmds)-1].SetErr(request.ErrNoAnswer)
			}
			one.last = last
			close(one.done)
		}
	}()
	node.pipeline(ctx, append(cmds, last))
	answered = true
}
