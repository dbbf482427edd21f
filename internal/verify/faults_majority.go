package verify

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/internal/netfault"
)

// majorityFaults leave a quorum lock too few servers: nobody may get it, or keep
// it, without a majority. All other faults strike a minority, but the first of these, which strikes all
// of them one after the other: nobody may get the lock beside who holds it.
var majorityFaults = []fault{
	{
		name: "all killed, restarted empty, one after the other", young: true,
		strike: again(300*ms, 600*ms, func(w *world) {
			m := w.masters()[w.strikes%len(w.masters())]
			m.srv.Kill()
			time.Sleep(w.some(0, 100*ms))
			m.srv.Restart()
		}),
	},
	{
		name: "majority killed, restarted empty", young: true,
		strike: again(100*ms, 400*ms, func(w *world) {
			most := w.most()
			for _, m := range most {
				m.srv.Kill()
			}
			time.Sleep(w.some(0, 150*ms))
			for _, m := range most {
				m.srv.Restart()
			}
		}),
	},
	{
		name: "majority stopped for longer than leases",
		strike: again(50*ms, 200*ms, func(w *world) {
			most := w.most()
			for _, m := range most {
				m.srv.Stop()
			}
			time.Sleep(w.some(500*ms, 1800*ms))
			for _, m := range most {
				m.srv.Cont()
			}
		}),
	},
	{
		name: "majority out of reach, a different one for each",
		strike: again(50*ms, 200*ms, func(w *world) {
			for n := range parties {
				for _, m := range w.most() {
					m.proxies[n].Refuse(true)
					m.proxies[n].CutAll()
				}
			}
			time.Sleep(w.some(100*ms, 1000*ms))
			for _, m := range w.masters() {
				for _, p := range m.proxies {
					p.Heal()
				}
			}
		}),
	},
	{
		name: "replies lost on all servers",
		strike: func(ctx context.Context, w *world) {
			proxies := w.proxies[:]
			for _, m := range w.others {
				proxies = append(proxies, m.proxies[:]...)
			}
			during(ctx, w, proxies, func(w *world, p *netfault.Proxy) { p.CutRandom(0.2, w.random.Uint64(), scripts) }, cutReplies)
		},
	},
}

// most returns a majority of the servers.
func (w *world) most() []*master {
	all := w.masters()
	w.random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all[:len(all)/2+1]
}
