package rlock

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/go-rlock/rlock/internal/record"
)

// A lock can be hot although each wait for it is short. If 60 goroutines hold a lock for 5 ms each, one after the other, each
// of them waits for 0.3 s, and no list of long waits shows the lock. So each shard of the queues counts the waiting by name. It
// counts only calls that were in a line, so a call that gets a free lock costs nothing. To count a wait takes about 0.1 µs, or
// 0.5 µs if calls wait for very many names (BenchmarkHotNames).
//
// A client can use any number of names, but a shard has few rows. It chooses their names by the algorithm Space-Saving
// (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, ICDT 2005): a new
// name takes the row of the name with the lowest rank, which is its waiting, and inherits that rank. So each name with more
// than 1/hotRows of all the waiting in its shard has a row. What is inherited is not shown: a record shows what was counted
// since the name took the row, so it never shows too much.
const (
	hotRows  = 16               // of a shard
	hotSpan  = 10 * time.Second // a record shows the present span of time and the one before, so the last 10 to 20 s
	hotBound = hotSpan / 100    // a name is hot if its calls have waited for so long, all together, in one span
)

// hot has the rows of a shard. queues.mu guards it.
type hot struct {
	rows  []hotRow
	since time.Time // when the span before the present one began, or the present one, if nothing is known of the one before
	began time.Time // when the present span began
	taken time.Time // up to this time, the waits in progress are counted
}

// hotRow is what a shard knows of a name: in the present span, and in the one before.
type hotRow struct {
	name  string
	group string
	spans [2]hotCount
}

// hotCount is what has happened in a span.
type hotCount struct {
	ended     int           // waits
	waited    time.Duration // by all calls together, also by those that still wait
	most      int           // calls without a grant at the same time
	inherited time.Duration // from other names that had the row before
}

// rank decides which row a new name takes: the one with the lowest rank.
func (r *hotRow) rank() time.Duration { return r.spans[0].rank() + r.spans[1].rank() }

func (n *hotCount) rank() time.Duration { return n.waited + n.inherited }

// isHot reports whether the row is shown.
func (r *hotRow) isHot() bool { return max(r.spans[0].waited, r.spans[1].waited) >= hotBound }

// waited counts the wait of a call that has just been served, or that leaves, while so many calls waited. queues.mu is held.
func (h *hot) waited(w *waiter, waiting int) {
	r := w.lock.client.records.Writer
	if r == nil { // an anonymous client
		return
	}
	now := time.Now()
	row := h.row(w, now)
	row.add(h, w, now)
	n := &row.spans[0]
	n.ended++
	n.most = max(n.most, waiting)
	if row.isHot() {
		r.Notice()
	}
}

// waits counts the waits of a line up to now. queues.mu is held.
func (h *hot) waits(a *asker, now time.Time) {
	if a.first == nil {
		return
	}
	row := h.row(a.first, now)
	for w := a.first; w != nil; w = w.next {
		row.add(h, w, now)
	}
	row.spans[0].most = max(row.spans[0].most, a.queue.waiting)
}

// add adds the part of a wait that is not counted yet, to the spans that it belongs to.
func (r *hotRow) add(h *hot, w *waiter, now time.Time) {
	from := w.since
	for _, later := range [...]time.Time{h.taken, h.since} {
		if later.After(from) {
			from = later
		}
	}
	if from.Before(h.began) {
		r.spans[1].waited += h.began.Sub(from)
		from = h.began
	}
	r.spans[0].waited += max(now.Sub(from), 0)
}

// row returns the row of the waiter's name. queues.mu is held.
func (h *hot) row(w *waiter, now time.Time) *hotRow {
	h.advance(w.since, now)
	least := -1
	for i := range h.rows {
		r := &h.rows[i]
		if r.name == w.lock.name {
			return r
		}
		if least < 0 || r.rank() < h.rows[least].rank() {
			least = i
		}
	}
	if len(h.rows) < hotRows {
		h.rows = append(h.rows, hotRow{name: w.lock.name, group: w.lock.group.name})
		return &h.rows[len(h.rows)-1]
	}
	r := &h.rows[least]
	for i := range r.spans {
		r.spans[i] = hotCount{inherited: r.spans[i].rank()}
	}
	r.name, r.group = w.lock.name, w.lock.group.name
	return r
}

// advance begins a new span if the present one is over. After a span without any wait, the new one begins with the
// present wait, so that the rates are those since then.
func (h *hot) advance(since, now time.Time) {
	switch over := now.Sub(h.began); {
	case over < hotSpan:
		return
	case over < 2*hotSpan:
		h.since, h.began = h.began, h.began.Add(hotSpan)
		for i := range h.rows {
			h.rows[i].spans = [...]hotCount{{}, h.rows[i].spans[0]}
		}
		h.rows = slices.DeleteFunc(h.rows, func(r hotRow) bool { return r.spans[1] == hotCount{} })
	default:
		if h.began = now.Add(-hotSpan); since.After(h.began) {
			h.began = since
		}
		h.since, h.rows = h.began, h.rows[:0]
	}
}

// show adds the hot names. queues.mu is held.
func (h *hot) show(v *view) {
	h.advance(v.now, v.now)
	h.taken = v.now
	seconds := max(v.now.Sub(h.since), time.Second).Seconds()
	for i := range h.rows {
		if r := &h.rows[i]; r.isHot() {
			now, before := r.spans[0], r.spans[1]
			sum := v.hot[r.name] // of two kinds of lock with the same name
			sum.Name, sum.Group, sum.Most = r.name, r.group, max(sum.Most, now.most, before.most)
			sum.PerSecond += float64(now.ended+before.ended) / seconds
			sum.Waiting += (now.waited + before.waited).Seconds() / seconds
			v.hot[r.name] = sum
		}
	}
}

// hottest returns the names that cost most waiting, and the worst first.
func (v *view) hottest() []record.Hot {
	names := slices.SortedFunc(maps.Values(v.hot), func(a, b record.Hot) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Name, b.Name))
	})
	return names[:min(len(names), record.MaxHot)]
}
