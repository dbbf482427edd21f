package rlock

import (
	"slices"
	"sync/atomic"
	"time"
)

// Stats is the counts of a client since its start; see [Client.Stats].
type Stats struct {
	Kinds    []KindStats         // of the used kinds of lock
	Losses   map[LossCause]int64 // holders with a lost grant, members of multi locks and joined holds among them
	Renewals int64               // leases renewed
	Wakeups  Wakeups             // of calls that have ended

	// Waits are the durations of calls, with any outcome, but for nested calls and calls with
	// [OutcomeError]. Holds are the times between an acquisition and its end. Margins are the
	// rests of trusted windows at the renewal of their leases.
	Waits, Holds, Margins Histogram

	// OldestWait is how long the longest waiting call has waited, OldestHold how long the longest
	// held lock has been held; zero without a call or lock. Both show a hanging holder at
	// once: a wait and a hold enter the histograms only at the end.
	OldestWait, OldestHold time.Duration
}

// KindStats is the counts of one kind of lock. The number of calls that acquired is the sum of
// Released, Lost and Held.
type KindStats struct {
	Kind     Kind
	Calls    map[Outcome]int64 // calls that have ended, all outcomes among the keys
	Waiting  int64             // calls under way
	Held     int64             // acquisitions that have not ended
	Released int64             // acquisitions ended by an Unlock
	Lost     int64             // acquisitions ended by a loss
}

// Acquired is how many calls have got the lock, other than nested ones.
func (k *KindStats) Acquired() int64 { return k.Calls[OutcomeAcquired] + k.Calls[OutcomeHandedOff] }

// Wakeups counts the causes of wake-ups, other than goroutines of the same client. Where locks
// are held for short, most wake-ups should be messages. In a long wait, the first in the queue
// of a client asks after 1, 2 and 4 s, and then every 5 s, by a timer.
type Wakeups struct {
	Message   int64 // from the former holder's release
	TTL       int64 // a timer: the holder's lease should be over, or nothing was heard for too long
	Reconnect int64 // the connection for messages was lost, or came back; or the server had forgotten the queue
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
	Counts []int64 // durations up to each of [HistogramBounds], and beyond the bound before; durations beyond the last bound come last
	Sum    time.Duration
}

// Count is how many durations there are.
func (h *Histogram) Count() (n int64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// histogramBounds are the bounds of all histograms.
type histogramBounds [8]time.Duration

func bounds() histogramBounds {
	return histogramBounds{
		time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond,
		500 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute,
	}
}

// HistogramBounds returns the upper bounds of the counts of each [Histogram].
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

func (h *histogram) addTo(sum *Histogram) {
	if sum.Counts == nil {
		sum.Counts = make([]int64, len(h.counts))
	}
	for i := range h.counts {
		sum.Counts[i] += h.counts[i].Load()
	}
	sum.Sum += time.Duration(h.sum.Load())
}

// counters are the counts of the locks of one shard of the queues. The counters have cache lines of
// their own: counting must not slow down locking.
type counters struct {
	_        [64]byte
	kinds    [kinds]kindCounters
	losses   [lossCauses]atomic.Int64
	renewals atomic.Int64
	wakeups  [wakeups]atomic.Int64
	waits    histogram
	holds    histogram
	margins  histogram
	_        [64]byte
}

type kindCounters struct {
	started        atomic.Int64
	calls          [outcomes]atomic.Int64
	released, lost atomic.Int64
}

// called counts a call that has ended.
func (c *counters) called(kind kindNumber, o outcomeNumber, waited time.Duration) {
	c.kinds[kind].calls[o].Add(1)
	if o != nestedOutcome && o != errorOutcome {
		c.waits.observe(waited)
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
	s.Wakeups.Message += c.wakeups[byMessage].Load()
	s.Wakeups.TTL += c.wakeups[byTimer].Load()
	s.Wakeups.Reconnect += c.wakeups[byReconnect].Load()
	c.waits.addTo(&s.Waits)
	c.holds.addTo(&s.Holds)
	c.margins.addTo(&s.Margins)
}
