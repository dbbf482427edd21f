package bench

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestWideScenario(t *testing.T) {
	s := wideScenario(1024, time.Millisecond)
	require.Equal(t, "wide-1024-1ms", s.Name)
	require.Equal(t, 1024, s.clients())
	require.Equal(t, 128, s.clientsOf(7))
	require.Equal(t, 4, wideScenario(4, 0).workers(), "a process each, as long as they are few")
	require.Equal(t, 1, killScenario(5, 3).clientsOf(holderProcess))
	require.Equal(t, 3, killScenario(5, 3).clientsOf(behindProcess))
	require.Equal(t, 1, killScenario(5, 3).clientsOf(firstVictim))
	require.Equal(t, 1, Scenario{Kind: Contend, Processes: 1, Goroutines: 9}.clientsOf(0))
}

// A table that cannot be played says what is too small, and the others go on.
func TestRoomForConnections(t *testing.T) {
	s := wideScenario(64, 0)
	require.NoError(t, s.room(counters{limit: 10_000, connections: 1}))
	require.NoError(t, s.room(counters{}), "the server does not tell")
	require.ErrorContains(t, s.room(counters{limit: 200, connections: 10}), "wide-64 needs up to 256 connections, and the server has room for 190: raise its maxclients")
	require.NoError(t, Scenario{Kind: Contend}.room(counters{limit: 1}))
	s.Goroutines, s.Clients, s.Processes = 1<<40, 1<<40, 1
	require.ErrorContains(t, s.room(counters{}), "open files in a process")

	r := newRunner(t)
	r.nodes[0].rdb.ConfigSet(t.Context(), "maxclients", "40")
	result, err := r.play(t.Context(), wideScenario(64, 0), func(string, int) {})
	require.NoError(t, err)
	require.Empty(t, result.Rows[1].Skipped, "the floor has one")
	r.Rounds, r.Contenders = 1, Contenders()[:1]
	result, err = r.play(t.Context(), wideScenario(64, 0), func(string, int) {})
	require.NoError(t, err)
	require.Contains(t, result.Rows[2].Skipped, "raise its maxclients")
	require.Len(t, result.Rows[1].Samples, 1)
}

// Thousands of clients on this machine do not share the ports of one address.
func TestAddressesOfACrowd(t *testing.T) {
	of := func(s Scenario, server Server) net.IP {
		return (&worker{job: job{Scenario: s, Process: 1}}).from(server)
	}
	crowd, local := wideScenario(crowdFrom, 0), Server{Addr: "127.0.0.1:6379"}
	require.Nil(t, of(wideScenario(1024, 0), local))
	require.Nil(t, of(crowd, Server{Addr: "redis.example:6379"}))
	require.Nil(t, of(crowd, Server{Addr: local.Addr, TLS: true}))
	if runtime.GOOS != "linux" {
		return
	}
	srv := redistest.Start(t)
	local.Addr, local.From = srv.Addr(), of(crowd, local)
	require.NoError(t, srv.Client(t).ConfigSet(t.Context(), "protected-mode", "no").Err())
	rdb := local.dial()
	require.NoError(t, rdb.Ping(t.Context()).Err())
	list := rdb.ClientList(t.Context()).Val()
	require.NoError(t, rdb.Close())
	require.Contains(t, list, " addr=127.0.1.2:")
}

// The pool is small where there are many clients, and otherwise that of the client.
func TestSmallPools(t *testing.T) {
	nodes := []*node{{server: Server{Addr: "a:1"}}}
	for _, tc := range []struct {
		s    Scenario
		want int
	}{{wideScenario(4, 0), widePool}, {Scenario{Kind: Contend}, 0}, {Scenario{Kind: Idle, Clients: 100}, widePool}} {
		servers, disconnect, err := route(tc.s, nodes)
		require.NoError(t, err)
		disconnect()
		require.Equal(t, tc.want, servers[0].Pool)
		require.Equal(t, tc.want, servers[0].Options().PoolSize)
	}
}

// Three clients of a process, each known to the server.
func TestClientsOfTheirOwn(t *testing.T) {
	r := newRunner(t)
	s := Scenario{Name: "wide", Kind: Wide, Processes: 2, Goroutines: 3, Clients: 3, Keys: 1, Section: 200 * time.Microsecond, Span: 500 * time.Millisecond}
	sample := r.must(t, s)
	require.GreaterOrEqual(t, sample.Connections, int64(2*6), "for commands, and for the subscription")
	require.Equal(t, 6, sample.Clients)
	require.Positive(t, sample.Messages)
	require.Positive(t, sample.Bytes)
	require.Positive(t, sample.Wakeups.P50)
	require.Equal(t, sample.Calls["publish"], sample.Messages+sample.Probes)
	share := metricOf("share").value(sample)
	require.Greater(t, share, 0.0)
	require.LessOrEqual(t, share, 1.02, "no two are inside at once")
}

// Whoever has asked before the release was woken by it.
func TestWoken(t *testing.T) {
	l := &load{w: &worker{job: job{Scenario: Scenario{Kind: Wide}}}, cell: new(cell)}
	require.Zero(t, l.woken(time.Now().Add(-time.Hour)), "nobody has released")
	began := time.Now()
	time.Sleep(time.Millisecond)
	l.releases()
	require.Positive(t, l.woken(began))
	require.Less(t, l.woken(began), time.Since(began))
	require.Zero(t, l.woken(time.Now()), "it was free")
	l.w.Scenario.Kind = Contend
	require.Zero(t, l.woken(began))
}

func TestPublicationsOfAClientAreProbes(t *testing.T) {
	srv := redistest.Start(t)
	target := Target{Server: Server{Addr: srv.Addr()}, published: new(atomic.Int64)}
	rdb := target.Dial()
	defer func() { require.NoError(t, rdb.Close()) }()
	require.NoError(t, rdb.Publish(t.Context(), "c", "").Err())
	require.NoError(t, rdb.Eval(t.Context(), `return redis.call('publish', 'c', '')`, nil).Err())
	_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.SPublish(t.Context(), "c", "")
		p.Get(t.Context(), "k")
		return nil
	})
	require.ErrorIs(t, err, redis.Nil)
	require.EqualValues(t, 2, target.published.Load())
}

// The victim does not come back, those behind it are timed.
func TestKill(t *testing.T) {
	r := newRunner(t)
	s := killScenario(2, 2)
	began := time.Now()
	sample, err := r.run(t.Context(), s, Contender{Name: rlockName}, "test:kill:")
	require.NoError(t, err)
	require.EqualValues(t, 4, sample.Ops, "2 behind each of 2")
	require.EqualValues(t, 2, sample.Passed, "the first from the holder; the last one's process is the same")
	require.Positive(t, sample.Latency.P50)
	require.GreaterOrEqual(t, sample.Longest, sample.Raw.P50/2)
	require.Zero(t, sample.Violations+sample.Errors, sample.FirstErr)
	require.Less(t, time.Since(began), s.Span, "it does not wait for the end of the window")
}

// A lock that nobody gets any more is a delay that lasts until the window ends.
func TestKillThatLeavesEverybodyWaiting(t *testing.T) {
	r := newRunner(t)
	s := killScenario(1, 1)
	s.Span = 2 * time.Second
	sample, err := r.run(t.Context(), s, Contender{Name: "jammed"}, "test:jammed:")
	require.NoError(t, err)
	require.Zero(t, sample.Ops)
	require.Greater(t, sample.Longest, time.Second)
}

// jammed is a lock that stays with the first who gets it.
type jammed struct{ rdb redis.UniversalClient }

func jammedContender() Contender {
	return Contender{Name: "jammed", New: func(t Target) (Locker, error) { return jammed{t.Dial()}, nil }}
}

func (j jammed) Lock(ctx context.Context, name string) (context.Context, func(context.Context) error, error) {
	first, err := j.rdb.SetNX(ctx, name, 1, time.Minute).Result()
	if err == nil && !first {
		<-ctx.Done()
		err = ctx.Err()
	}
	return ctx, func(context.Context) error { return nil }, err
}

func (j jammed) Close() error { return j.rdb.Close() }

func TestPartsOfAHandOver(t *testing.T) {
	s := &Sample{
		Elapsed: 2 * time.Second, Counted: 2 * time.Second, Section: time.Millisecond, Inside: 1200 * time.Millisecond, Clients: 4, Ops: 1000, Handoffs: 500,
		Scripts: 1500, Messages: 500, Probes: 16, Reads: 1616, Bytes: 1e6, ServerCPU: time.Second,
	}
	for name, want := range map[string]float64{
		"scripts/handoff": 3, "scripts/op": 1.5, "requests/handoff": 3.2, "messages/handoff": 1, "net/handoff": 2000, "server CPU/handoff": float64(2 * time.Millisecond),
		"share": 0.6, "probes/s each": 2, "others/s each": 200,
	} {
		require.InDelta(t, want, metricOf(name).value(s), 1e-9, name)
	}
	s.Handoffs, s.Clients, s.Reads = 0, 0, 0
	require.Zero(t, metricOf("scripts/handoff").value(s))
	require.Zero(t, metricOf("others/s each").value(s))
	c := column{metric: "share"}
	require.Equal(t, "0.50", c.value(Row{Samples: []*Sample{s}, Values: map[string]Summary{"share": {Value: Spread{Median: 0.5}}}}))
	s.Section = 0
	require.Equal(t, none, c.value(Row{Samples: []*Sample{s}}), "there is no section")
}

func TestWidePanels(t *testing.T) {
	var r Report
	for _, n := range []int{4, 64} {
		rows := []Row{row(scriptsName, true, 0, 100), row("x", false, 10, 10), row("y", false, 10, 10), row("z", false, 10, 10), row("none", false, 0, 10)}
		rows[3].Skipped = "failed: why"
		for _, c := range rows[1:3] {
			c.Samples[0].Reads, c.Samples[0].ServerCPU = int64(30*n), time.Duration(n)*time.Millisecond
		}
		summarizeRows(rows)
		r.Results = append(r.Results, Result{wideScenario(n, time.Millisecond), rows})
	}
	r.Results = append(r.Results, Result{Scenario: Scenario{Kind: Contend}}, Result{Scenario: wideScenario(4, 0)})
	panels := r.widePanels()
	require.Len(t, panels, len(costs))
	require.Len(t, panels[0].lines, 2, "no floor, and nobody that failed")
	require.Equal(t, []float64{4, 64}, panels[0].at)
	require.Equal(t, []dot{{x: 4, y: 10}, {x: 64, y: 10}}, panels[0].lines[0].points)
	require.Equal(t, []dot{{x: 4, y: 400}, {x: 64, y: 6400}}, panels[2].lines[0].points, "in microseconds")
	require.Equal(t, []dot{{x: 4, y: 12}, {x: 64, y: 192}}, panels[3].lines[0].points)
	var picture strings.Builder
	require.NoError(t, r.WriteSVG(&picture))
	require.NotContains(t, picture.String(), "NaN")
	require.Contains(t, picture.String(), "held for 1ms")
}

func TestAWindowOfKillsEndsWithItsContext(t *testing.T) {
	path, err := newRegion(1)
	require.NoError(t, err)
	defer func() { require.NoError(t, os.Remove(path)) }()
	region, err := openRegion(path)
	require.NoError(t, err)
	defer region.close()
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	cancel(over)
	c := &crew{ctx: ctx, job: job{Scenario: killScenario(1, 1), Span: time.Minute}, region: region, members: make([]*member, 3)}
	_, err = c.waitForWindow(time.Now())
	require.ErrorIs(t, err, over)
}

// A victim that ends before it is killed has failed like any other worker.
func TestKillTellsWhyAVictimFailed(t *testing.T) {
	r := newRunner(t)
	_, err := r.run(t.Context(), killScenario(1, 1), Contender{Name: "unknown"}, "test:unknown:")
	require.ErrorContains(t, err, `no contender "unknown"`)
}

// The queue of a lock, where it has one, says who is the next.
func TestNextInLine(t *testing.T) {
	srv := redistest.Start(t)
	s, rdb := Server{Addr: srv.Addr()}, srv.Client(t)
	require.NoError(t, nextInLine(t.Context(), s, "x"), "there is none")
	add := func(members ...string) {
		for i, m := range members {
			require.NoError(t, rdb.ZAdd(t.Context(), "rlock_queue:{x}", redis.Z{Score: float64(i), Member: m}).Err())
		}
	}
	add("!holder:1", "victim:1 30000 P")
	require.NoError(t, nextInLine(t.Context(), s, "x"))
	add("other:1 30000 P")
	require.ErrorContains(t, nextInLine(t.Context(), s, "x"), "other:1")
}

// A client that does not answer takes part all the same; one that fails does not.
func TestTouch(t *testing.T) {
	srv := redistest.Start(t)
	open := func(addr string) Locker {
		l, err := newScripts(Target{Server: Server{Addr: addr}, Lease: time.Minute})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		return l
	}
	l := open(srv.Addr())
	require.NoError(t, touch(l, "x"))
	require.NoError(t, srv.Client(t).Set(t.Context(), "x", 1, 0).Err())
	require.ErrorIs(t, touch(l, "x"), errFloor)
	j, err := jammedContender().New(Target{Server: Server{Addr: srv.Addr()}})
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	require.NoError(t, touch(j, "x"), "it is held for ever")
}

// The answer to the first question is in the second one's bytes.
func TestBytesAreLessTheQuestion(t *testing.T) {
	before := parseCounters("total_net_input_bytes:100\r\ntotal_net_output_bytes:1000\r\nmaxclients:77\r\n")
	before.reply = 300
	after := parseCounters("total_net_input_bytes:150\r\ntotal_net_output_bytes:1500\r\ncmdstat_publish:calls=2,usec=1\r\ncmdstat_spublish:calls=1,usec=1\r\n")
	d := after.since(before)
	require.EqualValues(t, 250, d.bytes)
	require.EqualValues(t, 77, before.limit)
	require.EqualValues(t, 3, d.messages())
	require.EqualValues(t, 600, before.add(before).reply)
}
