package rlock_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/rlock"
)

// connect stands for the Redis of a real program. The clients made on it are
// independent, like those of several processes.
func connect() (rdb *redis.Client, disconnect func()) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		panic(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: server.Addr()})
	return rdb, func() {
		_ = rdb.Close()
		server.Close()
	}
}

// newExample returns a client and what closes it. Examples leave out errors that
// cannot happen in them.
func newExample(rdb *redis.Client) (*rlock.Client, func()) {
	client, err := rlock.New(rdb, nil)
	if err != nil {
		panic(err)
	}
	return client, func() {
		if err := client.Close(context.Background()); err != nil {
			fmt.Println("close:", err)
		}
	}
}

func ExampleNew() {
	rdb, disconnect := connect()
	defer disconnect()

	client, err := rlock.New(rdb, &rlock.Options{
		Prefix:    "billing:",
		LeaseTime: 10 * time.Second, // of a holder that crashes; a live one renews it
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(context.Background())

	err = client.NewLock("invoice:42").Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("keys:", rdb.Keys(ctx, "*").Val())
		return nil
	})
	fmt.Println(err)
	// Output:
	// keys: [billing:invoice:42]
	// <nil>
}

// A line publishes what a client has counted at /debug/vars.
func ExampleClient_Stats() {
	rdb, disconnect := connect()
	defer disconnect()
	client, closeClient := newExample(rdb)
	defer closeClient()

	if expvar.Get("rlock") == nil { // a name can be published once
		expvar.Publish("rlock", expvar.Func(func() any { return client.Stats() }))
	}

	mu := client.NewLock("invoice:42")
	_ = mu.Do(context.Background(), func(ctx context.Context) error {
		return mu.Do(ctx, func(context.Context) error { return nil })
	})
	for _, k := range client.Stats().Kinds {
		fmt.Println(k.Kind, "acquired:", k.Acquired(), "nested:", k.Calls[rlock.OutcomeNested], "held:", k.Held)
	}
	// Output: plain acquired: 1 nested: 1 held: 0
}

func ExampleLock_Do() {
	rdb, disconnect := connect()
	defer disconnect()
	client, closeClient := newExample(rdb)
	defer closeClient()

	mu := client.NewLock("invoice:42")
	ship := func(ctx context.Context) error {
		return mu.Do(ctx, func(ctx context.Context) error { // re-enters
			fmt.Println("holds:", mu.HoldCount(ctx))
			return nil
		})
	}
	err := mu.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("holds:", mu.HoldCount(ctx))
		return ship(ctx)
	})
	fmt.Println(err)
	// Output:
	// holds: 1
	// holds: 2
	// <nil>
}

func ExampleLock_Lock() {
	rdb, disconnect := connect()
	defer disconnect()
	client, closeClient := newExample(rdb)
	defer closeClient()

	work := func(ctx context.Context) (err error) {
		ctx, hold, err := client.NewLock("invoice:42").Lock(ctx)
		if err != nil {
			return err
		}
		// Works under a ctx that has ended, as it has if the lock is lost.
		defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()

		fmt.Println("locked:", ctx.Err() == nil)
		return nil
	}
	fmt.Println(work(context.Background()))
	// Output:
	// locked: true
	// <nil>
}

func ExampleLock_TryLock() {
	rdb, disconnect := connect()
	defer disconnect()
	here, closeHere := newExample(rdb)
	defer closeHere()
	there, closeThere := newExample(rdb)
	defer closeThere()
	ctx := context.Background()

	held, hold, err := here.NewLock("invoice:42").TryLock(ctx)
	fmt.Println(err)

	_, _, err = there.NewLock("invoice:42").TryLock(ctx)
	var busy *rlock.NotAcquiredError
	if errors.As(err, &busy) {
		fmt.Println(busy.Name, "is busy")
	}
	fmt.Println(hold.Unlock(held))
	// Output:
	// <nil>
	// invoice:42 is busy
	// <nil>
}

func ExampleLock_TryLockFor() {
	rdb, disconnect := connect()
	defer disconnect()
	here, closeHere := newExample(rdb)
	defer closeHere()
	there, closeThere := newExample(rdb)
	defer closeThere()
	ctx := context.Background()

	err := here.NewLock("invoice:42").Do(ctx, func(ctx context.Context) error {
		_, _, err := there.NewLock("invoice:42").TryLockFor(ctx, time.Second)
		fmt.Println("busy:", errors.Is(err, rlock.ErrNotAcquired))
		fmt.Println("waited to the end:", errors.Is(err, context.DeadlineExceeded))
		return nil
	})
	fmt.Println(err)
	// Output:
	// busy: true
	// waited to the end: true
	// <nil>
}

// Goroutines that use a context which owns a lock are inside together. One with a
// detached context contends for the lock like any other; nobody may wait for it while
// holding the lock.
func ExampleDetach() {
	rdb, disconnect := connect()
	defer disconnect()
	client, closeClient := newExample(rdb)
	defer closeClient()

	mu := client.NewLock("invoice:42")
	err := mu.Do(context.Background(), func(ctx context.Context) error {
		_, hold, err := mu.TryLock(ctx)
		fmt.Println("the owner enters:", err == nil)
		if err != nil {
			return err
		}

		_, _, err = mu.TryLock(rlock.Detach(ctx))
		fmt.Println("others do not:", errors.Is(err, rlock.ErrNotAcquired))
		return hold.Unlock(ctx)
	})
	fmt.Println(err)
	// Output:
	// the owner enters: true
	// others do not: true
	// <nil>
}

// A resource that refuses tokens smaller than the greatest it has seen is safe
// even from a holder that was stopped for longer than its lease.
func ExampleWithFencing() {
	rdb, disconnect := connect()
	defer disconnect()
	client, closeClient := newExample(rdb)
	defer closeClient()
	ctx := context.Background()

	var greatest int64
	write := func(token int64, what string) {
		if token < greatest {
			fmt.Println("refused:", what)
			return
		}
		greatest = token
		fmt.Println("written:", what)
	}

	mu := client.NewLock("invoice:42", rlock.WithFencing())
	var tokens []int64
	for range 2 {
		held, hold, err := mu.Lock(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		tokens = append(tokens, hold.Token())
		fmt.Println(hold.Unlock(held))
	}
	write(tokens[1], "by the second holder")
	write(tokens[0], "late, by the first")
	// Output:
	// <nil>
	// <nil>
	// written: by the second holder
	// refused: late, by the first
}

// A lost lock ends the context, with the reason as its cause.
func ExampleLostError() {
	rdb, disconnect := connect()
	defer disconnect()
	client, closeClient := newExample(rdb)
	defer closeClient()

	mu := client.NewLock("invoice:42", rlock.WithLeaseTime(3*time.Second))
	err := mu.Do(context.Background(), func(ctx context.Context) error {
		rdb.Del(ctx, "invoice:42") // an operator's mistake, say; a renewal finds out

		<-ctx.Done()
		var lost *rlock.LostError
		if errors.As(context.Cause(ctx), &lost) {
			fmt.Println("lost:", lost.Name)
		}
		return ctx.Err()
	})
	fmt.Println(errors.Is(err, rlock.ErrLeaseLost))
	// Output:
	// lost: invoice:42
	// true
}

func ExampleLock_Inspect() {
	rdb, disconnect := connect()
	defer disconnect()
	client, closeClient := newExample(rdb)
	defer closeClient()

	mu := client.NewLock("invoice:42")
	held, hold, err := mu.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	state, err := mu.Inspect(held)
	fmt.Println(state.Name, state.Owner() == hold.Owner(), state.Holds[hold.Owner()], err)

	removed, err := mu.UnlockOwner(held, state.Owner()) // an operator's way to end a grant
	fmt.Println(removed, err)
	fmt.Println(errors.Is(hold.Unlock(held), rlock.ErrLeaseLost))
	// Output:
	// invoice:42 true 1 <nil>
	// true <nil>
	// true
}
