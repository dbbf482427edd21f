package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
)

// world is where a row takes place: parties → proxies → gateway → server. A quorum
// lock has other servers as well; what happens to one happens to a minority.
type world struct {
	*testing.T
	master
	row     fault
	seed    uint64
	store   string
	random  *rand.Rand // of the row's fault; for the parent's goroutine
	others  []*master
	spare   *redistest.Server // in rows with a replica
	gate    *gateway
	parties [parties]*redistest.Child // nil: killed

	job     job
	gone    []oblivion // of this round
	struck  span       // when its fault began, and when the time of who waits began: of aloneFaults
	freed   bool       // those who stay inside have been told to leave
	strikes int        // times that the fault was there, in this round
	journal []string   // of this round
}

// master is a server, and the ways to it.
type master struct {
	srv     *redistest.Server
	proxies [parties]*netfault.Proxy
	admin   *redis.Client
}

func newWorld(t *testing.T, row fault, seed uint64, store string) *world {
	if row.lock != quorum {
		lesson(t, row.lock) // before the time of a fault begins
	}
	w := &world{T: t, row: row, seed: seed, store: store, random: random(seed, row.name, "fault")}
	w.srv = redistest.Start(t, row.args...)
	w.gate = newGateway(t, w.srv.Addr())
	w.reach(&w.master, w.gate.addr())
	for range row.lock.masters() - 1 {
		m := &master{srv: redistest.Start(t, row.args...)}
		w.reach(m, m.srv.Addr())
		w.others = append(w.others, m)
	}
	if row.setUp != nil {
		row.setUp(w)
	}
	return w
}

// reach makes the ways to a server.
func (w *world) reach(m *master, addr string) {
	m.admin = w.newAdmin(m.srv)
	for n := range m.proxies {
		m.proxies[n] = netfault.New(w.T, addr)
	}
}

// masters returns all servers.
func (w *world) masters() []*master { return append([]*master{&w.master}, w.others...) }

// newAdmin returns a client for the operator, who is not counted as a leftover.
func (w *world) newAdmin(srv *redistest.Server) *redis.Client {
	return srv.Client(w.T, func(o *redis.Options) { o.ClientName = "admin" })
}

// do sends a command of the operator, which must succeed.
func (w *world) do(args ...any) {
	w.Helper()
	require.NoError(w, w.admin.Do(context.Background(), args...).Err(), "%v", args)
}

// round lets a set of histories happen and returns what was found.
func (w *world) round(n int, size size) figures {
	w.begin(n, size)
	pulse := newPulse()
	began := now()
	ctx, cancel := context.WithTimeout(context.Background(), size.fault)
	w.row.strike(ctx, w)
	cancel()
	switch {
	case w.row.alone:
		began = w.struck.call
	case w.row.steady:
		began = now()
	}
	w.heal()
	healed := now()
	cuts := []span{{began, healed + int64(w.row.cost().limit)}} // until all can hear again, and stand in the queue
	watch := w.observe()
	w.tell("heal")
	w.expect("done", 2*time.Minute)
	free := watch()
	stalls := pulse.stop()

	f := figures{faults: w.strikes, histories: len(w.job.names())}
	w.leftovers(&f, size.keep)
	events, others := apart(w.events())
	stalls = append(stalls, others...)
	slices.SortFunc(stalls, inOrderOfCalls)
	for _, path := range w.journal {
		_ = os.Remove(path) // a killed party's may not be there
	}
	switch {
	case w.row.fires:
		w.judge(&f, events, stalls, healed)
		return f
	case w.row.lock == results:
		w.checkResults(&f, events)
		return f
	}
	all := assemble(events, w.gone, w.job.longest(), w.row.rules())
	leases, courses := w.job.leases(), coursesOf(all, w.row.lock)
	for _, h := range all {
		if w.row.lock == fair {
			h.inOrder(leases[h.lock], cuts)
		}
		if !f.add(h, func(wait wait) time.Duration {
			if w.row.alone {
				return courses.idle(wait, w.row.lock, w.struck, stalls)
			}
			return h.slept(wait, healed, freeOf(free, wait.locks))
		}, healed, w.row.patience()) {
			w.keep(events)
		}
		for _, wrong := range h.check(w.draw) {
			f.violations++
			w.keep(events)
			w.Errorf("seed %d, %s, round %d: %s\n%s", w.seed, w.row.name, n, wrong, listing(events, h.lock))
		}
	}
	return f
}

// begin starts the parties that are not there, and their clients.
func (w *world) begin(n int, size size) {
	leases := w.row.leases
	if leases == nil {
		leases = []string{"300ms", "600ms", "1500ms", "3s"}
	}
	w.job = job{
		Row: w.row.name, Round: n, Seed: w.seed, Histories: size.histories, Clients: size.clients, Steps: size.steps,
		Lock: w.row.lock, Leases: leases, Store: w.store, Kind: w.row.kind, Cancel: w.row.cancel, Hasty: w.row.hasty, Crowd: w.row.crowd, Alone: w.row.alone, Fires: w.row.fires,
	}
	w.grown()
	w.gone, w.journal, w.struck, w.freed = nil, nil, span{}, false
	dir := w.TempDir()
	w.strikes = 0
	for p := range w.parties {
		if w.parties[p] == nil {
			w.parties[p] = redistest.Spawn(w.T, "party")
		}
		j := w.job
		j.Party, j.Addrs, j.Journal = p, nil, filepath.Join(dir, fmt.Sprintf("party %d", p))
		for _, m := range w.masters() {
			j.Addrs = append(j.Addrs, m.proxies[p].Addr())
		}
		w.journal = append(w.journal, j.Journal)
		text, err := json.Marshal(j)
		require.NoError(w, err)
		w.order(p, string(text))
	}
	w.expect("ready", 30*time.Second)
}

func (w *world) order(p int, line string) {
	_, err := w.parties[p].Stdin.Write([]byte(line + "\n"))
	require.NoError(w, err)
}

// tell orders all parties that live.
func (w *world) tell(line string) {
	for p, party := range w.parties {
		if party != nil {
			w.order(p, line)
		}
	}
}

// expect waits for the answers, and returns them by party.
func (w *world) expect(prefix string, limit time.Duration) (answers [parties]string) {
	for p, party := range w.parties {
		if party != nil {
			answers[p] = strings.TrimSpace(party.Expect(prefix, limit))
		}
	}
	return answers
}

// kill ends a party for this round.
func (w *world) kill(p int) {
	w.parties[p].Kill()
	w.parties[p] = nil
}

// heal makes the network whole. A connection that has lost something would stay
// silent for ever; in a network that works again its ends learn that.
func (w *world) heal() {
	for _, m := range w.masters() {
		for _, p := range m.proxies {
			p.Heal()
			if !w.row.whole {
				p.CutAll()
			}
		}
		redistest.Eventually(w.T, "the server serves again", func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return m.admin.Ping(ctx).Err() == nil
		})
	}
	w.tell("rest")
	w.expect("rested", 30*time.Second)
	w.grown()
}

// grown waits until the servers of a quorum lock are old enough to be counted.
func (w *world) grown() {
	if w.row.lock != quorum {
		return
	}
	for _, m := range w.masters() {
		redistest.Eventually(w.T, "the server is older than a lease", func() bool {
			info := m.admin.InfoMap(context.Background(), "server").Val()
			age, err := strconv.Atoi(info["Server"]["uptime_in_seconds"])
			return err == nil && time.Duration(age)*time.Second >= w.job.longest()+time.Second
		})
	}
}

// events reads all journals of the round.
func (w *world) events() (all []event) {
	for _, path := range w.journal {
		events, err := readJournal(path)
		require.NoError(w, err)
		all = append(all, events...)
	}
	return all
}

// forgets runs something that makes the server forget a lock, "" for all. That of a
// quorum lock restarts, and is not counted until nothing is left that it could know.
func (w *world) forgets(lock string, f func()) {
	start := now()
	if f(); w.row.lock == quorum {
		return
	}
	w.gone = append(w.gone, oblivion{span{start, now()}, lock})
}

// mayForget notes that leases may end early from now on.
func (w *world) mayForget(since int64) { w.gone = append(w.gone, oblivion{span{since, open}, ""}) }
