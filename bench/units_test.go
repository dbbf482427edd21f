package bench

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJain(t *testing.T) {
	require.Equal(t, 1.0, jain([]int64{7, 7, 7}))
	require.Equal(t, 0.25, jain([]int64{0, 9, 0, 0}))
	require.Zero(t, jain([]int64{0, 0}))
}

func TestCorrected(t *testing.T) {
	h := newHistogram()
	for range 99 {
		record(h, 10*time.Millisecond)
	}
	record(h, time.Second) // 99 others should have begun meanwhile
	c := corrected(h, 10*time.Millisecond)
	require.EqualValues(t, 99+100, c.TotalCount())
	require.InDelta(t, 10e6, float64(h.ValueAtPercentile(90)), 1e5)
	require.InDelta(t, 800e6, float64(c.ValueAtPercentile(90)), 2e7)
	require.EqualValues(t, 100, corrected(h, 2*time.Second).TotalCount(), "nothing was omitted")
}

func TestSpread(t *testing.T) {
	require.Equal(t, Spread{2, 1, 9}, spread([]float64{9, 1, 2}))
	require.Equal(t, Spread{1.5, 1, 2}, spread([]float64{2, 1}))
	require.Zero(t, spread(nil))
}

// row is one whose samples count that many operations a second.
func row(contender string, floor bool, handoffs int64, ops ...int64) Row {
	r := Row{Contender: contender, Floor: floor}
	for _, n := range ops {
		r.Samples = append(r.Samples, &Sample{Ops: n, Handoffs: handoffs, Elapsed: time.Second, latencies: newHistogram()})
	}
	return r
}

func TestRatiosAreThoseOfTheSameRound(t *testing.T) {
	rows := []Row{row(pingName, true, 0, 20, 40), row(scriptsName, true, 0, 10, 20), row("x", false, 5, 30, 20), row(plainName, false, 10, 1, 1), row("failed", false, 0)}
	rows[4].Skipped = "failed: why"
	summarizeRows(rows)
	x := rows[2].Values
	require.Equal(t, Spread{25, 20, 30}, x["ops/s"].Value)
	require.Equal(t, Spread{2, 1, 3}, x["ops/s"].Ratios[scriptsName])
	require.Equal(t, Spread{1, 0.5, 1.5}, x["ops/s"].Ratios[pingName])
	require.Equal(t, Spread{0.375, 0.25, 0.5}, x["handoffs/s"].Ratios[scriptsName], "the floor has no hand-offs, but cycles")
	require.Equal(t, Spread{0.5, 0.5, 0.5}, x["handoffs/s"].Ratios[plainName])
	require.NotContains(t, x["ops/s"].Ratios, rlockName, "it did not play")
	require.Empty(t, x["jain"].Ratios)
	require.Empty(t, rows[4].Values)
}

func TestProbesAreNotTheContenders(t *testing.T) {
	alone := &Sample{ServerCPU: 10 * time.Millisecond, Elapsed: time.Second}
	busy := &Sample{
		ServerCPU: 50 * time.Millisecond, Elapsed: 3 * time.Second,
		Bytes: 5000, Received: 4000, Calls: map[string]int64{"ping": 100},
	}
	leaveOutProbes([]Row{{Samples: []*Sample{alone}}, {Samples: []*Sample{busy}}})
	require.Equal(t, 10*time.Millisecond, alone.ServerCPU)
	require.InDelta(t, float64(20*time.Millisecond), float64(busy.ServerCPU), 10)
	require.EqualValues(t, 5000-100*21, busy.Bytes)
	require.EqualValues(t, 4000-100*14, busy.Received)
}

func TestWhoTakesPart(t *testing.T) {
	readers, fair, plain := Contender{Shared: true}, Contender{Kinds: []Kind{Cycle}}, Contender{Name: rlockName}
	shared, cycle, held := Scenario{Kind: Cycle, Shared: true}, Scenario{Kind: Cycle}, Scenario{Kind: Held}
	require.True(t, shared.suits(readers))
	require.True(t, shared.suits(plain))
	require.False(t, shared.suits(fair))
	require.False(t, cycle.suits(readers), "they exclude nobody")
	require.True(t, cycle.suits(fair))
	require.False(t, held.suits(fair))
	require.True(t, shared.playedBy(readers).Shared)
	require.False(t, shared.playedBy(plain).Shared, "or it would be contention")
}

func TestSelect(t *testing.T) {
	names := func(patterns ...string) (names []string) {
		selected, err := Select(Scenarios(), patterns)
		require.NoError(t, err)
		for _, s := range selected {
			names = append(names, s.Name)
		}
		return names
	}
	require.Equal(t, []string{"wakeup-local", "wakeup-remote"}, names("wakeup-*"))
	require.Equal(t, []string{"hot-8x8-200us", "hot-8x8-1ms", "hot-8x8@1ms"}, names("hot-8x8-*", "hot-8x8@*"))
	require.Contains(t, names("*@1ms"), "hot-8x8-1ms@1ms")
	require.NotContains(t, names(), "hot-8x8-1ms@1ms")
	require.Contains(t, names(), "hot-8x8-1ms")
	require.NotContains(t, names(), "held-10000", "it takes too long not to be asked for")
	require.Contains(t, names("*"), "held-10000")
	for _, pattern := range []string{"x", "[", ""} {
		_, err := Select(Scenarios(), []string{pattern})
		require.Error(t, err, pattern)
	}
}

func TestScenarioNamesAreUnique(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range Scenarios() {
		require.False(t, seen[s.Name], s.Name)
		seen[s.Name] = true
		require.NotEmpty(t, s.About)
		require.NotEmpty(t, columns[s.Kind], s.Name)
		require.Positive(t, s.Floor, s.Name)
	}
}

func TestPickPatterns(t *testing.T) {
	names := func(patterns ...string) (names []string) {
		picked, err := Pick(Contenders(), patterns)
		require.NoError(t, err)
		for _, c := range picked {
			names = append(names, c.Name)
		}
		return names
	}
	require.Equal(t, []string{"handoff-2ms", "rlock", "readers", "retained"}, names("handoff-2ms", "r*", "rlock"), "once each")
	require.Contains(t, names("handoff-*"), "handoff-500us")
	require.Contains(t, names(), "quorum")
	require.NotContains(t, names(), "handoff-2ms", "a variant has to be asked for")
}

func TestPick(t *testing.T) {
	picked, err := Pick(Contenders(), []string{"pubsub"})
	require.NoError(t, err)
	require.Equal(t, "pubsub", picked[0].Name)
	_, err = Pick(Contenders(), []string{"rlock", "x", "y"})
	require.ErrorContains(t, err, `"x"`)
	require.ErrorContains(t, err, `"y"`)
}

func TestParseCounters(t *testing.T) {
	before := parseCounters("# Stats\r\ntotal_reads_processed:10\r\ncmdstat_info:calls=3,usec=1\r\ncmdstat_get:calls=1,usec=1\r\n")
	after := parseCounters("total_reads_processed:16\r\nconnected_clients:4\r\nused_cpu_sys:1.5\r\nused_cpu_user:0.5\r\n" +
		"cmdstat_info:calls=4,usec=1\r\ncmdstat_get:calls=1,usec=1\r\ncmdstat_evalsha:calls=2,usec=1\r\ncmdstat_config|get:calls=1\r\n")
	d := after.since(before)
	require.EqualValues(t, 5, d.reads, "less the question")
	require.EqualValues(t, 3, d.commands())
	require.EqualValues(t, 2, d.scripts())
	require.Equal(t, 2*time.Second, d.cpu)
	require.EqualValues(t, 4, after.connections)

	after = parseCounters("total_reads_processed:19\r\nserver_time_usec:5000000\r\ncmdstat_info:calls=6,usec=1\r\n")
	before.at = time.UnixMicro(2_000_000)
	d = after.since(before)
	require.EqualValues(t, 2, d.commands(), "the contender has questions of its own")
	require.Equal(t, 3*time.Second, d.elapsed)
	d = after.add(after).since(before.add(before))
	require.EqualValues(t, 4, d.commands())
	require.EqualValues(t, 16, d.reads)
}

func TestWaitsThatTheWindowCutsOffCount(t *testing.T) {
	end := time.Now()
	l := &load{w: &worker{ctx: t.Context(), job: job{Scenario: Scenario{Kind: Contend}}, end: end}, latencies: newHistogram()}
	l.cutOff(end.Add(-time.Second), end.Add(time.Minute))
	require.Equal(t, time.Second, l.tally.Longest)
	l.cutOff(end.Add(time.Second), end.Add(2*time.Second))
	l.unfinished(end.Add(-3*time.Second), nil)
	require.Equal(t, 3*time.Second, l.tally.Longest)
	require.EqualValues(t, 2, l.latencies.TotalCount())

	path, err := newRegion(1)
	require.NoError(t, err)
	defer func() { require.NoError(t, os.Remove(path)) }()
	l.w.region, err = openRegion(path)
	require.NoError(t, err)
	defer l.w.region.close()
	l.locker, l.cell, l.id = last{w: l.w}, &l.w.region.cells[0], 1
	l.cycle(t.Context())
	require.Zero(t, l.taken)
	require.EqualValues(t, 3, l.latencies.TotalCount())
}

// last is a lock that one gets when the window ends.
type last struct {
	broken
	w *worker
}

func (l last) Lock(ctx context.Context, name string) (context.Context, func(context.Context) error, error) {
	l.w.end = time.Now()
	return l.broken.Lock(ctx, name)
}

func TestRegionIsSharedAndNoticesIntruders(t *testing.T) {
	path, err := newRegion(3)
	require.NoError(t, err)
	defer func() { require.NoError(t, os.Remove(path)) }()
	a, err := openRegion(path)
	require.NoError(t, err)
	defer a.close()
	b, err := openRegion(path)
	require.NoError(t, err)
	defer b.close()
	require.Len(t, b.cells, 3)

	require.Zero(t, a.enter(&a.cells[2], 7))
	require.EqualValues(t, 7, b.cells[2].inside.Load())
	a.exit(&a.cells[2], 7)
	require.Zero(t, a.violations.Load())
	require.EqualValues(t, 7, b.enter(&b.cells[2], 8), "who was there before")
	a.enter(&a.cells[2], 9)
	require.EqualValues(t, 1, b.violations.Load())
	require.Zero(t, a.cells[1].inside.Load())
}

func TestProxyDelays(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = echo.Close() }()
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := echo.Accept()
		if err != nil {
			return
		}
		b := make([]byte, 16)
		for n, err := c.Read(b); err == nil; n, err = c.Read(b) {
			_, _ = c.Write(b[:n])
		}
		_ = c.Close()
	}()
	const rtt = 5 * time.Millisecond
	p, err := newProxy(Server{Addr: echo.Addr().String()}, rtt)
	require.NoError(t, err)
	c, err := net.Dial("tcp", p.addr())
	require.NoError(t, err)
	began := time.Now()
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	b := make([]byte, 16)
	n, err := c.Read(b)
	require.NoError(t, err)
	require.Equal(t, "hello", string(b[:n]))
	require.GreaterOrEqual(t, time.Since(began), rtt)
	require.NoError(t, c.Close())
	<-served // the end arrives as well
	p.close()
}

func TestPauseIsNeverShort(t *testing.T) {
	for _, d := range []time.Duration{-1, 0, 10 * time.Microsecond, 300 * time.Microsecond} {
		began := time.Now()
		pause(d)
		require.GreaterOrEqual(t, time.Since(began), d)
	}
}

func TestClock(t *testing.T) {
	before := time.Now()
	now := clock()
	require.WithinRange(t, at(now), before.Add(-time.Second), time.Now().Add(time.Second))
}
