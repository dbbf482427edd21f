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
	took     time.Duration // what the newest answer took; 0: there was none
	fast     bool          // the answer is waited for in the caller's own goroutine
	allowed  int           // batches under way at once, at most
	senders  int           // as many may be, as it is
	limit    int           // calls in a batch
	patience time.Duration // how long a batch is waited for
}

// newPace returns that of a server of which nothing is known.
func newPace(allowed int) pace {
	return pace{allowed: allowed, senders: allowed, limit: maxBatch, patience: most}
}

// answered notes how long the answer to a batch took. One that came too late for most of
// its calls came from a server that has too much to do.
func (p *pace) answered(b *batch, took time.Duration) {
	p.took = max(took, 1)
	p.fast = p.took < swift
	p.patience = min(max(slower*p.took, least), most)
	p.senders = p.allowed
	if p.took < near {
		p.senders = min(p.allowed, nearSenders)
	}
	switch {
	case b.given: // givenUp sees to the size
	case b.late > len(b.calls)/2 && len(b.calls) > minBatch:
		p.shrink(b)
	case len(b.calls) == p.limit:
		p.limit = min(2*p.limit, maxBatch)
	}
}

// givenUp notes that a batch was. The server may have become slow: this counts as an
// answer that took twice as long as the newest.
func (p *pace) givenUp(b *batch) {
	p.answered(b, min(max(2*p.took, swift), most))
	p.shrink(b)
}

// shrink has the next batches be a quarter as large as one that was too much for the
// server.
func (p *pace) shrink(b *batch) { p.limit = max(min(p.limit, len(b.calls)/4), minBatch) }
