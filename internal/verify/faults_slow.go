package verify

import (
	"context"
	"time"
)

// slowFaults make the server slower than many callers are patient, for seconds, or
// have a crowd do it.
var slowFaults = []fault{
	{name: "server slow, hasty callers", hasty: true, whole: true, steady: true, lasts: 3 * time.Second, strike: slow},
	{name: "crowd of 2,000", leases: crowdLeases, hasty: true, whole: true, crowd: true, steady: true, lasts: 2 * time.Second, strike: again(100*ms, 200*ms, func(*world) {})},
	{name: "crowd of 2,000, server slow", leases: crowdLeases, hasty: true, whole: true, crowd: true, steady: true, lasts: 3 * time.Second, strike: slow},
}

// crowdLeases are long enough for 2,000 callers that ask at once. An attempt has a third of the lease, but
// 2 s at most, and an answer that comes later is lost, so the caller asks again. With a lease of 600 ms,
// beside eight busy loops, this took 36 requests to queue for each grant, and most callers got none in
// their 45 s. With 6 s it took 2, and everybody was served within 28 s.
var crowdLeases = []string{"6s", "10s"}

// slow lets every answer take 50 ms or longer: for half a second each it is the network
// that is slow, a server that does something else most of the time, and one that
// serves its clients in bursts.
func slow(ctx context.Context, w *world) {
	for ctx.Err() == nil {
		for _, p := range w.proxies {
			p.Delay(25*ms, 25*ms)
		}
		pause(ctx, 500*ms)
		for _, p := range w.proxies {
			p.Delay(0, 0)
		}
		w.pieces(ctx, "debug", "sleep", "0.05")
		w.pieces(ctx, "client", "pause", 50, "all")
		w.strikes++
	}
}

// pieces repeats a command that keeps the server busy.
func (w *world) pieces(ctx context.Context, args ...any) {
	for start := time.Now(); ctx.Err() == nil && time.Since(start) < 500*ms; {
		w.do(args...)
		pause(ctx, w.some(0, 5*ms))
	}
}

// size returns how much happens in a round of the row. One of a crowd has a single
// history, and two are enough: one of them with tokens.
func (f fault) size(s size) size {
	if f.lasts > 0 {
		s.fault = f.lasts
	}
	if f.lock != plain {
		s.rounds = s.further
	}
	if f.hasty || f.alone {
		s.steps = 1000 // until the fault is healed
	}
	if f.alone || f.lock == retained { // many histories of a round see the cost; there are all rows of locks that are kept
		s.rounds = min(s.rounds, 1)
	}
	if f.crowd {
		s.rounds, s.histories, s.clients = min(s.rounds, 2), 1, 2000
	}
	return s
}
