package verify

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/lua"
)

// aloneFaults strike once, and nothing is repaired afterwards: connections that have lost
// something stay as they are. Other rows cut all connections in the end, whereupon every waiter
// asks; so they do not show that a waiter finds out by itself. Leases are much longer than what
// the fault may cost, or the end of one would wake who waits. What a row shows is how long
// nobody has a lock for which somebody waits.
var aloneFaults = []fault{
	alone("subscriptions deaf", deaf, fair, retained, readWrite, multi),
	alone("subscriptions mute", mute, fair).early(),
	alone("connections cut", func(w *world) {
		for _, p := range w.proxies {
			p.CutAll()
		}
		w.strikes++
	}, fair, retained),
	alone("any reply lost", func(w *world) {
		w.free()
		w.lose(500 * ms)
	}, fair, readWrite),
	alone("server killed, restarted empty", func(w *world) { w.forgets("", func() { w.outage(150 * ms) }); w.strikes++ }, fair, retained),
	alone("FLUSHALL", flush, fair, retained, readWrite, multi),
	alone("DEL", func(w *world) {
		for _, lock := range w.job.names() {
			w.forgets(lock, func() { w.once("del", lock) })
		}
	}, fair, retained, readWrite),
	alone("DEL of queues", func(w *world) {
		for _, lock := range w.job.names() {
			w.once("del", lua.QueueOf(lock))
		}
	}, fair, retained, multi),
	replicated(alone("a former master lives on as a replica", stepDown, fair, retained, readWrite)),
	refused(alone("ACL without PUBLISH", func(w *world) {
		w.once("acl", "setuser", "locks", "-publish")
		w.free()
		time.Sleep(w.some(300*ms, 600*ms))
		w.do("acl", "setuser", "locks", "+publish")
	}, fair, retained, readWrite)),

	// Two at once. The second cost comes on top of the first if what the waiter does when it has
	// found out about one fault is struck by the other.
	alone("subscriptions deaf, replies lost", func(w *world) {
		deaf(w)
		w.over()
		w.lose(costOfAFault.limit)
	}, fair).twice(),
	alone("subscriptions deaf, FLUSHALL", func(w *world) {
		deaf(w)
		flush(w)
	}, fair),
}

// alone is a row in which the fault strikes while two thirds of the locks are held, see
// job.part, which are released right after.
func alone(name string, hit func(*world), also ...variety) fault {
	return fault{
		name: name + ", nothing is cut", leases: []string{"20s", "30s"}, alone: true, whole: true, also: also,
		strike: func(ctx context.Context, w *world) {
			w.between(ctx, 400*ms, 700*ms) // all queue
			w.struck.call = now()
			hit(w)
			w.over()
		},
	}
}

// twice is a row in which a waiter may sleep as long as two faults cost.
func (f fault) twice() fault {
	f.costs = &costOfTwo
	return f
}

// early strikes while the clients begin to wait.
func (f fault) early() fault {
	strike := f.strike
	f.strike = func(_ context.Context, w *world) {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		strike(over, w)
	}
	return f
}

// refused is a row with a user who may lose rights.
func refused(f fault) fault {
	f.kind, f.setUp = "user", func(w *world) { w.do("acl", "setuser", "locks", "on", ">secret", "allkeys", "allchannels", "+@all") }
	return f
}

// replicated is a row with a replica.
func replicated(f fault) fault {
	f.setUp = newReplica
	return f
}

// stepDown has master and replica change their parts, and new connections lead to the master.
func stepDown(w *world) {
	old := w.admin
	w.catchUp()
	w.promote()
	w.follow(old, w.spare)
	w.gate.turn(w.spare.Addr())
	w.srv, w.spare = w.spare, w.srv
	w.admin = w.newAdmin(w.srv)
	w.strikes++
}

// over begins the time of who waits, and has the locks released. What the rest of the fault
// does is part of its cost.
func (w *world) over() {
	if w.struck.ret == 0 {
		w.struck.ret = now()
		w.free()
	}
}

// free has the locks released that are held until then.
func (w *world) free() {
	if !w.freed {
		w.freed = true
		w.tell("free")
	}
}

// deaf has the subscriptions of a party lose something that was sent to them.
func deaf(w *world) { w.swallow((*netfault.Proxy).DropDown) }

// mute has them lose something that they send.
func mute(w *world) { w.swallow((*netfault.Proxy).DropUp) }

func (w *world) swallow(drop func(p *netfault.Proxy, on bool, sent ...string)) {
	p := w.proxy()
	before := p.Stats().Dropped
	drop(p, true, "subscribe")
	pause(context.Background(), w.some(20*ms, 200*ms))
	within(time.Second, func() bool { return p.Stats().Dropped > before })
	drop(p, false)
	if p.Stats().Dropped > before {
		w.strikes++
	}
}

// lose loses replies of scripts for some time.
func (w *world) lose(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	while(func(w *world, p *netfault.Proxy) { p.CutRandom(0.2, w.random.Uint64(), scripts) }, cutReplies)(ctx, w)
}

func flush(w *world) { w.forgets("", func() { w.once("flushall") }) }

// once sends a command of the operator, and notes that it has struck.
func (w *world) once(args ...any) {
	w.do(args...)
	w.strikes++
}
