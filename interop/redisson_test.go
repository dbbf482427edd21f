package interop

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// versions of Redisson: the newest of 3.x and of 4.x when this was written.
// RLOCK_INTEROP_REDISSON, separated by spaces, names others.
func versions() []string {
	if v := strings.Fields(os.Getenv("RLOCK_INTEROP_REDISSON")); len(v) > 0 {
		return v
	}
	return []string{"3.52.0", "4.7.0"}
}

var topologies = []string{"standalone", "cluster"}

// defaultLease is that of both sides, where a case does not need another one.
const defaultLease = 30 * time.Second

// handOverLimit is what a release may take to reach a waiter of the other side.
const handOverLimit = 50 * time.Millisecond

// site is one version of Redisson beside one server.
type site struct {
	topology string
	column   string
	srv      *redistest.Server
	rdb      redis.UniversalClient
	run      func() *exec.Cmd // a JVM
	java     *process
	report   *report
}

// pairing is one direction of a case: each side in each part once.
type pairing struct {
	*site
	row    string
	holder func(t *testing.T, lease time.Duration) party
	other  func(t *testing.T, lease time.Duration) party
}

// cases in the order of the table. Those that measure go first, one by one; then
// those that wait for leases, at the same time.
var cases = []struct {
	name     string
	patient  bool
	mixed    func(*testing.T, *site, string) // of both sides in all parts
	directed func(*testing.T, pairing)
}{
	{name: "exclusion under load", mixed: exclusion},
	{name: "hand-over", directed: handOver},
	{name: "a crowd against one", directed: crowd},
	{name: "fenced: tokens grow", mixed: tokens},
	{name: "nested holds", directed: nested},
	{name: "spin lock", directed: spin, patient: true},
	{name: "renewal, equal leases", directed: renewal(1200*time.Millisecond, 1200*time.Millisecond), patient: true},
	{name: "renewal, holder's lease shorter", directed: renewal(800*time.Millisecond, 2400*time.Millisecond), patient: true},
	{name: "renewal, holder's lease longer", directed: renewal(2400*time.Millisecond, 800*time.Millisecond), patient: true},
	{name: "force-unlock", directed: force, patient: true},
	{name: "killed holder", directed: killed, patient: true},
	{name: "late unlock after expiry", directed: late, patient: true},
	{name: "sharded pub/sub", mixed: sharded},
	{name: "read/write lock", mixed: missing},
}

// needed skips a test unless make interop runs it.
func needed(t *testing.T) {
	t.Helper()
	if os.Getenv("RLOCK_INTEROP") != "1" {
		t.Skip("needs Java, Maven and Maven Central: run make interop")
	}
}

// TestRedisson runs all cases beside each version, on a single server and on a
// cluster of one node.
func TestRedisson(t *testing.T) {
	needed(t)
	var columns []string
	for _, version := range versions() {
		for _, topology := range topologies {
			columns = append(columns, version+" "+topology)
		}
	}
	rep := newReport("Cases", "case", columns...)
	t.Cleanup(func() {
		rep.write(t,
			"Go → Java: the holder is in Go and who waits, or interferes, in Java. Where there are several measurements: median / worst (how many). Single ones run beside a dozen other cases, all of them under Go's race detector. Force-unlock: from the call until a waiter of the holder's side has the lock. Killed holder, late unlock: from the end of the lease.",
			"",
			fmt.Sprintf("%d mixed acquisitions in checked sections, %d violations.", rep.acquired, rep.violations))
	})
	for _, version := range versions() {
		t.Run(version, func(t *testing.T) {
			run := build(t, version)
			java := startProcess(t, run())
			for _, topology := range topologies {
				t.Run(topology, func(t *testing.T) {
					srv := newServer(t, topology)
					rdb := dial(topology, srv.Addr())
					t.Cleanup(func() { require.NoError(t, rdb.Close()) })
					runCases(t, &site{topology, version + " " + topology, srv, rdb, run, java, rep})
				})
			}
		})
	}
}

// runCases does not nest the directions: parallel tests run together only if
// they have the same parent.
func runCases(t *testing.T, s *site) {
	plain := strings.NewReplacer(" ", "-", ",", "", ":", "", "'", "", "/", "-")
	for i, c := range cases {
		row := fmt.Sprintf("%02d %s", i, c.name)
		if c.mixed != nil {
			t.Run(plain.Replace(c.name), func(t *testing.T) {
				s.report.set(row, s.column, "**failed**") // until it has passed
				c.mixed(t, s, row)
			})
			continue
		}
		for _, d := range []struct {
			name   string
			holder func(*testing.T, time.Duration) party
			other  func(*testing.T, time.Duration) party
		}{
			{"Go → Java", s.goParty, s.javaParty},
			{"Java → Go", s.javaParty, s.goParty},
		} {
			t.Run(plain.Replace(c.name+" "+strings.Replace(d.name, "→", "to", 1)), func(t *testing.T) {
				p := pairing{s, row + ", " + d.name, d.holder, d.other}
				s.report.set(p.row, s.column, "**failed**")
				if c.patient {
					t.Parallel()
				}
				c.directed(t, p)
			})
		}
	}
}

// missing is a case that the library cannot do yet.
func missing(_ *testing.T, s *site, row string) { s.report.set(row, s.column, "**not there yet**") }

// passed fills in the direction's cell.
func (p pairing) passed(result fmt.Stringer) { p.report.set(p.row, p.column, result.String()) }

type text string

func (s text) String() string { return string(s) }

func (s *site) goParty(t *testing.T, lease time.Duration) party {
	t.Helper()
	return newGoParty(t, s.topology, s.srv.Addr(), lease)
}

func (s *site) javaParty(t *testing.T, lease time.Duration) party {
	t.Helper()
	return newRemoteParty(t, "Java", s.java, s.topology, s.srv.Addr(), lease)
}

// newServer runs a server: alone, or as a cluster of one node with all slots.
func newServer(tb testing.TB, topology string) *redistest.Server {
	tb.Helper()
	if topology == "standalone" {
		return redistest.Start(tb)
	}
	// Redisson takes the node's address from CLUSTER NODES, which a node without
	// peers does not know of itself.
	srv := redistest.Start(tb, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
	admin := srv.Client(tb)
	require.NoError(tb, admin.ClusterAddSlotsRange(tb.Context(), 0, 16383).Err())
	redistest.Eventually(tb, "the cluster serves", func() bool {
		return strings.Contains(admin.ClusterInfo(tb.Context()).Val(), "cluster_state:ok")
	})
	return srv
}

// owner returns the only owner of a lock, and its hold count; "" if it is free.
func (s *site) owner(t *testing.T, name string) (owner, count string) {
	t.Helper()
	fields, err := s.rdb.HGetAll(t.Context(), name).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, len(fields), 1, "%v", fields)
	for owner, count = range fields {
	}
	return owner, count
}

// ttl returns what is left of the lease, 0 or less if the lock is free.
func (s *site) ttl(t *testing.T, name string) time.Duration {
	t.Helper()
	left, err := s.rdb.PTTL(t.Context(), name).Result()
	require.NoError(t, err)
	return left
}

// later runs f in the background.
func later[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

// wait starts a lock call and returns when its client listens for the release.
func (s *site) wait(t *testing.T, a actor, name string) <-chan acquired {
	t.Helper()
	got := later(func() acquired { return a.lock(0) })
	channel := "redisson_lock__channel:{" + name + "}"
	redistest.Eventually(t, "a waiter listens to "+channel, func() bool {
		n, err := s.rdb.PubSubNumSub(t.Context(), channel).Result()
		require.NoError(t, err)
		return n[channel] > 0
	})
	// The listener tries once more, and a Go client listens on for a while after
	// its last wait: leave the attempt some time.
	time.Sleep(10 * time.Millisecond)
	return got
}

// await returns what a lock call in the background came to.
func await(t *testing.T, got <-chan acquired) acquired {
	t.Helper()
	select {
	case a := <-got:
		require.NoError(t, a.err)
		return a
	case <-time.After(callLimit):
		t.Fatal("a waiter never got the lock")
		return acquired{}
	}
}

// unlocked gives a hold back, which must succeed, and returns when the release began.
func unlocked(t *testing.T, a actor) time.Time {
	t.Helper()
	when, err := a.unlock()
	require.NoError(t, err)
	return when.begun
}

// stillOut requires a lock call in the background to be waiting.
func stillOut(t *testing.T, got <-chan acquired, why string) {
	t.Helper()
	select {
	case a := <-got:
		t.Fatalf("the waiter got the lock: %s; %v", why, a.err)
	default:
	}
}
