package topology

import (
	"testing"
	"time"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// quorumSeries has quorum locks on five independent masters, one after another of
// which fails and is replaced at its address by an empty server, which has forgotten
// every grant; or stands still for longer than a lease and comes back with old ones.
//
// Replicas are not for a quorum lock: one that takes over without a grant is counted
// at once, unlike a server that has just started, and a grant may have no more than
// three votes to lose.
func quorumSeries(t *testing.T) string {
	var servers []*redistest.Server
	for range 5 {
		servers = append(servers, redistest.Start(t))
	}
	var all [members][]*rlock.Client
	for n := range all {
		for _, server := range servers {
			all[n] = append(all[n], clientOn(t, server.Client(t), &rlock.Options{LeaseTime: lease}))
		}
	}
	subjects := []subject{{name: "a", lingerings: 4}, {name: "b", lingerings: 2}, {name: "c"}}
	p := newParty(t, 2*lease, subjects, func(member int, s subject) *rlock.Lock {
		return rlock.NewQuorumLock(s.name, all[member], s.options()...)
	})
	next := -1
	blows := deal(t, 24, []stroke{
		{
			kind:   "Quorum: one of five is replaced by an empty one",
			strike: func(*redistest.Server) { next = (next + 1) % len(servers); servers[next].Restart() },
		},
		{
			kind:   "Quorum: one of five stands still",
			strike: func(*redistest.Server) { next = (next + 1) % len(servers); servers[next].Stop() },
			heal: func(*redistest.Server) {
				time.Sleep(lease + time.Second)
				servers[next].Cont()
			},
		},
	}, func() *redistest.Server { return nil })
	p.end()
	return judge(t, p, blows)
}
