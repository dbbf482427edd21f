package lua

import (
	"context"
	_ "embed"
	"time"
)

//go:embed acquireall.lua
var acquireAllSource string

var acquireAllScript = newScript("acquireall", granting()+recallSource+acquireAllSource, 1)

// Wanted is a lock that [AcquireAll] acquires.
type Wanted struct {
	Grant Grant
	Lease time.Duration
}

// ReplyAll is the answer to [AcquireAll].
type ReplyAll struct {
	Acquired bool
	Tokens   []int64       // fencing tokens, in the order of wanted
	Busy     int           // if refused, the index of the first held lock
	TTL      time.Duration // if refused, the rest of the holder's lease; negative if the lease has no end
	Holder   string        // if refused, the owner that holds the lock
}

// AcquireAll acquires all of several locks or none of them, in one round trip. The locks must be different, and
// in a cluster they must be in the same slot. For each lock, AcquireAll works like [Acquire].
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
	answer, err := acquireAllScript.run(ctx, r, append(keys, counters...), args...)
	switch {
	case err != nil:
		return ReplyAll{}, err
	case !answer.done:
		return ReplyAll{Busy: int(answer.int(1)) - 1, TTL: answer.millis(2), Holder: answer.text(3)}, nil
	}
	all := ReplyAll{Acquired: true, Tokens: make([]int64, len(wanted))}
	for i := range wanted {
		all.Tokens[i], _ = answer.token(i + 1)
	}
	return all, nil
}
