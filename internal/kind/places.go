package kind

import (
	"context"
	"sync"
)

// placesOfNode is how many pipelines of renewals a node is sent at once. go-redis has
// ten connections for pipelines, unless told otherwise; a further pipeline takes one of
// those for single commands, and waits for it while the application uses them all. The
// six others are for the calls of a client, and for what its callers left behind.
const placesOfNode = 4

// Places bounds how many pipelines of renewals are under way to each node. A pipeline
// that hangs keeps its place until its context ends. The zero value is usable, by
// several goroutines.
type Places struct {
	mu    sync.Mutex
	nodes map[node]*places // those with a pipeline under way or waiting; guarded by mu
}

// places are those of one node.
type places struct {
	taken chan struct{}
	users int // pipelines under way or waiting; guarded by Places.mu
}

// take waits for a place at n, and returns what gives it back; nil if ctx ended before.
// The end of ctx gives it back as well: go-redis may keep a pipeline for longer.
func (p *Places) take(ctx context.Context, n node) (release func()) {
	p.mu.Lock()
	at := p.nodes[n]
	if at == nil {
		if p.nodes == nil {
			p.nodes = make(map[node]*places)
		}
		at = &places{taken: make(chan struct{}, placesOfNode)}
		p.nodes[n] = at
	}
	at.users++
	p.mu.Unlock()
	select {
	case at.taken <- struct{}{}:
	case <-ctx.Done():
		p.leave(n, at)
		return nil
	}
	give := func() {
		<-at.taken
		p.leave(n, at)
	}
	ended := context.AfterFunc(ctx, give)
	return func() {
		if ended() {
			give()
		}
	}
}

func (p *Places) leave(n node, at *places) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.users--; at.users == 0 {
		delete(p.nodes, n)
	}
}
