package verify

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
