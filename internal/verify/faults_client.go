package verify

import (
	"cmp"
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
)

// clientFaults are the doing of an application, or of its machine.
var clientFaults = []fault{
	{name: "process stopped for a moment", steady: true, strike: again(50*ms, 200*ms, func(w *world) { w.freeze(20*ms, 200*ms) })},
	{
		name: "process stopped for longer than its lease", leases: short,
		strike: again(50*ms, 200*ms, func(w *world) { w.freeze(400*ms, 1200*ms) }),
	},
	killed("process killed while it holds", func(e event) (opens, closes bool) {
		return e.Kind == opLock && e.Return && e.Result == ok || e.Kind == opRun, e.Kind == opUnlock || e.Kind == opRun && e.Return
	}),
	killed("process killed while it waits", func(e event) (opens, closes bool) {
		return e.Kind == opLock || e.Kind == opResult, e.Return
	}),
	{
		name: "process killed in the middle of an unlock", kills: true,
		strike: func(ctx context.Context, w *world) {
			w.between(ctx, 50*ms, 300*ms)
			p := w.random.IntN(parties)
			h := w.proxies[p].Hold(learnt(w, "release"))
			if h.Wait(ctx) != nil {
				return
			}
			w.kill(p)
			w.strikes++
			w.between(ctx, 0*ms, 500*ms)
			patience, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			_ = h.Deliver(patience) // the network's choice
			<-ctx.Done()
		},
	},
	{
		name: "contexts cancelled at any moment", cancel: true,
		strike: delays(func(w *world) (up, down time.Duration) { return w.some(0, 3*ms), w.some(0, 3*ms) }),
	},
	{
		name: "contexts cancelled, replies lost", cancel: true, steady: true,
		strike: while(func(w *world, p *netfault.Proxy) { p.CutRandom(0.2, w.random.Uint64(), scripts) }, cutReplies),
	},
	{
		name: "Close while waiting and holding", steady: true,
		strike: again(50*ms, 200*ms, func(w *world) {
			p := w.random.IntN(parties)
			w.order(p, "renew")
			require.Equal(w, " <nil>", w.parties[p].Expect("renewed", 30*time.Second))
		}),
	},
	{name: "pool exhausted by the application", kind: "pool", strike: again(100*ms, 200*ms, func(*world) {})},
	{name: "a hook that sends everything twice", kind: "twice", strike: again(100*ms, 200*ms, func(*world) {})},
}

// freeze stops a party for some time.
func (w *world) freeze(least, most time.Duration) {
	p := w.parties[w.random.IntN(parties)]
	p.Stop()
	time.Sleep(w.some(least, most))
	p.Cont()
}

// killed is a row in which a party dies while an operation is open, by the
// events that open one and close it.
func killed(name string, state func(event) (opens, closes bool)) fault {
	return fault{name: name, kills: true, steady: true, strike: func(ctx context.Context, w *world) {
		p := w.random.IntN(parties)
		w.between(ctx, 20*ms, 300*ms)
		for w.between(ctx, 1*ms, 10*ms) {
			events, err := readJournal(w.journal[p])
			require.NoError(w, err)
			open := make(map[string]bool)
			for _, e := range events {
				id := e.Lock + cmp.Or(e.Grant, e.ID)
				if opens, closes := state(e); closes {
					delete(open, id)
				} else if opens {
					open[id] = true
				}
			}
			if len(open) > 0 {
				w.kill(p)
				w.strikes++
				<-ctx.Done()
				return
			}
		}
	}}
}
