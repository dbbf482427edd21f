// Package removal removes features of package rlock from a copy of it, to measure how much of the rest knows them.
package removal

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// removal is the change that removes a feature: its own files go, and edits in others.
type removal struct {
	feature string
	files   []string // of the feature alone
	edits   []edit
	lines   int // at most so many lines in others know it
	others  int // in so many files
}

// edit replaces text that is in a file once. A line of it that is not in the replacement is one that knows the feature.
type edit struct{ file, from, to string }

// deadlocks are the edits outside records of the removal of deadlocks, which are found by the records of clients.
var deadlocks = []edit{
	{"client.go", "\tlooking chan struct{} // capacity 1: holds the look for deadlocks in progress, see follow\n", ""},
	{"client.go", "c.quiet, c.closing, c.looking = make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 1)", "c.quiet, c.closing = make(chan struct{}, 1), make(chan struct{})"},
	{"client.go", "l.terms, l.purpose, l.endsDeadlock = o.terms, o.purpose, o.endsDeadlock", "l.terms, l.purpose = o.terms, o.purpose"},
	{"lock.go", "\tendsDeadlock bool // see WithDeadlockError\n", ""},
	{"options.go", "\tendsDeadlock bool // see WithDeadlockError\n", ""},
	{"queue.go", "\tsearch *search // for deadlocks; nil unless a call waits that owns a lock\n", ""},
	{"queue.go", "\tif q.search != nil {\n\t\tq.search.end()\n\t}\n", ""},
	{"quorum.go", "\tcase l.endsDeadlock:\n\t\tl.refuse(errors.New(\"WithDeadlockError: deadlocks of quorum locks are not found\"))\n", ""},
	{"waiter.go", "\tunder    *Hold           // the innermost hold around the call; nil if its context owns no lock\n", ""},
	{"waiter.go", "\tif w.under != nil {\n\t\ta.queue.suspect(w)\n\t}\n", ""},
	{"lock.go", "\tw.under = innermost(ctx)\n\tif in := w.under.of(l); in != nil {\n", "\tif in := holdIn(ctx, l); in != nil {\n"},
}

var removals = []removal{
	{"deadlocks", []string{"deadlock.go"}, append([]edit{
		{"record.go", "v.add(w.recorded())", "v.add(w.lock.entry(record.Waits, \"\", w.since))"},
	}, deadlocks...), 18, 7},
	{"retention", []string{"retain.go"}, []edit{
		{"count.go", "\tg.askAnew()\n", ""},
		{"handoff.go", "\t\treturn q.park(g)\n", "\t\treturn false\n"},
		{"handoff.go", "\tif !g.inBudget(now) && !q.keeps(g) || !g.passable() {\n", "\tif !g.inBudget(now) || !g.passable() {\n"},
		{"handoff.go", "\tcase l.terms.retention > 0:\n\t\treturn maxHandoffs\n", ""},
		{"hold.go", "\tcase g.lock.terms.retention > 0:\n\t\tfailed = g.keepOrRelease(ctx)\n", ""},
		{"lock.go", "\tl.retain()\n", ""},
		{
			"lock.go", "holder.keptOtherwise(l.refusal(holder.owner, time.Until(holder.entry.Until())))\n",
			"l.refusal(holder.owner, time.Until(holder.entry.Until()))\n",
		},
		{"options.go", "\tretention time.Duration // 0: the last Unlock releases the lock\n", ""},
		{"queue.go", "\tkept *kept // nil unless a grant of this client may be kept\n", ""},
		{"queue.go", "\tcase q.kept != nil:\n\t\treturn q.takeParked(l)\n", ""},
		{"queue.go", "\tif q.kept != nil || g.lock.terms.retention > 0 {\n\t\tq.keep(g)\n\t}\n", ""},
		{"queue.go", "\t\tq.keepsNoLonger(g)\n", ""},
		{"queue.go", "\t\tq.giveBack()\n", ""},
		{"record.go", "\t\tq.showParked(v)\n", ""},
	}, 19, 7},
	{"join", []string{"join.go"}, []edit{
		{"account.go", "\tcase hold.parent != nil || hold.grant.lock.joined:\n", "\tcase hold.parent != nil:\n"},
		{"account.go", ", err.Err == errHolderEnded:\n", ":\n"},
		{"client.go", "\tjoins   queues    // of what was joined: nobody waits in them\n", ""},
		{"client.go", "\tc.joins.init()\n", ""},
		{"client.go", "append(c.queues.close(), c.joins.close()...)\n", "c.queues.close()\n"},
		{"count.go", " || g.lock.joined {", " {"},
		{"deadlock.go", " && !g.lock.joined", ""},
		{"lock.go", "\tjoined  bool       // by Join: the grant belongs to another process\n", ""},
		{"loss.go", "\tcase refused && l.joined:\n\t\treturn errHolderEnded\n", ""},
		{
			"loss.go", "\tcase l.joined:\n\t\treturn fmt.Errorf(\"it was not confirmed in time: its holder does not renew it, Redis was silent, or this process stood still (%w)\", err)\n",
			"",
		},
		{"orphan.go", "\tif !r.lock.joined {\n\t\tr.lock.client.janitor.Sweep(r.job(), until)\n\t}\n", "\tr.lock.client.janitor.Sweep(r.job(), until)\n"},
	}, 15, 7},
	{"a fair lock's run in memory", []string{"fair_run.go"}, []edit{
		{"grant.go", "\t\tg.sweepPassed()\n", ""},
		{"handoff.go", "\tnext, passed []string\n", ""},
		{"handoff.go", "\tif l.terms.fair {\n\t\tnext.asker.forget() // the release takes the ticket out\n\t}\n", ""},
		{"handoff.go", "\tif g.lock.terms.fair {\n\t\treturn g.goesOn()\n\t}\n", ""},
		{"handoff.go", "\tif g.lock.terms.fair {\n\t\treturn q.nextInTurn(g)\n\t}\n", ""},
		{"asker.go", ", next: m.Next", ""},
		{"release.go", "Tickets: g.run.passed, ", ""},
	}, 13, 4},
	{"records", []string{"record.go", "hot.go", "deadlock.go"}, append([]edit{
		{"account.go", "\tl.client.records.Notice()\n", ""},
		{"account.go", "\t\tl.client.records.lost(g, cause.name())\n", ""},
		{"client.go", "\trecords      records      // on the server\n", ""},
		{"client.go", "\tc.keepRecords()\n", ""},
		{"client.go", "\tc.records.Close(rest)\n", ""},
		{"grant.go", "\tif g.lock.recorded {\n\t\tc.records.taken(g)\n\t}\n", ""},
		{"grant.go", "func (l *Lock) longUnnoticed() bool { return l.terms.fixed || l.terms.lease/3 > longHold }\n", ""},
		{"lock.go", "\trecorded bool // a hold may have to be recorded before the first renewal tells\n", ""},
		{"lock.go", "\tl.recorded = l.longUnnoticed() || l.client.opts.Identity.Prompt\n", ""},
		{"queue.go", "\thot   hot\n", ""},
		{"renew.go", "\tc.records.Notice() // these holds are long\n", ""},
		{"retain.go", "func (q *queue) showParked(v *view) {\n\tif k := q.kept; k != nil && k.parked != nil {\n\t\tv.grant(k.parked, record.Keeps, k.since)\n\t}\n}\n", ""},
		{"retain.go", "\t\"github.com/go-rlock/rlock/internal/record\"\n", ""},
		{"waiter.go", "\tw.lock.queues.hot.waited(w, a.queue.waiting)\n", ""},
	}, deadlocks...), 37, 10},
	{"readers", []string{"share.go", "rw.go"}, []edit{
		{"queue.go", " || a.lock.terms.shared", ""},
		{"asker.go", "\t\tif g != nil && g.lock.terms.shared {\n\t\t\ta.share(g, nil)\n\t\t}\n", ""},
		{"count.go", "\tif n.Exclusive == 0 && !l.terms.shared { // a downgrade: no message tells a writer waiting for this grant\n\t\tl.withQueue((*queue).askFirst)\n\t}\n", ""},
		{"count.go", "\tn.Exclusive, n.Shared = int(g.exclusives.Load()), g.readers()\n", "\tn.Exclusive = len(g.holds)\n"},
		{"grant.go", "\texclusives atomic.Int32\n", ""},
		{"grant.go", "\tif !l.terms.shared {\n\t\tg.exclusives.Store(1) // the hold that is to come\n\t}\n", ""},
		{"grant.go", "func (g *grant) Exclusive() bool { return g.exclusives.Load() > 0 }\n", ""},
		{"grant.go", "\tif !h.lock.terms.shared && !g.Exclusive() {\n\t\treturn &lockError{g.lock.name, ErrUpgrade, nil}\n\t}\n", ""},
		{"grant.go", "\tif g.put(h); !h.lock.terms.shared {\n\t\tg.exclusives.Add(1)\n\t}\n", "\tg.put(h)\n"},
		{"grant.go", "\tif !h.lock.terms.shared {\n\t\tg.exclusives.Add(-1)\n\t}\n", ""},
		{"hold.go", "\tif h.parent == nil && h.covered() { // the server does not count readers joined in memory\n\t\treturn nil\n\t}\n", ""},
		{"hold.go", "\tcase err != nil && !g.Exclusive(): // but the server must learn of a writer's downgrade\n\t\tg.tell(ctx, false)\n", ""},
		{"lock.go", "\tl.ownPlace = l.terms.fair || l.terms.shared\n\tl.private = l.ownPlace && !l.shares(l)\n", "\tl.ownPlace, l.private = l.terms.fair, l.terms.fair\n"},
		{"multi.go", "\treturn cmp.Or(slices.Compare(a.addresses(), b.addresses()), writerFirst(a, b))\n", "\treturn slices.Compare(a.addresses(), b.addresses())\n"},
		{"options.go", "\tshared    bool // several owners may hold the lock at once\n", ""},
		{"outcome.go", "\treadKind\n\twriteKind\n", ""},
		{"outcome.go", "KindRead, KindWrite, ", ""},
		{"queue.go", "\tcase l.terms.shared:\n\t\treturn q.shareable(l)\n", ""},
		{"queue.go", " && !g.lock.terms.shared {", " {"},
		{"queue.go", "\t\tif g.Exclusive() || other.Exclusive() {\n\t\t\tother.tell(context.Background(), false)\n\t\t}\n", "\t\tother.tell(context.Background(), false)\n"},
		{"queue.go", "\t\tif g.Exclusive() {\n\t\t\treturn g\n\t\t}\n", "\t\treturn g\n"},
		{"send.go", "\t\tcase readKind, writeKind:\n\t\t\tadvice = \"read/write locks need rights that plain locks do without: see docs/acl.md\"\n", ""},
		{"asker.go", "private, a.private, a.lock.terms.shared != l.terms.shared:\n\t\tcase !l.terms.shared, l.shares(a.lock):\n\t\t\treturn a, false\n\t\tdefault:\n\t\t\tprivate = true\n", "private, a.private:\n\t\tdefault:\n\t\t\treturn a, false\n"},
		{"waiter.go", "\tif g.lock.terms.shared {\n\t\ta.share(g, w) // before w can unlock\n\t}\n", ""},
	}, 51, 11},
}

// Who changes a feature reads its file, and the lines that know it. Comments are not counted.
func TestRemovals(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles package rlock once for each feature: make test-all")
	}
	dir, err := filepath.Abs("../../rlock")
	require.NoError(t, err)
	for _, r := range removals {
		t.Run(r.feature, func(t *testing.T) {
			replace := make(map[string]string)
			for _, file := range r.files {
				replace[filepath.Join(dir, file)] = "" // there is no such file
			}
			lines, texts := 0, make(map[string]string)
			for _, e := range r.edits {
				text, ok := texts[e.file]
				if !ok {
					b, err := os.ReadFile(filepath.Join(dir, e.file))
					require.NoError(t, err)
					text = string(b)
				}
				require.Equal(t, 1, strings.Count(text, e.from), "%s: quote what is there now, once: %q", e.file, e.from)
				texts[e.file] = strings.Replace(text, e.from, e.to, 1)
				for line := range strings.Lines(e.from) {
					if !strings.Contains("\n"+e.to, "\n"+line) {
						lines++
					}
				}
			}
			for file, text := range texts {
				without := filepath.Join(t.TempDir(), file)
				require.NoError(t, os.WriteFile(without, []byte(text), 0o600))
				replace[filepath.Join(dir, file)] = without
			}
			t.Logf("%d lines in %d files", lines, len(texts))
			require.LessOrEqual(t, lines, r.lines, "more lines know %s", r.feature)
			require.LessOrEqual(t, len(texts), r.others, "more files know %s", r.feature)
			overlay := filepath.Join(t.TempDir(), "overlay.json")
			b, err := json.Marshal(map[string]any{"Replace": replace})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(overlay, b, 0o600))
			output, err := exec.Command("go", "build", "-gcflags=-e", "-overlay", overlay, dir).CombinedOutput()
			require.NoError(t, err, "%s", output)
		})
	}
}
