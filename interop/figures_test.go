package interop

import (
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// contestant is a library with so many processes, each with one client.
type contestant struct {
	name    string
	parties []*remoteParty
}

const (
	contenders = 8
	rounds     = 3
)

// measured returns the server of a measurement, and skips the test where figures would
// say nothing.
func measured(t *testing.T) (*redistest.Server, redis.UniversalClient) {
	t.Helper()
	needed(t)
	if redistest.RaceEnabled {
		t.Skip("the race detector slows one side down: run without -race")
	}
	srv := newServer(t, "standalone")
	rdb := dial("standalone", srv.Addr())
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return srv, rdb
}

// TestFigures measures Redisson and this library side by side: processes of
// their own, the same server, rounds in turn, so that what else the machine does
// hits all of them. It fails only if something does not work at all.
func TestFigures(t *testing.T) {
	srv, rdb := measured(t)
	s := &site{topology: "standalone", srv: srv, rdb: rdb}

	field := []contestant{s.contestant(t, "rlock", goPeer)}
	for _, version := range versions() {
		run := build(t, version)
		field = append(field, s.contestant(t, "Redisson "+version, func(tb testing.TB) *process { return startProcess(tb, run()) }))
	}
	var columns []string
	for _, c := range field {
		columns = append(columns, c.name)
		// The JVMs compile what runs often.
		c.together(t, lockName, 2*time.Second)
		one := lockName()
		c.together(t, func() string { return one }, 5*time.Second)
	}
	rep := newReport("Figures", "scenario", columns...)
	uncontended(t, rep, field)
	s.wakeUps(t, rep, field)
	contention(t, rep, field)
	java, err := exec.Command("java", "--version").Output()
	require.NoError(t, err)
	rep.write(t, fmt.Sprintf("Milliseconds, median / worst (how many), of %d alternating rounds, on a shared machine with %d cores; %s, %s, Redis %s, %s.",
		rounds, runtime.NumCPU(), runtime.Version(), firstLine(java), serverVersion(t, rdb), time.Now().Format(time.DateOnly)))
}

func (s *site) contestant(t *testing.T, name string, start func(testing.TB) *process) contestant {
	t.Helper()
	c := contestant{name: name}
	for range contenders {
		c.parties = append(c.parties, newRemoteParty(t, name, start(t), s.topology, s.srv.Addr(), defaultLease))
	}
	return c
}

// together lets one actor in each process work for d, at locks of those names.
func (c contestant) together(t *testing.T, name func() string, d time.Duration) (shifts []shift) {
	t.Helper()
	shifts = make([]shift, len(c.parties))
	errs := make([]error, len(c.parties))
	var group sync.WaitGroup
	for i, p := range c.parties {
		a := p.actor("plain", name())
		group.Go(func() { shifts[i], errs[i] = a.work(1e6, d, false) })
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return shifts
}

// uncontended: one actor locks and unlocks what nobody else wants.
func uncontended(t *testing.T, rep *report, field []contestant) {
	pairs := make([]sample, len(field))
	for range rounds {
		for i, c := range field {
			work, err := c.parties[0].actor("plain", lockName()).work(1e6, time.Second, false)
			require.NoError(t, err)
			for _, o := range work.sections {
				pairs[i] = append(pairs[i], o.done.Sub(o.asked))
			}
		}
	}
	for i, c := range field {
		rep.set("0 uncontended lock and unlock", c.name, pairs[i].String())
		rep.set("1 … pairs per second", c.name, fmt.Sprintf("%.0f", float64(len(pairs[i]))/rounds))
	}
}

// wakeUps: a release until the only waiter, in another process, has the lock.
func (s *site) wakeUps(t *testing.T, rep *report, field []contestant) {
	type way struct {
		row      string
		from, to int
	}
	var ways []way
	for i := range field {
		ways = append(ways, way{"2 wake-up, other process of the same library", i, i})
		if i > 0 {
			ways = append(ways, way{"3 wake-up, rlock → Redisson", 0, i}, way{"4 wake-up, Redisson → rlock", i, 0})
		}
	}
	took := make(map[way]sample)
	for range rounds {
		for _, w := range ways {
			name := lockName()
			holder, waiter := field[w.from].parties[0].actor("plain", name), field[w.to].parties[1].actor("plain", name)
			for range 40 {
				require.NoError(t, holder.lock(0).err)
				got := s.wait(t, waiter, name)
				released := unlocked(t, holder)
				took[w] = append(took[w], await(t, got).ended.Sub(released))
				unlocked(t, waiter)
			}
		}
	}
	for _, w := range ways {
		rep.set(w.row, field[max(w.from, w.to)].name, took[w].String())
	}
	for _, row := range []string{"3 wake-up, rlock → Redisson", "4 wake-up, Redisson → rlock"} {
		rep.set(row, field[0].name, "")
	}
}

// contention: processes that never stop to want the same lock.
func contention(t *testing.T, rep *report, field []contestant) {
	const d = 2 * time.Second
	waits := make([]sample, len(field))
	rates, shares := make([][]float64, len(field)), make([][]float64, len(field))
	for range rounds {
		for i, c := range field {
			name := lockName()
			shifts := c.together(t, func() string { return name }, d)
			total, least := 0, len(shifts[0].sections)
			for _, s := range shifts {
				total, least = total+len(s.sections), min(least, len(s.sections))
				for _, o := range s.sections {
					waits[i] = append(waits[i], o.acquired.Sub(o.asked))
				}
			}
			rates[i] = append(rates[i], float64(total)/d.Seconds())
			shares[i] = append(shares[i], 100*float64(least)*contenders/float64(total))
		}
	}
	row := fmt.Sprintf("%d processes on one lock", contenders)
	for i, c := range field {
		rep.set("5 "+row+", wait", c.name, waits[i].String())
		rep.set("6 … sections per second", c.name, fmt.Sprintf("%.0f", middle(rates[i])))
		rep.set("7 … the least served, in % of an equal share", c.name, fmt.Sprintf("%.0f", middle(shares[i])))
	}
}

func middle(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

func serverVersion(t *testing.T, rdb redis.UniversalClient) string {
	t.Helper()
	info, err := rdb.Info(t.Context(), "server").Result()
	require.NoError(t, err)
	_, rest, _ := strings.Cut(info, "redis_version:")
	return firstLine([]byte(strings.ReplaceAll(rest, "\r", "")))
}
