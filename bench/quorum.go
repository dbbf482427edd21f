package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

// quorumKinds are those of the scenarios in which locks on several servers take
// part, and their floor.
var quorumKinds = []Kind{Cycle, Contend, Wakeup, Wide}

// quorumScenarios are one lock and a few clients, for a quorum beside a plain lock:
// the wake-up is for how long the lock was free beside one that waited.
func quorumScenarios() []Scenario {
	scenario := func(processes, clients int) Scenario {
		n := processes * clients
		return Scenario{
			Name: fmt.Sprintf("few-%d", n), About: fmt.Sprintf("%d clients in %d processes, one lock, held for 1ms", n, processes),
			Kind: Wide, Processes: processes, Goroutines: clients, Clients: clients, Keys: 1, Section: time.Millisecond, Floor: 1,
			Warmup: time.Second, Span: 5 * time.Second,
		}
	}
	return []Scenario{scenario(8, 1), scenario(6, 5)}
}

func quorumContender() Contender {
	return Contender{
		Name: "quorum", About: "this library's lock on a majority of several servers, if --node names some",
		New: newQuorum, Reentrant: true, Quorum: true, Kinds: quorumKinds,
	}
}

// quorum is a lock on all servers. Its Lock is that of the first client, which
// knows the others.
type quorum struct{ everywhere }

func newQuorum(t Target) (Locker, error) {
	var clients []*rlock.Client
	lock := func(_ *rlock.Client, name string) *rlock.Lock { return rlock.NewQuorumLock(name, clients) }
	all, err := onAll(t, newKind(lock))
	for _, l := range all {
		clients = append(clients, l.(*kind).client)
	}
	return quorum{all}, err
}

func (q quorum) Lock(ctx context.Context, name string) (context.Context, func(context.Context) error, error) {
	return q.everywhere[0].Lock(ctx, name)
}

// everywhere is a client per server, all of which lock at once. As the floor of a
// quorum it waits for all answers: a script that is still on its way to the
// slowest server would meet the next one there.
type everywhere []Locker

func newEverywhere(t Target) (Locker, error) { return onAll(t, newScripts) }

func onAll(t Target, open func(Target) (Locker, error)) (all everywhere, err error) {
	for _, t.Server = range t.Servers {
		l, err := open(t)
		if err != nil {
			return all, errors.Join(err, all.Close())
		}
		all = append(all, l)
	}
	return all, nil
}

func (all everywhere) Lock(ctx context.Context, name string) (context.Context, func(context.Context) error, error) {
	unlocks := make([]func(context.Context) error, len(all))
	err := all.each(func(i int) (err error) {
		_, unlocks[i], err = all[i].Lock(ctx, name)
		return err
	})
	return ctx, func(ctx context.Context) error {
		return all.each(func(i int) error { return unlocks[i](ctx) })
	}, err
}

// each calls do for all servers at once, for the first in this goroutine.
func (all everywhere) each(do func(i int) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i := 1; i < len(all); i++ {
		wg.Go(func() { errs[i] = do(i) })
	}
	errs[0] = do(0)
	wg.Wait()
	return errors.Join(errs...)
}

func (all everywhere) Close() error {
	var errs []error
	for _, l := range all {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
