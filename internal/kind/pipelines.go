package kind

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/request"
)

// A pipeline of scripts with WAIT keeps the connection until the replicas acknowledge, or the
// time-out; and callers may come faster than connections become free. So few pipelines are under way
// at once, and each takes all ready scripts with the same trailer: the application and the renewals
// of the client need connections, too.
const (
	maxPipelines = 4                      // under way at once to a node, and as many more overdue
	maxScripts   = 256                    // in one pipeline
	overdue      = 500 * time.Millisecond // beyond the replicas' time-out: then the connection may be dead
)

// pipelines sends scripts in pipelines with one last command about all scripts. The zero value
// is usable, by several goroutines.
type pipelines struct {
	mu    sync.Mutex // guards nodes, and every outgoing in nodes
	nodes map[process]*outgoing
}

// outgoing is the queue of commands for a node. pipelines.mu guards outgoing.
type outgoing struct {
	node  process
	ready list.List // of *trailed; a caller may take an element back at any time
	busy  int       // pipelines under way, without overdue pipelines
	late  int       // overdue pipelines
}

// trailed is the commands of one caller; the last command is a script.
type trailed struct {
	trailer
	ctx  context.Context
	cmds []redis.Cmder
	at   *list.Element // in ready; nil once sent. Guarded by pipelines.mu
	done chan struct{} // closed when all is answered
	last redis.Cmder   // written before done is closed
}

// exec sends the commands of a caller, and returns the trailer's command with its answer. If ctx
// ends before the sending, exec returns nil, and request.ErrNotSent as the error of the script.
// background runs a function in a goroutine; the client's Close waits for the goroutine.
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

// start starts a sending goroutine, up to maxPipelines. mu is held.
func (p *pipelines) start(background func(func()), to *outgoing) {
	if to.ready.Len() > 0 && to.busy < maxPipelines {
		to.busy++
		background(func() { p.drain(background, to) })
	}
}

// takeBack removes unsent commands. takeBack reports false if the commands were sent already.
func (p *pipelines) takeBack(to *outgoing, one *trailed) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.at == nil {
		return false
	}
	to.ready.Remove(one.at)
	return true
}

// drain sends pipelines until nothing is left to send, or a pipeline was overdue.
func (p *pipelines) drain(background func(func()), to *outgoing) {
	for {
		if all := p.take(to); len(all) == 0 || !p.carry(background, to, all) {
			return
		}
	}
}

// carry sends a pipeline, and reports whether the same goroutine must send the next. If the
// pipeline is overdue, another goroutine may send in place of this goroutine.
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
			<-looked // before the end of this goroutine: the client's Close waits for this goroutine only
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

// take returns the commands for the next pipeline: the first in ready, and all others with the
// same trailer. If take returns nothing, the caller sends no more.
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

// tidy forgets a node without commands to send or under way. mu is held.
func (p *pipelines) tidy(to *outgoing) {
	if to.busy == 0 && to.late == 0 && to.ready.Len() == 0 {
		delete(p.nodes, to.node)
	}
}

// send sends one pipeline. The pipeline of a single caller has the values of the caller's context;
// a pipeline of several callers has all contexts: see [request.Callers].
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
