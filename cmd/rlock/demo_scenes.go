package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

const (
	slack     = 2 * time.Second // for a slow machine
	jobLease  = 2 * time.Second
	jobTime   = 5 * time.Second
	sampleGap = 100 * time.Millisecond
)

var scenes = []scene{
	{
		fmt.Sprintf("%d processes sell %d tickets without a lock", sellers, tickets),
		"more tickets are sold than there are",
		func(ctx context.Context, s *stage) (string, bool, error) {
			sold, left, err := s.sellOut(ctx, carelessSeller)
			return fmt.Sprintf("%d sold", sold), sold > tickets && left == 0, err
		},
	},
	{
		fmt.Sprintf("%d processes sell %d tickets under a lock", sellers, tickets),
		fmt.Sprintf("exactly %d are sold", tickets),
		func(ctx context.Context, s *stage) (string, bool, error) {
			sold, left, err := s.sellOut(ctx, carefulSeller)
			return fmt.Sprintf("%d sold", sold), sold == tickets && left == 0, err
		},
	},
	{
		"A function under the lock calls another that locks, and that a third",
		"the hold count in Redis goes up to 3 and back, the lock is freed at the end",
		nest,
	},
	{
		fmt.Sprintf("A job of %v under a lease of %v", jobTime, jobLease),
		"the lease is renewed, the lock is never free",
		outlast,
	},
	{
		"The process that holds the lock is killed (SIGKILL)",
		"the next one gets the lock when the lease ends, not before",
		takeOver,
	},
	{
		"The lock is taken away from its holder by force",
		fmt.Sprintf("its context ends within a third of the lease, %v, and says why", holdLease/3),
		takeAway,
	},
}

// sellOut has all sellers sell the stock, and returns what they sold together
// and the stock that is left.
func (s *stage) sellOut(ctx context.Context, role string) (sold, left int, err error) {
	if err := s.rdb.MSet(ctx, stockKey, tickets, readyKey, 0).Err(); err != nil {
		return 0, 0, err
	}
	var all []*actor
	defer func() {
		for _, a := range all {
			a.kill()
		}
	}()
	for range sellers {
		a, err := s.hire(ctx, role)
		if err != nil {
			return 0, 0, err
		}
		all = append(all, a)
	}
	for _, a := range all {
		line, err := a.says()
		if err != nil {
			return 0, 0, err
		}
		n, err := strconv.Atoi(line)
		if err != nil {
			return 0, 0, err
		}
		sold += n
	}
	left, err = s.rdb.Get(ctx, stockKey).Int()
	return sold, left, err
}

func nest(ctx context.Context, s *stage) (string, bool, error) {
	const name = "demo:nested"
	lock := s.client.NewLock(name)
	var counts []string
	look := func() error {
		fields, err := s.rdb.HVals(ctx, name).Result()
		counts = append(counts, fields...)
		return err
	}
	var enter func(ctx context.Context, depth int) error
	enter = func(ctx context.Context, depth int) error {
		return lock.Do(ctx, func(ctx context.Context) error {
			if err := look(); err != nil || depth == 1 {
				return err
			}
			if err := enter(ctx, depth-1); err != nil {
				return err
			}
			return look()
		})
	}
	if err := enter(ctx, 3); err != nil {
		return "", false, err
	}
	exists, err := s.rdb.Exists(ctx, name).Result()
	return fmt.Sprintf("counts %v, then %d keys", counts, exists),
		slices.Equal(counts, []string{"1", "2", "3", "2", "1"}) && exists == 0, err
}

func outlast(ctx context.Context, s *stage) (string, bool, error) {
	lock := s.client.NewLock("demo:job", rlock.WithLeaseTime(jobLease))
	var samples []time.Duration
	err := lock.Do(ctx, func(ctx context.Context) error {
		for end := time.Now().Add(jobTime); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(sampleGap) {
			ttl, err := s.rdb.PTTL(ctx, lock.Name()).Result()
			if err != nil {
				return err
			}
			samples = append(samples, ttl)
		}
		return context.Cause(ctx)
	})
	if err != nil {
		return "", false, err
	}
	lowest, highest := slices.Min(samples), slices.Max(samples)
	return fmt.Sprintf("%d samples of the TTL, between %v and %v", len(samples), lowest, highest), lowest > 0, nil
}

func takeOver(ctx context.Context, s *stage) (string, bool, error) {
	holder, err := s.hire(ctx, keeper)
	if err != nil {
		return "", false, err
	}
	_, err = holder.says()
	holder.kill()
	if err != nil {
		return "", false, err
	}
	killed := time.Now()
	ttl, err := s.rdb.PTTL(ctx, holderLock).Result()
	if err != nil {
		return "", false, err
	}
	var took time.Duration
	err = s.client.NewLock(holderLock).Do(ctx, func(context.Context) error {
		took = time.Since(killed)
		return nil
	})
	return fmt.Sprintf("the next process got it %v after the kill; the dead holder's lease ended after %v", brief(took), brief(ttl)),
		took > ttl-10*time.Millisecond && took < ttl+slack, err
}

func takeAway(ctx context.Context, s *stage) (string, bool, error) {
	lock := s.client.NewLock("demo:forced", rlock.WithLeaseTime(holdLease))
	held, hold, err := lock.Lock(ctx)
	if err != nil {
		return "", false, err
	}
	freed, err := lock.ForceUnlock(ctx)
	if err != nil {
		return "", false, errors.Join(err, hold.Unlock(ctx))
	}
	forced := time.Now()
	<-held.Done()
	took, cause := time.Since(forced), context.Cause(held)
	if err := hold.Unlock(ctx); !errors.Is(err, rlock.ErrLeaseLost) {
		return "", false, fmt.Errorf("unlock: %w", err)
	}
	when := "at once"
	if took >= time.Millisecond {
		when = "after " + brief(took)
	}
	return fmt.Sprintf("ended %s: %s", when, trimmed(cause)),
		freed && errors.Is(cause, rlock.ErrLeaseLost) && took < holdLease/3+slack, nil
}
