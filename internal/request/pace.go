package request

import "time"

const (
	maxBatch    = 1024                   // calls in a pipeline
	minBatch    = 16                     // that a slow server is sent in any case
	swift       = 15 * time.Millisecond  // an answer within it lets a caller's own goroutine wait
	near        = 2 * time.Millisecond   // an answer within it is waited for with the next batch
	nearSenders = 2                      // batches under way at once to a server that is near
	least       = 250 * time.Millisecond // before a batch is given up
	most        = 2 * time.Second
	slower      = 8 // times as long as the newest answer took: then a batch is given up
)

// pace is how fast a server answers, and what follows for the batches that it is sent.
// Group.mu guards it.
type pace struct {
	took  time.Duration // what the newest answer took; 0: there was none
	limit int           // calls in a batch
}

// fast tells whether the answer is waited for in the caller's own goroutine.
func (p *pace) fast() bool { return p.took > 0 && p.took < swift }

// senders is how many batches may be under way at once if there may be as many as given.
func (p *pace) senders(allowed int) int {
	if p.took > 0 && p.took < near {
		return min(allowed, nearSenders)
	}
	return allowed
}

// patience is how long a batch is waited for.
func (p *pace) patience() time.Duration {
	if p.took == 0 {
		return most
	}
	return min(max(slower*p.took, least), most)
}

// answered notes how long the answer to a batch took. One that came too late for most of
// its calls came from a server that has too much to do.
func (p *pace) answered(b *batch, took time.Duration) {
	p.took = max(took, 1)
	switch {
	case b.given:
	case b.late > len(b.calls)/2 && len(b.calls) > minBatch:
		p.shrink(b)
	case len(b.calls) == p.limit:
		p.limit = min(2*p.limit, maxBatch)
	}
}

// givenUp notes that a batch was: the server may have become slow.
func (p *pace) givenUp(b *batch) {
	p.took = min(max(2*p.took, swift), most)
	p.shrink(b)
}

// shrink has the next batches be a quarter as large as one that was too much for the
// server.
func (p *pace) shrink(b *batch) { p.limit = max(min(p.limit, len(b.calls)/4), minBatch) }
