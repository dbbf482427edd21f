package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/jobs"
	"github.com/go-rlock/rlock/rlock"
)

// fireRows are the rows of histories of fires: each history is a job of package jobs, and each client is a
// host with that job. Every second history runs its fires at least once.
func fireRows() (rows []fault) {
	for _, f := range slices.Concat(plainRows(), claimFaults) {
		switch {
		case f.alone, f.crowd, f.cancel, f.hasty, strings.HasSuffix(f.name, ": count"), strings.HasSuffix(f.name, ": queue"): // no such calls
		case f.name == "process killed while it waits": // a host does not note that it waits
		default:
			f.fires, f.name = true, "fires: "+f.name
			f.leases = []string{"300ms", "600ms"}
			rows = append(rows, f)
		}
	}
	return rows
}

// claimFaults hit claims.
var claimFaults = []fault{
	{
		name: "reply lost: claim", steady: true,
		strike: while(func(w *world, p *netfault.Proxy) { p.CutRandom(0.3, w.random.Uint64(), claims) }, cutReplies),
	},
	{
		name: "request late: claim", steady: true,
		strike: while(func(w *world, p *netfault.Proxy) { p.LateRandom(0.3, 0, 400*ms, w.random.Uint64(), claims) }, func(s netfault.Stats) int64 { return s.Late }),
	},
}

// claims matches the scripts about the companion of a lock.
func claims(args []string) bool {
	return scripts(args) && slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "rlock_companion:") })
}

// leastOnce reports whether the fires of a history are run at least once.
func leastOnce(history int) bool { return history%2 == 1 }

// host is one goroutine of a party that runs a job.
type host struct {
	p        *partner
	number   int
	name     string
	lease    time.Duration
	schedule jobs.Schedule
	opts     []jobs.Option
	r        *rand.Rand
	runs     int
}

func newHost(p *partner, history, number int) *host {
	j := &p.job
	r := random(j.Seed, j.Row, j.Round, "fires", history)
	a := j.agenda(history)
	h := &host{p: p, number: number, name: a.locks[0], lease: a.lease, r: random(j.Seed, j.Row, j.Round, "host", history, number)}
	h.schedule = jobs.Every((150 + time.Duration(r.IntN(350))) * ms)
	if leastOnce(history) { // another host must be able to repeat a run before the next fire
		h.lease, h.schedule = shortest, jobs.Every((700+time.Duration(r.IntN(300)))*ms)
		h.opts = append(h.opts, jobs.AtLeastOnce())
	}
	h.opts = append(h.opts, jobs.WithLease(h.lease))
	return h
}

func (h *host) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		<-h.p.healed // it always is
		for healed := time.Now(); time.Since(healed) < 2*served; pause(ctx, 50*ms) {
			if h.p.rdbs[0].Exists(ctx, h.ran()).Val() == 1 {
				return
			}
		}
	}()
	for ctx.Err() == nil {
		locks := h.p.locks.Load().clients[0]
		err := jobs.New(locks, h.name, h.schedule, h.opts...).Run(ctx, h.work)
		// Another client has taken over, or the user had no right just when Run began.
		if ctx.Err() == nil && !errors.Is(err, rlock.ErrClosed) && !errors.Is(err, rlock.ErrRefused) {
			panic(err)
		}
		pause(ctx, ms)
	}
}

// ran is a key that says that a fire was run after everything was healed. A claim does not say that: a host
// that ends between its claim and its run leaves a fire that nobody runs.
func (h *host) ran() string { return "ran:" + h.name }

// work notes the run of a fire.
func (h *host) work(ctx context.Context, fire time.Time) error {
	h.runs++
	e := event{Lock: h.name, Client: h.number, ID: fmt.Sprintf("%d.%d", h.number, h.runs), Kind: opLock, Return: true, Result: ok, Value: fire.UnixMilli()}
	e.Due = now() - int64(time.Since(fire))
	h.p.journal.write(e)
	select {
	case <-h.p.healed:
		h.p.rdbs[0].Set(ctx, h.ran(), 1, served)
	default:
	}
	takes := time.Duration(h.r.IntN(20)) * ms
	if h.r.IntN(8) == 0 {
		takes = h.lease * 5 / 4 // needs a renewal
	}
	pause(ctx, takes)
	e.Grant, e.Kind = e.ID, opUnlock
	if ctx.Err() != nil {
		e.Kind = opLost
	}
	h.p.journal.write(e)
	return ctx.Err()
}

// occasions are the runs of one fire.
type occasions struct {
	due   int64   // nobody claims it earlier
	begun []int64 // when
	ended int
}

// judgeFires looks for what must not be in the history of a job. If fires run at most once, that is a fire that
// was begun twice, unless the server forgot it between its first claim and its last run. The claim is executed
// some time before the run begins, but not before the scheduled time. If fires run at least once (least), it is a
// fire that was begun and left unfinished until the next fire. This is looked for only in strict rows, in which
// requests do not take that long, and only where no process was suspended. It is not looked for in the first fire,
// because a host that starts after that fire knows nothing of it. After the moment until, a fire must have run.
// judgeFires also counts the runs and their losses.
func (h *history) judgeFires(events []event, least, strict bool, stalls []span, until int64) {
	fires := make(map[int64]*occasions)
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	for _, e := range events {
		o := fires[e.Value]
		if o == nil {
			o = &occasions{due: e.Due}
			fires[e.Value] = o
		}
		switch e.Kind {
		case opLock:
			h.grants++
			o.begun = append(o.begun, e.At)
		case opUnlock:
			o.ended++
		case opLost:
			h.losses++
		}
		h.ops++
	}
	first, newest := int64(math.MaxInt64), int64(0)
	for fire := range fires {
		first, newest = min(first, fire), max(newest, fire)
	}
	for fire, o := range fires {
		switch {
		case !least && len(o.begun) > 1 && !overlap(h.gone, span{o.due, o.begun[len(o.begun)-1]}):
			h.wrong = append(h.wrong, fmt.Sprintf("%s: the fire %d was begun %d times, at %d", h.lock, fire, len(o.begun), o.begun))
		case least && strict && o.ended == 0 && fire > first && fire < newest && !overlap(stalls, span{o.begun[0], o.begun[0] + int64(2*time.Second)}):
			h.wrong = append(h.wrong, fmt.Sprintf("%s: the fire %d was begun at %d, and never finished", h.lock, fire, o.begun))
		}
	}
	if len(events) == 0 || events[len(events)-1].At < until {
		h.wrong = append(h.wrong, fmt.Sprintf("%s: no fire was run after everything was healed", h.lock))
	}
}

// judge checks the fires of a round.
func (w *world) judge(f *figures, events []event, stalls []span, healed int64) {
	byName := make(map[string][]event)
	for _, e := range events {
		byName[e.Lock] = append(byName[e.Lock], e)
	}
	f.histories = w.job.Histories
	for n := range w.job.Histories {
		h := &history{lock: w.job.agenda(n).locks[0]}
		for _, g := range w.gone {
			if g.lock == "" { // a lock that is gone does not take its claims along
				h.gone = append(h.gone, g.span)
			}
		}
		h.judgeFires(byName[h.lock], leastOnce(n), w.row.kills || w.row.harmless, stalls, healed)
		f.operations += h.ops
		f.grants += h.grants
		f.losses += h.losses
		for _, wrong := range h.wrong {
			f.violations++
			w.Errorf("seed %d, %s, round %d: %s\n%s", w.seed, w.row.name, w.job.Round, wrong, listing(byName[h.lock], h.lock))
		}
	}
}
