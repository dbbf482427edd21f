package verify

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// size is how much happens in a round, and how often there is one.
type size struct {
	rounds, further           int // of rows of plain locks, and of others
	histories, clients, steps int
	fault                     time.Duration
	keep                      bool // parties stay from round to round
}

// seed returns RLOCK_SEED, or one that nobody has seen before.
func seed(t *testing.T) uint64 {
	n := rand.Uint64N(1 << 32)
	if text := os.Getenv("RLOCK_SEED"); text != "" {
		var err error
		n, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("RLOCK_SEED=%d", n)
	return n
}

// verify runs rows of the matrix, prints a line when a row ends, because a run may be cut, and the table at the end.
func verify(t *testing.T, rows []fault, s size) figures {
	seed := seed(t)
	resources := redistest.Start(t)
	var mu sync.Mutex // guards table
	table := make(map[string]figures)
	t.Run("rows", func(t *testing.T) {
		// Not in order: rows of a kind that needs many servers are neighbours.
		for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(rows)) {
			r := rows[i]
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, r, seed, resources.Addr())
				var f figures
				began := time.Now()
				defer func() { // what there is, if a round fails
					mu.Lock()
					table[r.name] = f
					fmt.Println(f.line(len(table), len(rows), r.name, t.Failed(), time.Since(began)))
					mu.Unlock()
				}()
				s := r.size(s)
				// A fault that waits for its moment may miss it, but not always.
				for n := 0; n < s.rounds || f.faults == 0 && n < s.rounds+3; n++ {
					start := time.Now()
					f.sum(w.round(n, s))
					t.Logf("round %d: %v", n, time.Since(start).Round(ms))
				}
				if f.faults == 0 {
					t.Error("the fault never came about")
				}
				if !f.clean() {
					t.Error("not everything that must be zero is: see the table")
				}
			})
		}
	})
	var lines []row
	for _, r := range rows {
		if f, ok := table[r.name]; ok { // not if -run has left it out
			lines = append(lines, row{r.name, r.lock, f})
		}
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "RLOCK_SEED=%d\n\n", seed)
	total := print(&text, lines)
	_, _ = os.Stdout.Write(text.Bytes())
	return total
}
