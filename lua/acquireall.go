package lua

import (
	"context"
	"time"
)

// Wanted is a lock to acquire together with others.
type Wanted struct {
	Grant Grant
	Lease time.Duration
}

// ReplyAll is the answer to AcquireAll.
type ReplyAll struct {
	Acquired bool
	Tokens   []int64       // fencing tokens, aligned with what was wanted
	Busy     int           // if refused, the first one that is held
	TTL      time.Duration // and what is left of its holder's lease; negative if it has no end
	Holder   string        // and its owner
}

// AcquireAll is [Acquire] for several locks, all different and, in a cluster, of
// one slot: it takes all of them or none. One round trip, as for one.
func AcquireAll(ctx context.Context, r Runner, wanted []Wanted) (ReplyAll, error) {
	var keys, counters []string
	args := []any{len(wanted)}
	for _, w := range wanted {
		keys = append(keys, w.Grant.Key)
		place := 0
		if w.Grant.Counter != "" {
			counters = append(counters, w.Grant.Counter)
			place = len(wanted) + len(counters)
		}
		args = append(args, millis(w.Lease), w.Grant.Owner, place)
	}
	reply, err := acquireAllScript.run(ctx, r, append(keys, counters...), args...)
	switch {
	case err != nil:
		return ReplyAll{}, err
	case reply.status() == refused:
		return ReplyAll{Busy: int(reply.int(1)) - 1, TTL: reply.millis(2), Holder: reply.text(3)}, nil
	}
	all := ReplyAll{Acquired: true, Tokens: make([]int64, len(wanted))}
	for i := range wanted {
		all.Tokens[i], _ = reply.token(i + 1)
	}
	return all, nil
}
