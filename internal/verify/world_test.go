package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
)

// world is where a row takes place: parties → proxies → gateway → server.
type world struct {
	*testing.T
	row     fault
	seed    uint64
	store   string
	random  *rand.Rand // of the row's fault; for the parent's goroutine
	srv     *redistest.Server
	spare   *redistest.Server // in rows with a replica
	gate    *gateway
	proxies [parties]*netfault.Proxy
	parties [parties]*redistest.Child // nil: killed
	admin   *redis.Client

	job     job
	gone    []oblivion // of this round
	strikes int        // times that the fault was there, in this round
	journal []string   // of this round
}

func newWorld(t *testing.T, row fault, seed uint64, store string) *world {
	lessons.once.Do(func() { lessons.hashes = learn(t) }) // before the time of a fault begins
	w := &world{T: t, row: row, seed: seed, store: store, random: random(seed, row.name, "fault")}
	w.srv = redistest.Start(t, row.args...)
	w.gate = newGateway(t, w.srv.Addr())
	w.admin = w.newAdmin(w.srv)
	for n := range w.proxies {
		w.proxies[n] = netfault.New(t, w.gate.addr())
	}
	if row.setUp != nil {
		row.setUp(w)
	}
	return w
}

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
	ctx, cancel := context.WithTimeout(context.Background(), size.fault)
	w.row.strike(ctx, w)
	cancel()
	w.heal()
	healed := now()
	watch := w.observe()
	w.tell("heal")
	w.expect("done", 60*time.Second)
	free := watch()

	f := figures{faults: w.strikes, histories: len(w.job.names())}
	w.leftovers(&f, size.keep)
	events := w.events()
	for _, path := range w.journal {
		_ = os.Remove(path) // a killed party's may not be there
	}
	all := assemble(events, w.gone, w.job.longest(), !w.row.harmless)
	for _, h := range all {
		if !f.add(h, healed, free) {
			w.keep(events)
		}
		for _, wrong := range h.check(w.draw) {
			f.violations++
			w.keep(events)
			w.Errorf("seed %d, %s, round %d: %s", w.seed, w.row.name, n, wrong)
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
		Leases: leases, Store: w.store, Kind: w.row.kind, Cancel: w.row.cancel,
	}
	w.gone, w.journal = nil, nil
	dir := w.TempDir()
	w.strikes = 0
	for p := range w.parties {
		if w.parties[p] == nil {
			w.parties[p] = redistest.Spawn(w.T, "party")
		}
		j := w.job
		j.Party, j.Addr, j.Journal = p, w.proxies[p].Addr(), filepath.Join(dir, fmt.Sprintf("party %d", p))
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
	for _, p := range w.proxies {
		p.Heal()
		p.CutAll()
	}
	redistest.Eventually(w.T, "the server serves again", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return w.admin.Ping(ctx).Err() == nil
	})
	w.tell("rest")
	w.expect("rested", 30*time.Second)
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

// forgets runs something that makes the server forget a lock, "" for all.
func (w *world) forgets(lock string, f func()) {
	start := now()
	f()
	w.gone = append(w.gone, oblivion{span{start, now()}, lock})
}

// mayForget notes that leases may end early from now on.
func (w *world) mayForget(since int64) { w.gone = append(w.gone, oblivion{span{since, open}, ""}) }
