package kind

import (
	"context"
	"sync"
)

// placesOfNode is the limit of pipelines of renewals under way to a node. go-redis has
// ten connections for pipelines by default; a further pipeline takes a connection for
// single commands, and waits while the application uses all of these. The remaining
// six are for the calls of a client, and for orphans. Four pipelines are enough for 10,000
// renewals per second at a round trip of 50 ms, as measured: the renewals of 100,000 locks
// with the default lease.
const placesOfNode = 4

// Places bounds the pipelines of renewals under way to each node. A hanging pipeline
// keeps the place until the end of the context. The zero value is usable, by several
// goroutines.
type Places struct {
	mu    sync.Mutex
	nodes map[node]*places // nodes with a pipeline under way or waiting; guarded by mu
}

// places are the places of one node.
type places struct {
	taken chan struct{}
	users int // pipelines under way or waiting; guarded by Places.mu
}

// take waits for a place at n, and returns a function to give the place back; nil if ctx
// ended before. The end of ctx gives the place back as well: go-redis may keep a pipeline
// for longer.
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
