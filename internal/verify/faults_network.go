package verify

import (
	"context"
	"errors"
	"time"

	"github.com/go-rlock/rlock/internal/netfault"
)

// networkFaults hit whatever is on its way.
var networkFaults = []fault{
	{name: "slow requests", strike: delays(func(w *world) (up, down time.Duration) { return w.some(0, 150*ms), 0 })},
	{name: "slow replies", strike: delays(func(w *world) (up, down time.Duration) { return 0, w.some(0, 150*ms) })},
	{name: "jitter in both directions", strike: delays(func(w *world) (up, down time.Duration) { return w.some(0, 40*ms), w.some(0, 40*ms) })},
	{
		name: "replies later than leases", leases: []string{"300ms", "600ms"},
		strike: delays(func(w *world) (up, down time.Duration) { return 0, w.some(250*ms, 700*ms) }),
	},
	{name: "connections cut", strike: again(5*ms, 60*ms, func(w *world) { w.proxy().CutAll() })},
	{name: "connections cut, unseen by the clients", kind: "hidden", strike: again(5*ms, 60*ms, func(w *world) { w.proxy().CutAll() })},
	{name: "connections refused", strike: outages(func(p *netfault.Proxy) { p.Refuse(true); p.CutAll() })},
	{name: "black hole", strike: outages(func(p *netfault.Proxy) { p.DropUp(true); p.DropDown(true) })},
	{name: "requests swallowed", strike: outages(func(p *netfault.Proxy) { p.DropUp(true) })},
	{name: "replies swallowed", strike: outages(func(p *netfault.Proxy) { p.DropDown(true) })},
	{name: "connections forgotten", strike: again(100*ms, 600*ms, func(w *world) { w.proxy().Forget() })},
	{name: "subscriptions deaf", harmless: true, strike: outages(func(p *netfault.Proxy) { p.DropDown(true, "subscribe") })},
	{name: "subscriptions mute", harmless: true, strike: outages(func(p *netfault.Proxy) { p.DropUp(true, "subscribe") })},
}

// proxy returns that of any party.
func (w *world) proxy() *netfault.Proxy { return w.proxies[w.random.IntN(parties)] }

// delays changes how long the way takes, for all parties.
func delays(by func(*world) (up, down time.Duration)) func(context.Context, *world) {
	return again(20*ms, 150*ms, func(w *world) {
		for _, p := range w.proxies {
			p.Delay(by(w))
		}
	})
}

// outages break the network of one party at a time. Where something was
// swallowed the connection is of no use any more; it ends with the fault.
func outages(on func(*netfault.Proxy)) func(context.Context, *world) {
	return again(10*ms, 100*ms, func(w *world) {
		p := w.proxy()
		on(p)
		time.Sleep(w.some(50*ms, 700*ms))
		p.Heal()
		p.CutAll()
	})
}

// requestFaults hit single requests, by what they do.
var requestFaults = []fault{
	lostReply("acquire"), lostReply("queue"), lostReply("count"), lostReply("release"), lostReply("renew"),
	late("acquire"), late("queue"), late("count"), late("release"), late("renew"),
	held("acquire"), held("queue"), held("count"), held("release"), held("renew"),
	{
		name:   "any reply lost",
		strike: while(func(w *world, p *netfault.Proxy) { p.CutRandom(0.05, w.random.Uint64(), nil) }, cutReplies),
	},
	{
		name: "replies lost, go-redis repeats 10 times", kind: "retries",
		strike: while(func(w *world, p *netfault.Proxy) { p.CutRandom(0.2, w.random.Uint64(), scripts) }, cutReplies),
	},
	{
		name: "replies lost, go-redis repeats nothing", kind: "no retries",
		strike: while(func(w *world, p *netfault.Proxy) { p.CutRandom(0.2, w.random.Uint64(), scripts) }, cutReplies),
	},
}

var scripts = netfault.Command("evalsha", "eval")

// rate is how often a request is hit: some scripts are much rarer than others.
func rate(script string) float64 {
	if script == "count" || script == "renew" {
		return 0.6
	}
	return 0.25
}

// leasesFor makes sure that there are renewals to be hit.
func leasesFor(script string) []string {
	if script == "renew" {
		return []string{"300ms"}
	}
	return nil
}

func lostReply(script string) fault {
	return fault{
		name: "reply lost: " + script, leases: leasesFor(script), steady: true, strike: while(func(w *world, p *netfault.Proxy) {
			p.CutRandom(rate(script), w.random.Uint64(), learnt(w, script))
		}, cutReplies),
	}
}

func late(script string) fault {
	return fault{
		name: "request late: " + script, leases: leasesFor(script), steady: true, strike: while(func(w *world, p *netfault.Proxy) {
			p.LateRandom(rate(script), 0, 400*ms, w.random.Uint64(), learnt(w, script))
		}, func(s netfault.Stats) int64 { return s.Late }),
	}
}

func cutReplies(s netfault.Stats) int64 { return s.RepliesCut }

// while has a rule in all proxies as long as the fault lasts.
func while(rule func(*world, *netfault.Proxy), hits func(netfault.Stats) int64) func(context.Context, *world) {
	return func(ctx context.Context, w *world) { during(ctx, w, w.proxies[:], rule, hits) }
}

func during(ctx context.Context, w *world, proxies []*netfault.Proxy, rule func(*world, *netfault.Proxy), hits func(netfault.Stats) int64) {
	var before int64
	for _, p := range proxies {
		before += hits(p.Stats())
		rule(w, p)
	}
	<-ctx.Done()
	for _, p := range proxies {
		w.strikes += int(hits(p.Stats()))
	}
	w.strikes -= int(before)
}

// held keeps a request back, often until its sender has given up, and delivers
// it then.
func held(script string) fault {
	return fault{name: "request held back: " + script, leases: leasesFor(script), steady: true, strike: func(ctx context.Context, w *world) {
		for w.between(ctx, 1*ms, 20*ms) {
			h := w.proxy().Hold(learnt(w, script))
			if h.Wait(ctx) != nil {
				return
			}
			time.Sleep(w.some(20*ms, 500*ms))
			w.strikes++
			patience, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			if err := h.Deliver(patience); errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("a request held back was never answered")
			}
			cancel()
		}
	}}
}
