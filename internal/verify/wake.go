package verify

import (
	"context"
	"errors"
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
	names, masters := w.job.names(), w.masters()
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			call, held := now(), make([]int64, len(names)) // on how many servers
			var failed error
			for _, m := range masters {
				replies, err := m.admin.Pipelined(ctx, func(p redis.Pipeliner) error {
					for _, name := range names {
						p.Exists(ctx, name)
					}
					return nil
				})
				failed = errors.Join(failed, err)
				for i, reply := range replies {
					held[i] += reply.(*redis.IntCmd).Val()
				}
			}
			s := span{call, now()}
			for i, name := range names {
				if failed == nil {
					samples[name] = append(samples[name], sample{s, held[i] <= int64(len(masters)/2)})
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

// freeOf returns when all of some locks, which were looked at together, were free.
func freeOf(samples map[string][]sample, locks []string) []sample {
	all := slices.Clone(samples[locks[0]])
	for _, lock := range locks[1:] {
		for i, s := range samples[lock] {
			all[i].free = all[i].free && s.free
		}
	}
	return all
}

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
		if slices.ContainsFunc(h.waits, func(w wait) bool { return w.got && w.ret == got && w.call < r.call && len(w.locks) == 1 }) {
			from := r.ret
			if got < from {
				from = r.call
			}
			all = append(all, time.Duration(got-from))
		}
	}
	return all
}
