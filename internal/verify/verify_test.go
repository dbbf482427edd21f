package verify

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
)

// TestVerify is the whole matrix.
func TestVerify(t *testing.T) {
	if os.Getenv("RLOCK_VERIFY") == "" {
		t.Skip("the whole matrix takes minutes: make verify")
	}
	rows := matrix()
	start := time.Now()
	total := verify(t, rows, size{rounds: 3, further: 1, histories: 14, clients: 4, steps: 4, fault: 1200 * ms})
	fmt.Printf("%v\n", time.Since(start).Round(time.Second))
	require.True(t, total.clean())
	if os.Getenv("RLOCK_SEED") == "" { // a replay may be of one row
		require.GreaterOrEqual(t, len(rows), 220)
		require.GreaterOrEqual(t, total.histories, 7000)
		require.GreaterOrEqual(t, total.ordered, 400)
	}
}

// A few rows of every group, for as long as a plain go test can wait.
func TestVerifyInShort(t *testing.T) {
	names := []string{
		"nothing", "fair: connections cut", // the rest is left to make test-all
		"server killed, restarted empty", "reply lost: acquire", "connections cut", "process killed while it holds",
		"polling: connections cut", "fair: nothing", "rw: any reply lost", "multi: connections cut", "quorum: connections cut",
		"subscriptions deaf, nothing is cut", "DEL of queues, nothing is cut",
	}
	if testing.Short() {
		names = names[:2]
	}
	var rows []fault
	for _, name := range names {
		n := slices.IndexFunc(matrix(), func(f fault) bool { return f.name == name })
		rows = append(rows, matrix()[n])
	}
	total := verify(t, rows, size{rounds: 1, further: 1, histories: 6, clients: 4, steps: 4, fault: 800 * ms})
	require.True(t, total.clean())
	require.Positive(t, total.grants)
}

// Read/write locks have the queue of plain locks, and so the rows of plain locks, but for those that are
// listed with a reason. Of the rows that strike once and look at a single waiter they have those that name them.
func TestReadWriteLocksHaveTheRowsOfPlainLocks(t *testing.T) {
	var names []string
	for _, f := range matrix() {
		names = append(names, f.name)
	}
	for _, f := range plainRows() {
		runs := slices.Contains(names, "rw: "+f.name)
		if !f.alone {
			require.Equal(t, notReadWrite[f.name] == "", runs, f.name)
		} else if slices.Contains(f.also, readWrite) {
			require.True(t, runs, f.name)
		}
	}
	for name := range notReadWrite {
		require.Contains(t, names, name)
	}
}

// TestSoak takes as long as RLOCK_SOAK says.
func TestSoak(t *testing.T) {
	text := os.Getenv("RLOCK_SOAK")
	if text == "" {
		t.Skip("runs as long as one likes: make soak D=10m")
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	soak(t, d)
}

// TestVerifyFires is the whole matrix of jobs.
func TestVerifyFires(t *testing.T) {
	if os.Getenv("RLOCK_VERIFY") == "" {
		t.Skip("the whole matrix takes minutes: make verify")
	}
	start := time.Now()
	total := verify(t, fireRows(), size{rounds: 2, further: 1, histories: 10, clients: 3, steps: 4, fault: 2500 * ms})
	fmt.Printf("%v\n", time.Since(start).Round(time.Second))
	require.True(t, total.clean())
	if os.Getenv("RLOCK_SEED") == "" {
		require.GreaterOrEqual(t, total.histories, 1000)
	}
}

// A few rows, as a plain go test takes.
func TestVerifyFiresInShort(t *testing.T) {
	names := []string{"fires: connections cut", "fires: reply lost: claim", "fires: a hook that sends everything twice", "fires: process killed while it holds"}
	if testing.Short() {
		names = names[1:2]
	}
	var rows []fault
	for _, f := range fireRows() {
		if slices.Contains(names, f.name) {
			rows = append(rows, f)
		}
	}
	require.Len(t, rows, len(names))
	total := verify(t, rows, size{rounds: 1, further: 1, histories: 6, clients: 4, steps: 4, fault: 2 * time.Second})
	require.True(t, total.clean())
	require.Positive(t, total.grants)
}

// What the checker of fires must find, and what it must not.
func TestJudgeFires(t *testing.T) {
	begin := func(at, fire int64) event { return event{At: at, Kind: opLock, Value: fire, Due: at - 2} }
	end := func(at, fire int64) event { return event{At: at, Kind: opUnlock, Value: fire} }
	lose := func(at, fire int64) event { return event{At: at, Kind: opLost, Value: fire} }
	for _, c := range []struct {
		name          string
		events        []event
		least, strict bool
		gone, stalls  []span
		wrong         string
	}{
		{"one after the other", []event{begin(1, 10), end(2, 10), begin(3, 20), end(9, 20)}, false, true, nil, nil, ""},
		{"twice", []event{begin(1, 10), end(2, 10), begin(3, 10), end(9, 10)}, false, false, nil, nil, "begun 2 times"},
		{"twice, cut", []event{begin(1, 10), lose(2, 10), begin(3, 10), end(9, 10)}, false, false, nil, nil, "begun 2 times"},
		{"twice, forgotten between", []event{begin(1, 10), begin(3, 10), end(9, 10)}, false, false, []span{{2, 2}}, nil, ""},
		{"twice, forgotten between the claim and the run", []event{begin(5, 10), begin(7, 10), end(9, 10)}, false, false, []span{{4, 4}}, nil, ""},
		{"twice, forgotten before", []event{begin(5, 10), begin(7, 10), end(9, 10)}, false, false, []span{{2, 2}}, nil, "begun 2 times"},
		{"cut short", []event{begin(1, 10), begin(3, 20), end(9, 20)}, false, true, nil, nil, ""},
		{"at least once, repeated", []event{begin(1, 10), begin(2, 10), end(3, 10), begin(4, 20), end(9, 20)}, true, true, nil, nil, ""},
		{"at least once, left", []event{begin(0, 5), end(0, 5), begin(1, 10), lose(2, 10), begin(4, 20), end(9, 20)}, true, true, nil, nil, "never finished"},
		{"at least once, left, as a process stood still", []event{begin(1, 10), begin(4, 20), end(9, 20)}, true, true, nil, []span{{2, 3}}, ""},
		{"at least once, left, in a row that allows it", []event{begin(1, 10), begin(4, 20), end(9, 20)}, true, false, nil, nil, ""},
		{"at least once, the newest", []event{begin(1, 10), end(2, 10), begin(9, 20)}, true, true, nil, nil, ""},
		{"nothing after healing", []event{begin(1, 10), end(2, 10)}, false, false, nil, nil, "no fire was run"},
		{"nothing at all", nil, false, false, nil, nil, "no fire was run"},
	} {
		h := &history{gone: c.gone}
		h.judgeFires(c.events, c.least, c.strict, c.stalls, 9)
		if c.wrong == "" {
			require.Empty(t, h.wrong, c.name)
		} else {
			require.Len(t, h.wrong, 1, c.name)
			require.Contains(t, h.wrong[0], c.wrong, c.name)
		}
	}
}

// A few rows of results; RLOCK_VERIFY runs all of them.
func TestVerifyResults(t *testing.T) {
	redistest.Long(t, "histories under faults")
	var rows []fault
	for _, f := range matrix() {
		if f.lock == results && (os.Getenv("RLOCK_VERIFY") != "" || f.name == "once: any reply lost" || f.name == "once: DEL" || f.name == "once: process killed while it holds") {
			rows = append(rows, f)
		}
	}
	total := verify(t, rows, size{rounds: 1, further: 1, histories: 10, clients: 6, steps: 4, fault: 1000 * ms})
	require.True(t, total.clean())
	require.Positive(t, total.grants)
}

func TestMain(m *testing.M) {
	logging.Disable() // go-redis' own: every refused dial while a server is gone
	redistest.RunChild(map[string]func([]string){"party": party})
	// Rows mostly wait; more at once than this and the machine is what is measured.
	_ = flag.Set("test.parallel", "4")
	if os.Getenv("RLOCK_VERIFY") != "" { // some wait for seconds
		_ = flag.Set("test.parallel", "5")
	}
	if os.Getenv("RLOCK_VERIFY") != "" || os.Getenv("RLOCK_SOAK") != "" {
		_ = flag.Set("test.timeout", "0") // the command line's, or go test's, still counts
	}
	goleak.VerifyTestMain(m, redistest.Dials)
}
