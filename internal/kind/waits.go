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
// their time is over. So few are under way at once, and each takes all that is there for the same
// acknowledgement: the renewals of the client need connections, too.
const (
	maxWaits   = 4                      // pipelines under way at once to a node, and as many more that are overdue
	maxWaiting = 256                    // scripts in one
	overdue    = 500 * time.Millisecond // longer than the replicas have: then the connection may be dead
)

// waits sends scripts in pipelines that end with WAIT, which is about all writes before it on
// that connection. The zero value is usable, by several goroutines.
type waits struct {
	mu    sync.Mutex // guards what follows, and all that is to be acknowledged
	nodes map[process]*toAcknowledge
}

// acknowledgement is what a WAIT asks for.
type acknowledgement struct {
	replicas int
	timeout  time.Duration
}

// toAcknowledge is what is to be sent to a node. waits.mu guards it.
type toAcknowledge struct {
	node  process
	ready list.List // of *waiting, which any of them may leave at any time
	busy  int       // pipelines under way, other than those that are overdue
	late  int       // pipelines that are overdue
}

// waiting is commands of one caller, the last of which is a script.
type waiting struct {
	acknowledgement
	ctx  context.Context
	cmds []redis.Cmder
	at   *list.Element // in ready; nil when it is sent. Guarded by waits.mu
	done chan struct{} // closed when all is answered
	wait *redis.IntCmd // written before done is closed
}

// exec sends the commands of a caller, and returns how many replicas have acknowledged what they
// have written. It returns nil, and request.ErrNotSent as the error of the script, if ctx has ended
// before. background runs a function in a goroutine that the client waits for.
func (w *waits) exec(ctx context.Context, background func(func()), node process, a acknowledgement, cmds []redis.Cmder) *redis.IntCmd {
	one := &waiting{acknowledgement: a, ctx: ctx, cmds: cmds, done: make(chan struct{})}
	w.mu.Lock()
	to := w.nodes[node]
	if to == nil {
		if w.nodes == nil {
			w.nodes = make(map[process]*toAcknowledge)
		}
		to = &toAcknowledge{node: node}
		w.nodes[node] = to
	}
	one.at = to.ready.PushBack(one)
	w.start(background, to)
	w.mu.Unlock()
	select {
	case <-one.done:
	case <-ctx.Done():
		if w.takeBack(to, one) {
			cmds[len(cmds)-1].SetErr(request.ErrNotSent)
			return nil
		}
		<-one.done
	}
	return one.wait
}

// start starts a goroutine that sends, if one more may. mu is held.
func (w *waits) start(background func(func()), to *toAcknowledge) {
	if to.ready.Len() > 0 && to.busy < maxWaits {
		to.busy++
		background(func() { w.drain(background, to) })
	}
}

// takeBack reports whether commands were not sent, and will not be.
func (w *waits) takeBack(to *toAcknowledge, one *waiting) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.at == nil {
		return false
	}
	to.ready.Remove(one.at)
	return true
}

// drain sends pipelines until nothing is left to send, or one was overdue.
func (w *waits) drain(background func(func()), to *toAcknowledge) {
	for {
		if all := w.take(to); len(all) == 0 || !w.carry(background, to, all) {
			return
		}
	}
}

// carry sends a pipeline, and reports whether its goroutine is to send the next. If the pipeline is
// overdue, another goroutine may send in place of this one.
func (w *waits) carry(background func(func()), to *toAcknowledge, all []*waiting) (more bool) {
	replaced, looked := false, make(chan struct{})
	late := time.AfterFunc(all[0].timeout+overdue, func() {
		defer close(looked)
		w.mu.Lock()
		defer w.mu.Unlock()
		if replaced = to.late < maxWaits; replaced {
			to.busy, to.late = to.busy-1, to.late+1
			w.start(background, to)
		}
	})
	ended := true // this goroutine, by a hook of the application
	defer func() {
		if !late.Stop() {
			<-looked // before this goroutine, which the client waits for, has ended
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case replaced:
			to.late--
			w.tidy(to)
		case ended:
			to.busy--
			w.start(background, to)
			w.tidy(to)
		default:
			more = true
		}
	}()
	send(to.node, all)
	ended = false
	return false
}

// take returns what the next pipeline has: the first that waits, and all that ask for the same
// acknowledgement. If it returns nothing, the caller sends no more.
func (w *waits) take(to *toAcknowledge) (all []*waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for e := to.ready.Front(); e != nil && len(all) < maxWaiting; {
		one, next := e.Value.(*waiting), e.Next()
		if len(all) == 0 || one.acknowledgement == all[0].acknowledgement {
			to.ready.Remove(e)
			one.at = nil
			all = append(all, one)
		}
		e = next
	}
	if len(all) == 0 {
		to.busy--
		w.tidy(to)
	}
	return all
}

// tidy forgets a node that nothing is sent to. mu is held.
func (w *waits) tidy(to *toAcknowledge) {
	if to.busy == 0 && to.late == 0 && to.ready.Len() == 0 {
		delete(w.nodes, to.node)
	}
}

// send sends one pipeline. A single caller's has the values of its context, that of several has
// the contexts of all: see [request.Callers].
func send(node process, all []*waiting) {
	var cmds []redis.Cmder
	var callers []context.Context
	for _, one := range all {
		cmds, callers = append(cmds, one.cmds...), append(callers, one.ctx)
	}
	ctx := context.WithoutCancel(callers[0])
	if len(callers) > 1 {
		ctx = request.WithCallers(context.Background(), callers)
	}
	ctx, cancel := context.WithTimeout(ctx, MaxAttempt)
	defer cancel()
	wait := redis.NewIntCmd(ctx, "wait", all[0].replicas, all[0].timeout.Milliseconds())
	answered := false
	defer func() { // also if a hook of the application ends this goroutine
		if !answered {
			wait.SetErr(request.ErrNoAnswer)
		}
		for _, one := range all {
			if !answered {
				one.cmds[len(one.cmds)-1].SetErr(request.ErrNoAnswer)
			}
			one.wait = wait
			close(one.done)
		}
	}()
	node.pipeline(ctx, append(cmds, wait))
	answered = true
}
