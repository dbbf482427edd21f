package rlock

import (
	"slices"
	"sync/atomic"
	"time"
)

// Stats are the counts of a client since its start. [Client.Stats] returns them.
type Stats struct {
	Kinds    []KindStats         // one element for each kind of lock that was used
	Losses   map[LossCause]int64 // lost holds by cause, including members of multi locks and joined holds
	Renewals int64               // renewals that succeeded
	Wakeups  Wakeups             // why waiting calls were woken, of calls that have ended

	// Deadlocks is the number of deadlocks that this client has found and logged, see [WithDeadlockError]. Of
	// the clients in a deadlock, one counts it.
	Deadlocks int64

	// Waits has the durations of lock calls, except nested calls and calls with [OutcomeError]. Holds
	// has the durations of holds, from the acquisition of a lock to its end. Margins has, for each
	// renewal, how long the lease could still be trusted when it was renewed, see [Renewal].
	Waits, Holds, Margins Histogram

	// FailedWaits is the part of Waits that belongs to calls that did not acquire the lock. No count in it
	// is greater than the same count in Waits.
	FailedWaits Histogram

	// MarginShares has the margin of each renewal as a share of the lease. It is about 0.65 for all leases
	// that are renewed in time, and less than 0.4 for late renewals.
	MarginShares ShareHistogram

	// OldestWait is how long the call that has waited longest has waited so far, and 0 if no call
	// waits. OldestHold is the age of the oldest hold, and 0 if no lock is held. Use both to detect a
	// holder that hangs, because the histograms count a wait or a hold only when it ends.
	OldestWait, OldestHold time.Duration

	// Groups has the counts of each group of locks, by the name of the group. It is nil if Group in
	// [Options] is nil. Calls for locks without a group are counted under "". So the sum of all groups
	// is what Kinds, Waits and Holds have for all locks.
	Groups map[string]GroupStats
}

// GroupStats are the counts of one group of locks. A multi lock is in the group of its members. If its
// members are in different groups, it has no group.
type GroupStats struct {
	Kinds                     []KindStats // as in [Stats]
	Waits, FailedWaits, Holds Histogram   // as in [Stats]
}

// KindStats are the counts of one kind of lock. The sum of Released, Lost and Held is the number of
// calls that have acquired a lock, except nested calls.
type KindStats struct {
	Kind     Kind
	Calls    map[Outcome]int64 // calls that have ended, by outcome; every outcome has an entry
	Waiting  int64             // calls in progress
	Held     int64             // acquisitions that have not ended
	Released int64             // acquisitions ended by an Unlock
	Lost     int64             // acquisitions ended by a loss
}

// Acquired returns the number of calls that have acquired a lock, except nested calls.
func (k *KindStats) Acquired() int64 { return k.Calls[OutcomeAcquired] + k.Calls[OutcomeHandedOff] }

// Wakeups counts why waiting calls were woken, except by goroutines of the same client. If locks are
// held only for a short time, most causes should be messages. In a long wait, a timer wakes the first
// waiting call of a client after 1, 2 and 4 s, and then every 5 s.
type Wakeups struct {
	Message   int64 // a message about the release of the lock
	TTL       int64 // a timer, because the holder's lease should be over, or because no message arrived for too long
	Reconnect int64 // the connection for messages was lost or restored, or the server had lost the queue
}

// wakeup is a number for each cause of Wakeups.
type wakeup uint8

const (
	byMessage wakeup = iota
	byTimer
	byReconnect
	wakeups // how many there are
)

// Histogram counts durations.
type Histogram struct {
	Counts []int64 // Counts[i] is the number of durations up to HistogramBounds()[i] and above the bound before; the last element is for those above all bounds
	Sum    time.Duration
}

// Count returns the number of durations in the histogram.
func (h *Histogram) Count() (n int64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// histogramBounds are the bounds of all histograms.
type histogramBounds [10]time.Duration

func bounds() histogramBounds {
	return histogramBounds{
		100 * time.Microsecond, 300 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond,
		500 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute,
	}
}

// HistogramBounds returns the upper bounds of the elements of Counts in each [Histogram].
func HistogramBounds() []time.Duration { b := bounds(); return b[:] }

// histogram is a Histogram that is being counted.
type histogram struct {
	counts [len(histogramBounds{}) + 1]atomic.Int64
	sum    atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	b := bounds()
	i, _ := slices.BinarySearch(b[:], d)
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// addTo adds the same counts to each of the sums: otherwise a part could be more than the whole.
func (h *histogram) addTo(sums ...*Histogram) {
	total := time.Duration(h.sum.Load())
	for _, sum := range sums {
		if sum.Counts == nil {
			sum.Counts = make([]int64, len(h.counts))
		}
		sum.Sum += total
	}
	for i := range h.counts {
		n := h.counts[i].Load()
		for _, sum := range sums {
			sum.Counts[i] += n
		}
	}
}

// ShareHistogram counts shares of a whole.
type ShareHistogram struct {
	Counts []int64 // Counts[i] is the number of shares up to ShareBounds()[i] and above the bound before; the last element is for those above all bounds
	Sum    float64
}

// Count returns the number of shares in the histogram.
func (h *ShareHistogram) Count() (n int64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// ShareBounds returns the upper bounds of the elements of Counts in each [ShareHistogram]: 0.1, 0.2 and so
// on up to 0.9.
func ShareBounds() []float64 { return []float64{.1, .2, .3, .4, .5, .6, .7, .8, .9} }

// shares is a ShareHistogram that is being counted.
type shares struct {
	counts [10]atomic.Int64
	sum    atomic.Int64 // in millionths
}

func (h *shares) observe(share float64) {
	i, _ := slices.BinarySearch(ShareBounds(), share)
	h.counts[i].Add(1)
	h.sum.Add(int64(share * 1e6))
}

func (h *shares) addTo(sum *ShareHistogram) {
	if sum.Counts == nil {
		sum.Counts = make([]int64, len(h.counts))
	}
	for i := range h.counts {
		sum.Counts[i] += h.counts[i].Load()
	}
	sum.Sum += float64(h.sum.Load()) / 1e6
}

// counters are the counts of the locks of one group in one shard of the queues. The counters have cache lines of
// their own: counting must not slow down locking.
type counters struct {
	_         [64]byte
	kinds     [kinds]kindCounters
	losses    [lossCauses]atomic.Int64
	renewals  atomic.Int64
	deadlocks atomic.Int64
	wakeups   [wakeups]atomic.Int64
	acquired  histogram // the waits of calls that have acquired a lock
	failed    histogram // the other waits
	holds     histogram
	margins   histogram
	shares    shares // of the margins in their leases
	_         [64]byte
}

type kindCounters struct {
	started        atomic.Int64
	calls          [outcomes]atomic.Int64
	released, lost atomic.Int64
}

// called counts a call that has ended.
func (c *counters) called(kind kindNumber, o outcomeNumber, waited time.Duration) {
	c.kinds[kind].calls[o].Add(1)
	switch o {
	case nestedOutcome, errorOutcome:
	case acquiredOutcome, handedOffOutcome:
		c.acquired.observe(waited)
	default:
		c.failed.observe(waited)
	}
}

// woken counts the wake-ups of a call.
func (c *counters) woken(by [wakeups]int64) {
	for i, n := range by {
		if n > 0 {
			c.wakeups[i].Add(n)
		}
	}
}

// addTo adds the counts without a kind.
func (c *counters) addTo(s *Stats) {
	for n := range lossCauses {
		s.Losses[n.name()] += c.losses[n].Load()
	}
	s.Renewals += c.renewals.Load()
	s.Deadlocks += c.deadlocks.Load()
	s.Wakeups.Message += c.wakeups[byMessage].Load()
	s.Wakeups.TTL += c.wakeups[byTimer].Load()
	s.Wakeups.Reconnect += c.wakeups[byReconnect].Load()
	c.acquired.addTo(&s.Waits)
	c.failed.addTo(&s.Waits, &s.FailedWaits)
	c.holds.addTo(&s.Holds)
	c.margins.addTo(&s.Margins)
	c.shares.addTo(&s.MarginShares)
}
