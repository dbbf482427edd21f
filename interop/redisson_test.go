package interop

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

// woken is what a release may take to reach a waiter. Who is not woken sleeps for a
// lease of 30 s, and a busy machine is not that slow. How long it took is in the table.
const woken = defaultLease / 2

// The leases of cases that wait for one to end, or to be renewed. They outlast what
// a busy machine stalls.
const (
	shortLease = 3 * time.Second
	longLease  = 6 * time.Second
)

// pairing is one direction of a case: each side in each part once.
type pairing struct {
	*site
	kinds
	row  string
	inGo bool // the holder
}

// kinds are those of the parts: what the holder holds and the other one wants.
type kinds struct{ held, wanted string }

var (
	plain          = kinds{"plain", "plain"}
	writerToWriter = kinds{"write", "write"}
	writerToReader = kinds{"write", "read"}
	readerToWriter = kinds{"read", "write"}
)

// cases in the order of the table. Those that measure go first, one by one; then
// those that wait for leases, at the same time.
var cases = []struct {
	name     string
	patient  bool
	mixed    func(*testing.T, *site, string) // of both sides in all parts
	directed func(*testing.T, pairing)
	kinds    kinds // of the parts of a directed case
}{
	{name: "exclusion under load", mixed: exclusion},
	{name: "hand-off", directed: handOver(100), kinds: plain},
	{name: "8 in one client against one", directed: crowd(1), kinds: plain},
	{name: "8 in four clients against one", directed: crowd(4), kinds: plain},
	{name: "what a release says", directed: announced, kinds: plain},
	{name: "queue of three clients behind Java", mixed: behind},
	{name: "first in the queue killed while Java holds", mixed: firstKilled},
	{name: "first in the queue leaves while Java holds", mixed: firstLeaves},
	{name: "kept where nobody holds it", mixed: kept},
	{name: "fenced: tokens grow", mixed: tokens},
	{name: "nested holds", directed: nested, kinds: plain},
	{name: "spin lock", directed: spin, patient: true},
	{name: "renewal, equal leases", directed: renewal(shortLease, shortLease), kinds: plain, patient: true},
	{name: "renewal, holder's lease shorter", directed: renewal(shortLease, longLease), kinds: plain, patient: true},
	{name: "renewal, holder's lease longer", directed: renewal(longLease, shortLease), kinds: plain, patient: true},
	{name: "force-unlock", directed: force, kinds: plain, patient: true},
	{name: "killed holder", directed: killed, kinds: plain, patient: true},
	{name: "late unlock after expiry", directed: late, kinds: plain, patient: true},

	{name: "read/write under load", mixed: readWriteLoad},
	{name: "a writer leaves before a thread in Java waits", mixed: early},
	{name: "writer to writer", directed: handOver(50), kinds: writerToWriter},
	{name: "writer to reader", directed: handOver(50), kinds: writerToReader},
	{name: "writer to 3 readers of a client, the last of them", directed: crew, kinds: writerToReader},
	{name: "last reader to writer", directed: handOver(50), kinds: readerToWriter},
	{name: "readers of both sides, writers out", directed: readers, kinds: readerToWriter},
	{name: "nested writer", directed: nested, kinds: writerToReader},
	{name: "nested reader", directed: nested, kinds: readerToWriter},
	{name: "downgrade to reader", directed: downgrade, kinds: writerToReader, patient: true},
	{name: "writer's renewal", directed: renewal(shortLease, shortLease), kinds: writerToReader, patient: true},
	{name: "reader's renewal", directed: renewal(shortLease, shortLease), kinds: readerToWriter, patient: true},
	{name: "two readers, equal leases", directed: companions(shortLease, shortLease), patient: true},
	{name: "two readers, one's lease shorter", directed: companions(shortLease, longLease), patient: true},
	{name: "force-unlock of a writer", directed: force, kinds: writerToWriter, patient: true},
	{name: "force-unlock of a reader", directed: force, kinds: readerToWriter, patient: true},
	{name: "killed writer", directed: killed, kinds: writerToReader, patient: true},
	{name: "killed reader", directed: killed, kinds: readerToWriter, patient: true},
	{name: "killed reader beside a living one", directed: survived, kinds: readerToWriter, patient: true},
	{name: "late unlock of a writer", directed: late, kinds: writerToReader, patient: true},
	{name: "late unlock of a reader", directed: late, kinds: readerToWriter, patient: true},

	{name: "pub/sub: Go off, Java OFF", directed: agreed("cluster-off", "cluster-off"), kinds: plain},
	{name: "pub/sub: Go both, Java AUTO", directed: agreed("cluster-both", "cluster"), kinds: plain},
	{name: "pub/sub: Go both, Java OFF", directed: agreed("cluster-both", "cluster-off"), kinds: plain},
	{name: "pub/sub: Go auto, Java OFF", directed: disagreed("cluster", "cluster-off"), kinds: plain, patient: true},
	{name: "pub/sub: Go off, Java AUTO", directed: disagreed("cluster-off", "cluster"), kinds: plain, patient: true},
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
					runCases(t, &site{topology, topology, topology, version + " " + topology, srv, rdb, run, java, rep})
				})
			}
		})
	}
}

// runCases does not nest the directions: parallel tests run together only if
// they have the same parent.
func runCases(t *testing.T, s *site) {
	bare := strings.NewReplacer(" ", "-", ",", "", ":", "", "'", "", "/", "-")
	for i, c := range cases {
		row := fmt.Sprintf("%02d %s", i, c.name)
		if c.mixed != nil {
			t.Run(bare.Replace(c.name), func(t *testing.T) {
				s.report.set(row, s.column, "**failed**") // until it has passed
				c.mixed(t, s, row)
			})
			continue
		}
		for _, inGo := range []bool{true, false} {
			p := pairing{s, c.kinds, row + ", Java → Go", inGo}
			if inGo {
				p.row = row + ", Go → Java"
			}
			t.Run(bare.Replace(c.name)+strings.NewReplacer(", ", "-", " → ", "-to-").Replace(p.row[len(row)+1:]), func(t *testing.T) {
				s.report.set(p.row, s.column, "**failed**")
				if c.patient {
					t.Parallel()
				}
				c.directed(t, p)
			})
		}
	}
}

// passed fills in the direction's cell.
func (p pairing) passed(result fmt.Stringer) { p.report.set(p.row, p.column, result.String()) }

// holder returns a client of the side that holds, other one of the other side.
func (p pairing) holder(t *testing.T, lease time.Duration) party {
	t.Helper()
	return p.party(t, p.inGo, lease)
}

func (p pairing) other(t *testing.T, lease time.Duration) party {
	t.Helper()
	return p.party(t, !p.inGo, lease)
}

func (p pairing) party(t *testing.T, inGo bool, lease time.Duration) party {
	t.Helper()
	if inGo {
		return p.goParty(t, lease)
	}
	return p.javaParty(t, lease)
}

type text string

func (s text) String() string { return string(s) }
