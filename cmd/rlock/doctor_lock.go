package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/rlock"
)

const (
	trialLease = 3 * time.Second
	trialWait  = 10 * time.Second
	handOvers  = 5
)

// trial uses a lock that nobody else has, as two clients: what one releases the
// other waits for.
type trial struct {
	holder, waiter *rlock.Client
	name           string
	renewed        chan struct{}
	waiting        chan struct{}
	said           bytes.Buffer // by the library's log; written under its mutex, read after Close
}

// checkLock takes, renews, releases and waits for a lock through the library. What the
// library says must be said twice, since this host may have stood still for a moment, and so
// must the lease be lost. Any other trial longer than the lease was no such moment: its waiters
// were not woken, and a second one would take as long.
func (d *doctor) checkLock(ctx context.Context) {
	start := time.Now()
	f, said, err := d.tryLock(ctx)
	if errors.Is(err, rlock.ErrLeaseLost) || err == nil && said != "" && time.Since(start) < trialLease {
		f, said, err = d.tryLock(ctx)
	}
	switch {
	case err != nil && refusesName(err) && d.glob == "*":
		f = finding{Check: "lock", Level: unchecked, Text: "the user may not use the name of the trial, " + d.name, Advice: nameThem}
	case err != nil && refusesName(err) && d.name != d.sample:
		f = finding{Check: "lock", Level: unchecked, Text: fmt.Sprintf("the user may not use the lock of the trial: %v", err), Advice: "give --name a GLOB with a * in it, if the user has more names"}
	case err != nil:
		f = finding{Check: "lock", Level: broken, Text: fmt.Sprintf("a trial failed: %v", err), Advice: "see the server's log"}
		switch {
		case redis.HasErrorPrefix(err, "OOM"):
			f.Advice = freeMemory
		case d.report.worst() != fine:
			f.Advice = "see the other findings"
		}
	case said != "":
		f.Level, f.Advice = warning, "see acl above, and the server's log"
		f.Text += "; rlock says: " + said
	}
	d.report.add(f)
}

// tryLock is one trial. said is what the library has to say of it.
func (d *doctor) tryLock(ctx context.Context) (f finding, said string, err error) {
	t := &trial{name: d.name, renewed: make(chan struct{}, 1), waiting: make(chan struct{}, 1)}
	logger := slog.New(slog.NewTextHandler(&t.said, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: untimed}))
	opts := rlock.Options{Prefix: d.prefix, LeaseTime: trialLease, Logger: logger, Trace: rlock.Trace{
		Renewed: func(rlock.Renewal) { notice(t.renewed) },
		Waiting: func(context.Context, rlock.Refusal) { notice(t.waiting) },
	}}
	if t.holder, err = rlock.New(d.rdb, &opts); err != nil {
		return finding{}, "", err
	}
	defer func() {
		closeWithin(t.holder, closeTimeout)
		said = strings.TrimSpace(t.said.String())
	}()
	if t.waiter, err = rlock.New(d.rdb, &opts); err != nil {
		return finding{}, "", err
	}
	defer closeWithin(t.waiter, closeTimeout)
	f, err = t.run(ctx)
	return f, "", err
}

// run returns what was measured.
func (t *trial) run(ctx context.Context) (finding, error) {
	mine, theirs := t.holder.NewLock(t.name), t.waiter.NewLock(t.name)
	held, hold, err := mine.TryLock(ctx)
	if err != nil {
		return finding{}, fmt.Errorf("lock: %w", err)
	}
	defer func() { _ = hold.Unlock(ctx) }() // unless all went well
	_, inner, err := mine.Lock(held)
	if err != nil {
		return finding{}, fmt.Errorf("nested lock: %w", err)
	}
	if err := inner.Unlock(ctx); err != nil {
		return finding{}, fmt.Errorf("nested unlock: %w", err)
	}
	select {
	case <-t.renewed:
	case <-held.Done():
		return finding{}, fmt.Errorf("renewal: %w", context.Cause(held))
	}
	var took []time.Duration
	for range handOvers {
		d, next, err := t.handOver(ctx, hold, theirs)
		if err != nil {
			return finding{}, err
		}
		took, hold = append(took, d), next
		mine, theirs = theirs, mine
	}
	if err := hold.Unlock(ctx); err != nil {
		return finding{}, fmt.Errorf("unlock: %w", err)
	}
	slices.Sort(took)
	median, longest := took[len(took)/2], took[len(took)-1]
	return finding{
		Check: "lock", Level: fine,
		Text:   fmt.Sprintf("taken, nested, renewed, handed over, released; a waiter has it %s after the release, %s at most of %d", exact(median), exact(longest), len(took)),
		Values: map[string]any{"median_ms": millis(median), "max_ms": millis(longest)},
	}, nil
}

// handOver lets next wait for the lock, releases it and measures how long it
// takes until next has it.
func (t *trial) handOver(ctx context.Context, hold *rlock.Hold, next *rlock.Lock) (time.Duration, *rlock.Hold, error) {
	type result struct {
		hold *rlock.Hold
		at   time.Time
		err  error
	}
	results := make(chan result, 1)
	go func() {
		_, h, err := next.TryLockFor(ctx, trialWait) //rlockvet:ignore nothing is done under it but Unlock, which tells of a loss
		results <- result{h, time.Now(), err}
	}()
	select {
	case <-t.waiting:
	case r := <-results:
		return 0, nil, fmt.Errorf("wait: %w", errors.Join(r.err, errNotExclusive))
	}
	t.awaitSubscription(ctx, next)
	released := time.Now()
	if err := hold.Unlock(ctx); err != nil {
		<-results
		return 0, nil, fmt.Errorf("unlock: %w", err)
	}
	r := <-results
	if r.err != nil {
		return 0, nil, fmt.Errorf("wait: %w", r.err)
	}
	return r.at.Sub(released), r.hold, nil
}

var errNotExclusive = errors.New("the lock is held, and did not make the other client wait")

// awaitSubscription gives up soon: where the server does not tell, or refuses
// the subscription, waiting goes on without.
func (t *trial) awaitSubscription(ctx context.Context, l *rlock.Lock) {
	for deadline := time.Now().Add(300 * time.Millisecond); time.Now().Before(deadline); {
		if state, err := l.Inspect(ctx); err == nil && state.Waiters > 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// notice does not wait if it was noticed before.
func notice(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// untimed drops the time of a log line.
func untimed(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
		return slog.Attr{}
	}
	return a
}
