package kind

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/request"
)

// Pipelines of scripts that replicas have to acknowledge keep their connections until these have,
// or their time is over. So few are under way at once, and each takes all that is there: the
// renewals of the same client need connections, too.
const (
	maxWaits   = 4   // pipelines under way at once, to a node
	maxWaiting = 256 // scripts in one
)

// waits sends scripts in pipelines that end with WAIT, which is about all writes before it on
// that connection. The zero value is usable, by several goroutines.
type waits struct {
	mu    sync.Mutex // guards what follows
	nodes map[acknowledgement]*toAcknowledge
}

// acknowledgement is what a WAIT asks for, and of whom.
type acknowledgement struct {
	rdb      redis.UniversalClient
	replicas int
	timeout  time.Duration
}

// toAcknowledge is what is to be sent for one acknowledgement. waits.mu guards it.
type toAcknowledge struct {
	ready []*waiting
	busy  int // pipelines under way
}

// waiting is commands of one caller, the last of which is a script.
type waiting struct {
	ctx  context.Context
	cmds []redis.Cmder
	sent bool          // guarded by waits.mu
	done chan struct{} // closed when all is answered
	wait *redis.IntCmd // written before done is closed
}

// exec sends the commands of a caller, and returns how many replicas have acknowledged what they
// have written. It returns nil, and request.ErrNotSent as the error of the script, if ctx has ended
// before. background runs a function in a goroutine that the client waits for.
func (w *waits) exec(ctx context.Context, background func(func()), a acknowledgement, cmds []redis.Cmder) *redis.IntCmd {
	one := &waiting{ctx: ctx, cmds: cmds, done: make(chan struct{})}
	w.mu.Lock()
	at := w.nodes[a]
	if at == nil {
		if w.nodes == nil {
			w.nodes = make(map[acknowledgement]*toAcknowledge)
		}
		at = new(toAcknowledge)
		w.nodes[a] = at
	}
	at.ready = append(at.ready, one)
	starts := at.busy < maxWaits
	if starts {
		at.busy++
	}
	w.mu.Unlock()
	if starts {
		background(func() { w.drain(a, at) })
	}
	select {
	case <-one.done:
	case <-ctx.Done():
		if w.takeBack(at, one) {
			cmds[len(cmds)-1].SetErr(request.ErrNotSent)
			return nil
		}
		<-one.done
	}
	return one.wait
}

// takeBack reports whether commands were not sent, and will not be.
func (w *waits) takeBack(at *toAcknowledge, one *waiting) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.sent {
		return false
	}
	at.ready = slices.DeleteFunc(at.ready, func(other *waiting) bool { return other == one })
	return true
}

// drain sends pipelines until nothing is left to send.
func (w *waits) drain(a acknowledgement, at *toAcknowledge) {
	for {
		all := w.take(a, at)
		if len(all) == 0 {
			return
		}
		send(a, all)
	}
}

// take returns what the next pipeline has.
func (w *waits) take(a acknowledgement, at *toAcknowledge) []*waiting {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := at.ready[:min(len(at.ready), maxWaiting)]
	at.ready = at.ready[len(all):]
	for _, one := range all {
		one.sent = true
	}
	if len(all) == 0 {
		if at.busy--; at.busy == 0 {
			delete(w.nodes, a)
		}
	}
	return all
}

// send sends one pipeline. A single caller's has the values of its context, that of several has
// the contexts of all: see [request.Callers].
func send(a acknowledgement, all []*waiting) {
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
	wait := redis.NewIntCmd(ctx, "wait", a.replicas, a.timeout.Milliseconds())
	pipeline(ctx, a.rdb, append(cmds, wait))
	for _, one := range all {
		one.wait = wait
		close(one.done)
	}
}
