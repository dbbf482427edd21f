package interop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// small is the topology of a client among many: few connections, few threads.
const small = "standalone-small"

// Of the figures with many clients.
const (
	wideClients = 64
	wideHeld    = time.Millisecond
	wideWarmup  = 6 * time.Second // the JVM compiles what runs often
	wideWindow  = 6 * time.Second
	wideTail    = 300 * time.Millisecond // or those who leave would be counted
)

// TestFiguresWide measures one lock that many clients want and hold for a while:
// what a hand-off costs the server, and who has to wait.
func TestFiguresWide(t *testing.T) {
	srv, rdb := measured(t)
	columns := []string{"rlock"}
	for _, version := range versions() {
		columns = append(columns, "Redisson "+version)
	}
	rep := newReport("Figures, many clients", "scenario", columns...)
	for i, column := range columns {
		t.Run(column, func(t *testing.T) { // its process ends before the next one starts
			start := goPeer
			if i > 0 {
				run := build(t, versions()[i-1])
				start = func(tb testing.TB) *process { return startProcess(tb, run()) }
			}
			wide(t, rep, column, start(t), srv.Addr(), rdb)
		})
	}
	rep.write(t, fmt.Sprintf("%d clients in one process with a thread each, one lock, held for %v; %v after %v. Per hand-off: what the server counted, over how often the lock went to another client. Messages include the probes of connections.",
		wideClients, wideHeld, wideWindow, wideWarmup))
}

func wide(t *testing.T, rep *report, column string, p *process, addr string, rdb redis.UniversalClient) {
	name := lockName()
	actors := make([]*remoteActor, wideClients)
	for i := range actors { // one after the other, or the server would be asked for all connections at once
		actors[i] = newRemoteParty(t, column, p, small, addr, defaultLease).actor("plain", name).(*remoteActor)
	}
	shifts := later(func() []shift { return working(t, actors, wideWarmup+wideWindow+wideTail, wideHeld) })
	time.Sleep(wideWarmup)
	before, begin := loadOf(t, rdb), time.Now()
	time.Sleep(wideWindow)
	after, end := loadOf(t, rdb), time.Now()
	w := within(<-shifts, begin, end)
	require.Positive(t, w.handovers)
	cost := func(counter string) float64 { return (after[counter] - before[counter]) / float64(w.handovers) }
	prefix := fmt.Sprintf("%d clients, held for %v: ", wideClients, wideHeld)
	for row, text := range map[string]string{
		"0 " + prefix + "hand-offs per second":   fmt.Sprintf("%.0f", float64(w.handovers)/end.Sub(begin).Seconds()),
		"1 … scripts, messages per hand-off":     fmt.Sprintf("%.2f, %.2f", cost("scripts"), cost("messages")),
		"2 … server CPU, net bytes per hand-off": fmt.Sprintf("%.0f µs, %.0f", 1e6*cost("cpu"), cost("bytes")),
		"3 … wait":                                  w.waits.String(),
		"4 … Jain's index over clients":             fmt.Sprintf("%.2f", w.jain()),
		"5 … the least served, in % of equal share": fmt.Sprintf("%.0f", w.least()),
	} {
		rep.set(row, column, text)
	}
}

// working lets actors hold the lock again and again for d.
func working(t *testing.T, actors []*remoteActor, d, section time.Duration) []shift {
	shifts, errs := make([]shift, len(actors)), make([]error, len(actors))
	var group sync.WaitGroup
	for i, a := range actors {
		group.Go(func() { shifts[i], errs[i] = a.hold(d, section) })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err) // not in the goroutine of the test
		}
	}
	return shifts
}

// loadOf reads what the server has counted: scripts, messages, seconds of CPU
// time, bytes from and to sockets.
func loadOf(t *testing.T, rdb redis.UniversalClient) map[string]float64 {
	t.Helper()
	text, err := rdb.Info(t.Context(), "everything").Result()
	require.NoError(t, err)
	return parseLoad(text)
}

func parseLoad(info string) map[string]float64 {
	counters := map[string]string{
		"cmdstat_evalsha": "scripts", "cmdstat_eval": "scripts", "cmdstat_publish": "messages", "cmdstat_spublish": "messages",
		"used_cpu_user": "cpu", "used_cpu_sys": "cpu", "total_net_input_bytes": "bytes", "total_net_output_bytes": "bytes",
	}
	load := make(map[string]float64)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value, _, _ = strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		if counter := counters[name]; counter != "" {
			n, _ := strconv.ParseFloat(value, 64)
			load[counter] += n
		}
	}
	return load
}

// contest is what happened in a window.
type contest struct {
	shares    []int // acquisitions of each
	turns     []int // of each: not after itself
	handovers int   // all turns but the first
	waits     sample
	waitsOf   []sample
}

// within evaluates shifts between two moments. A wait that the end cuts off counts
// with the length it had.
func within(shifts []shift, begin, end time.Time) contest {
	c := contest{shares: make([]int, len(shifts)), turns: make([]int, len(shifts)), waitsOf: make([]sample, len(shifts))}
	type entry struct {
		who int
		at  time.Time
	}
	var order []entry
	for who, s := range shifts {
		for _, o := range s.sections {
			if o.acquired.Before(begin) || !o.asked.Before(end) {
				continue
			}
			wait := o.acquired.Sub(o.asked)
			if o.acquired.Before(end) {
				c.shares[who]++
				order = append(order, entry{who, o.acquired})
			} else {
				wait = end.Sub(o.asked)
			}
			c.waits, c.waitsOf[who] = append(c.waits, wait), append(c.waitsOf[who], wait)
		}
	}
	slices.SortFunc(order, func(a, b entry) int { return a.at.Compare(b.at) })
	for i, o := range order {
		if i == 0 || o.who != order[i-1].who {
			c.turns[o.who]++
			c.handovers += min(i, 1)
		}
	}
	return c
}

// jain is Jain's index over the acquisitions.
func (c contest) jain() float64 {
	sum, squares := 0.0, 0.0
	for _, n := range c.shares {
		sum, squares = sum+float64(n), squares+float64(n*n)
	}
	return sum * sum / max(squares*float64(len(c.shares)), 1)
}

// least is the smallest share, in per cent of an equal one.
func (c contest) least() float64 {
	total := 0
	for _, n := range c.shares {
		total += n
	}
	return 100 * float64(slices.Min(c.shares)*len(c.shares)) / float64(max(total, 1))
}

// pause sleeps for d, more precisely than time.Sleep does in an idle program.
func pause(d time.Duration) {
	const slack = 60 * time.Microsecond // how late Linux may wake a thread
	end := time.Now().Add(d)
	if d > slack {
		tv := unix.NsecToTimeval(int64(d - slack))
		_, _ = unix.Select(0, nil, nil, nil, &tv) // a signal may end it early
	}
	for time.Now().Before(end) {
	}
}
