package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
)

// queueKeep is how long a queue is there after the last request of a waiter: keep in
// lua/queue.lua.
const queueKeep = time.Minute

// leftovers counts what a round leaves behind. With keep the parties stay as
// they are; otherwise they close, and nothing of theirs may remain.
func (w *world) leftovers(f *figures, keep bool) {
	if !keep {
		w.tell("close")
		for p, answer := range w.expect("closed", 60*time.Second) {
			if w.parties[p] == nil {
				continue
			}
			count, err, _ := strings.Cut(answer, " ")
			var left int
			_, scanErr := fmt.Sscan(count, &left)
			require.NoError(w, scanErr)
			f.goroutines += left
			if left > 0 || err != "<nil>" {
				f.notes = append(f.notes, fmt.Sprintf("%s: party %d left %d goroutines, Close: %s", w.row.name, p, left, err))
			}
		}
		var open []map[string]string
		within(3*time.Second, func() bool { open = w.connections(); return len(open) == 0 })
		f.connections += len(open)
		if len(open) > 0 {
			f.notes = append(f.notes, fmt.Sprintf("%s: connections left: %v", w.row.name, open))
		}
	}
	limit := w.job.longest()
	if w.row.kills { // its tickets are gone when another waiter comes to them, or with their queue
		limit = queueKeep
	}
	var left []string
	within(limit+time.Second, func() bool { left = w.keys(); return len(left) == 0 })
	f.keys += len(left)
	if len(left) > 0 {
		f.notes = append(f.notes, fmt.Sprintf("%s: keys left: %v", w.row.name, left))
	}
}

// within waits until cond is true, or the time is over.
func within(limit time.Duration, cond func() bool) {
	for deadline := time.Now().Add(limit); !cond() && time.Now().Before(deadline); {
		time.Sleep(10 * ms)
	}
}

// connections returns those of the parties.
func (w *world) connections() (all []map[string]string) {
	for _, m := range w.masters() {
		for _, typ := range []string{"normal", "pubsub"} {
			for _, c := range m.srv.Clients(w.T, typ) {
				if c["name"] != "admin" {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// keys returns those that should not be there: locks, their queues as nobody waits any
// more, and anything that stays for ever.
func (w *world) keys() (left []string) {
	ctx := context.Background()
	locks := make(map[string]bool)
	for _, name := range w.job.names() {
		locks[name], locks[lua.QueueOf(name)] = true, true
	}
	for _, m := range w.masters() {
		keys := m.admin.Scan(ctx, 0, "*", 1000).Iterator()
		for keys.Next(ctx) {
			if strings.HasPrefix(keys.Val(), "rlock_companion:") { // stays when the last leader has died: its successor must know
				continue
			}
			if ttl := m.admin.PTTL(ctx, keys.Val()).Val(); locks[keys.Val()] || ttl == -1 {
				note := fmt.Sprintf("%s (%v)", keys.Val(), ttl)
				if members := m.admin.ZRangeWithScores(ctx, keys.Val(), 0, -1).Val(); len(members) > 0 {
					note += fmt.Sprint(members)
				}
				left = append(left, note)
			}
		}
		require.NoError(w, keys.Err())
	}
	return left
}

// artifacts is where pictures and journals of violations go.
var artifacts = filepath.Join(os.TempDir(), "rlock-verify")

// draw writes porcupine's picture of a violation, and returns where.
func (w *world) draw(name string, m porcupine.Model, info porcupine.LinearizationInfo) string {
	path := w.artifact(name + ".html")
	if err := porcupine.VisualizePath(m, info, path); err != nil {
		return err.Error()
	}
	return path
}

// keep writes the journals of a round with a violation.
func (w *world) keep(events []event) {
	text, err := json.MarshalIndent(events, "", " ")
	require.NoError(w, err)
	require.NoError(w, os.WriteFile(w.artifact(fmt.Sprintf("%s-%d.json", w.row.name, w.job.Round)), text, 0o600))
}

func (w *world) artifact(name string) string {
	require.NoError(w, os.MkdirAll(artifacts, 0o700))
	return filepath.Join(artifacts, fmt.Sprintf("%d-%d-%s", w.seed, os.Getpid(), strings.NewReplacer("/", "-", " ", "-", ":", "", ",", "").Replace(name)))
}
