package verify

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
	begin := func(at, fire int64) event { return event{At: at, Kind: opLock, Value: fire} }
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
