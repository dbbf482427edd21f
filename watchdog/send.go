package watchdog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// send renews a batch and notes the outcome.
func (s *Scheduler[K]) send(batch []attempt[K], deadline time.Time) {
	ctx, cancel := context.WithDeadline(s.ctx, deadline)
	defer cancel()
	due := make([]Renewal[K], len(batch))
	for i, a := range batch {
		due[i] = a.renewal
	}

	sent := s.now()
	errs := s.renew(ctx, due)
	if len(errs) != len(batch) {
		err := fmt.Errorf("watchdog: %d results for %d renewals", len(errs), len(batch))
		errs = slices.Repeat([]error{err}, len(batch))
	}
	refused := make([]bool, len(errs))
	for i, err := range errs {
		refused[i] = errors.Is(err, ErrRefused) // calls methods of the error, so not under the mutex
	}
	r := s.resolve(batch, sent, errs, refused)
	report(r.lost)
	if r.failed > 0 {
		s.log.Warn("watchdog: renewals failed", "failed", r.failed, "of", len(batch), "lock", r.key, "error", r.err)
	}
	if r.again > 0 {
		s.log.Info("watchdog: renewed again", "renewed", r.again, "of", len(batch))
	}
}

// results are the results of a batch.
type results[K comparable] struct {
	lost   []*Entry[K] // refused
	failed int         // to be tried again
	key    K           // of the first failed renewal
	err    error       // of the first failed renewal
	again  int         // renewed, after attempts that failed
}

// resolve notes the results of a batch, except for ended entries.
func (s *Scheduler[K]) resolve(batch []attempt[K], sent time.Time, errs []error, refused []bool) (r results[K]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i, a := range batch {
		e, err := a.entry, errs[i]
		e.flying--
		left, found := err.(Left)
		switch {
		case e.ended.Load():
			continue
		case refused[i]:
			e.end(err)
			r.lost = append(r.lost, e)
			continue
		case err == nil, found:
			failing := e.err != nil
			if found {
				e.found(a, sent, time.Duration(left))
			} else {
				e.renewed(a, sent)
			}
			if failing && e.err == nil {
				r.again++
			}
		default:
			e.failed(a, sent, now, err)
			if r.failed++; r.failed == 1 {
				r.key, r.err = e.key, err
			}
		}
		e.reorder(now)
	}
	return r
}
