package verify

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// sample is one look at a lock from outside.
type sample struct {
	span
	free bool
}

// observe looks at all locks of the round again and again, from the time that
// everything is healed until the returned function is called.
func (w *world) observe() (stop func() map[string][]sample) {
	ctx, cancel := context.WithCancel(context.Background())
	samples := make(map[string][]sample)
	names := w.job.names()
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			call := now()
			replies, err := w.admin.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, name := range names {
					p.Exists(ctx, name)
				}
				return nil
			})
			s := span{call, now()}
			for i, reply := range replies {
				if err == nil {
					samples[names[i]] = append(samples[names[i]], sample{s, reply.(*redis.IntCmd).Val() == 0})
				}
			}
			pause(ctx, 20*ms)
		}
	})
	return func() map[string][]sample {
		cancel()
		done.Wait()
		return samples
	}
}

// missed is how long a waiter may sleep beside a free lock: a second, and the
// time that a wake-up takes on a machine with all these processes.
const missed = time.Second + 200*ms

// slept returns how long w waited at most while the lock was free all the time
// and everything was healed. A grant to somebody else between two samples ends
// such a time as well.
func (h *history) slept(w wait, healed int64, samples []sample) (longest time.Duration) {
	began, since := max(healed, w.call), int64(0)
	for _, s := range samples {
		switch {
		case s.ret < began:
			continue
		case s.call > w.ret:
			return longest
		case !s.free:
			since = 0
			continue
		case since == 0, slices.ContainsFunc(h.handed, func(t int64) bool { return since < t && t < s.call }):
			since = s.ret
		}
		longest = max(longest, time.Duration(s.call-since))
	}
	return longest
}

// wakes returns how long it took from each unlock until somebody who waited then
// had the lock: from its return, or from its call if the waiter was as fast.
func (h *history) wakes(healed int64) (all []time.Duration) {
	slices.Sort(h.handed)
	for _, r := range h.releases {
		next, _ := slices.BinarySearch(h.handed, r.call)
		if r.call < healed || next == len(h.handed) {
			continue
		}
		got := h.handed[next]
		if slices.ContainsFunc(h.waits, func(w wait) bool { return w.got && w.ret == got && w.call < r.call }) {
			from := r.ret
			if got < from {
				from = r.call
			}
			all = append(all, time.Duration(got-from))
		}
	}
	return all
}
