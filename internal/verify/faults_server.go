package verify

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// persistent makes a server that remembers everything it has answered to: the
// log is written before the reply, and only the machine could lose it then. That
// is so without fsync; with one each second, the default, Redis puts off writing
// while the disk is slow, and a killed server forgets what it has acknowledged.
var persistent = []string{"--appendonly", "yes", "--appendfsync", "no"}

var serverFaults = []fault{
	{name: "nothing", steady: true, harmless: true, strike: again(100*ms, 200*ms, func(*world) {})},
	{
		name: "server killed, restarted empty", leases: short,
		strike: again(150*ms, 500*ms, func(w *world) {
			w.forgets("", func() { w.outage(150 * ms) })
		}),
	},
	{
		name: "server killed, restarted with its data", args: persistent,
		strike: again(100*ms, 400*ms, func(w *world) { w.outage(150 * ms) }),
	},
	{
		name: "server killed, away for longer than leases", args: persistent,
		strike: again(100*ms, 200*ms, func(w *world) { w.outage(1000 * ms) }),
	},
	{
		name: "server stopped for a moment", harmless: true,
		strike: phases(10*ms, 100*ms, func(w *world) { w.srv.Stop() }, func(w *world) { w.srv.Cont() }),
	},
	{
		name:   "server stopped for longer than leases",
		strike: phases(500*ms, 1000*ms, func(w *world) { w.srv.Stop() }, func(w *world) { w.srv.Cont() }),
	},
	{
		name: "DEBUG SLEEP",
		strike: again(50*ms, 200*ms, func(w *world) {
			w.do("debug", "sleep", fmt.Sprint(w.some(50*ms, 400*ms).Seconds()))
		}),
	},
	{
		name: "LOADING",
		args: append([]string{"--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"}, persistent...),
		setUp: func(w *world) {
			for n := range 300 {
				w.do("set", fmt.Sprint("filler:", n), strings.Repeat("x", 500), "ex", 3600)
			}
			w.do("bgrewriteaof")
			w.until("aof_rewrite_in_progress:0")
		},
		strike: again(50*ms, 150*ms, func(w *world) { w.outage(1 * ms) }),
	},
	{
		name: "BUSY: a script that does not end", args: []string{"--busy-reply-threshold", "20"},
		strike: again(50*ms, 200*ms, func(w *world) {
			patient := w.admin.Conn() // another connection is ready before: a busy server admits nobody
			defer func() { _ = patient.Close() }()
			require.NoError(w, patient.Ping(context.Background()).Err())
			w.do("ping")
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = patient.Eval(context.Background(), "while true do end", nil).Err() // it is killed
			}()
			time.Sleep(w.some(50*ms, 300*ms))
			for over := false; !over; { // it may not have started yet
				_ = w.admin.ScriptKill(context.Background()).Err()
				select {
				case <-done:
					over = true
				case <-time.After(ms):
				}
			}
		}),
	},
}

// outage kills the server, and starts it again after some time up to most.
func (w *world) outage(most time.Duration) {
	w.srv.Kill()
	time.Sleep(w.some(0, most))
	w.srv.Restart()
}

// until waits for a line of INFO.
func (w *world) until(line string) {
	redistest.Eventually(w.T, line, func() bool {
		info, err := w.admin.Info(context.Background(), "everything").Result()
		return err == nil && strings.Contains(info, line)
	})
}

var replicaFaults = []fault{
	{name: "replica promoted, up to date", setUp: newReplica, strike: again(150*ms, 400*ms, failOver)},
	{
		name: "replica promoted, behind", setUp: newReplica, leases: short,
		strike: again(150*ms, 400*ms, func(w *world) {
			replica := w.newAdmin(w.spare)
			require.NoError(w, replica.ReplicaOf(context.Background(), "no", "one").Err()) // hears no more
			time.Sleep(w.some(20*ms, 200*ms))
			since := now()
			w.switchOver()
			w.mayForget(since)
		}),
	},
	{
		name: "READONLY: the master demoted, clients still there", setUp: newReplica,
		strike: again(150*ms, 400*ms, func(w *world) {
			old := w.admin
			w.catchUp()
			w.promote()
			w.follow(old, w.spare)
			time.Sleep(w.some(50*ms, 300*ms))
			w.switchOver()
		}),
	},
}

// newReplica sets a replica up.
func newReplica(w *world) {
	w.spare = redistest.Start(w.T)
	w.follow(w.newAdmin(w.spare), w.srv)
}
