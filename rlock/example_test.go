package rlock_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
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

// A service works under the lock of whoever calls it.
func ExampleLock_Join() {
	rdb, disconnect := connect()
	defer disconnect()
	theirs, closeTheirs := newExample(rdb) // of the service, which is another process
	defer closeTheirs()
	locks, closeLocks := newExample(rdb)
	defer closeLocks()

	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu := theirs.NewLock("invoice:42", rlock.WithFencing())
		ctx, hold, err := mu.Join(r.Context(), r.Header.Get("Rlock-Proof"))
		if err != nil {
			http.Error(w, fmt.Sprint("not held: ", errors.Is(err, rlock.ErrNotHeld)), http.StatusConflict)
			return
		}
		defer func() { _ = hold.Unlock(ctx) }() // ends ctx, and sends nothing

		_ = mu.Do(ctx, func(ctx context.Context) error { // nests, as in the caller's process
			fmt.Fprint(w, "booked with a token: ", mu.Token(ctx) > 0)
			return nil
		})
	}))
	defer service.Close()
	call := func(proof string) {
		req, _ := http.NewRequest(http.MethodPost, service.URL, http.NoBody)
		req.Header.Set("Rlock-Proof", proof)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		fmt.Println(resp.StatusCode, string(text))
	}

	mu := locks.NewLock("invoice:42", rlock.WithFencing())
	var proof string
	err := mu.Do(context.Background(), func(ctx context.Context) error {
		proof = mu.Proof(ctx)
		call(proof) // and wait for the answer before the lock is unlocked
		return nil
	})
	fmt.Println(err)
	call(proof) // too late
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// 200 booked with a token: true
	// <nil>
	// 409 not held: true
}

func ExampleClient_NewFairLock() {
	rdb, disconnect := connect()
	defer disconnect()
	client, closeClient := newExample(rdb)
	defer closeClient()

	mu := client.NewFairLock("printer")
	err := mu.Do(context.Background(), func(context.Context) error {
		fmt.Println("printing; whoever waits is served in the order of arrival")
		return nil
	})
	fmt.Println(err)
	// Output:
	// printing; whoever waits is served in the order of arrival
	// <nil>
}

// Both accounts are locked, or none. Whoever moves money the other way names them
// in the other order, and nobody waits for ever.
func ExampleNewMultiLock() {
	rdb, disconnect := connect()
	defer disconnect()
	client, closeClient := newExample(rdb)
	defer closeClient()
	elsewhere, closeElsewhere := newExample(rdb)
	defer closeElsewhere()

	from, to := client.NewLock("account:1"), client.NewLock("account:2")
	err := rlock.NewMultiLock(from, to).Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("holds:", from.HoldCount(ctx), to.HoldCount(ctx))

		back := rlock.NewMultiLock(elsewhere.NewLock("account:2"), elsewhere.NewLock("account:3"))
		_, _, err := back.TryLock(ctx)
		fmt.Println("one is busy, so neither is locked:", errors.Is(err, rlock.ErrNotAcquired), rdb.Exists(ctx, "account:3").Val())

		return to.Do(ctx, func(ctx context.Context) error { // a member re-enters
			fmt.Println("holds:", from.HoldCount(ctx), to.HoldCount(ctx))
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// holds: 1 1
	// one is busy, so neither is locked: true 0
	// holds: 1 2
	// <nil>
}

// connectServers stands for independent servers that have run for an hour, and
// serve as long as they are not away.
func connectServers(n int) (rdbs []*redis.Client, away []atomic.Bool, disconnect func()) {
	away = make([]atomic.Bool, n)
	servers := make([]*miniredis.Miniredis, n)
	for i := range n {
		servers[i] = miniredis.NewMiniRedis()
		servers[i].ClockTTL(true)
		if err := servers[i].Start(); err != nil {
			panic(err)
		}
		servers[i].Server().SetPreHook(func(p *server.Peer, command string, _ ...string) bool {
			switch {
			case away[i].Load():
				p.WriteError("LOADING Redis is loading the dataset in memory")
			case strings.EqualFold(command, "info"):
				p.WriteBulk("run_id:" + strconv.Itoa(i) + "\r\nuptime_in_seconds:3600\r\n")
			default:
				return false
			}
			return true
		})
		rdbs = append(rdbs, redis.NewClient(&redis.Options{Addr: servers[i].Addr()}))
	}
	return rdbs, away, func() {
		for i, rdb := range rdbs {
			_ = rdb.Close()
			servers[i].Close()
		}
	}
}

// Two servers of three are enough; one is not.
func ExampleNewQuorumLock() {
	rdbs, away, disconnect := connectServers(3)
	defer disconnect()
	var clients []*rlock.Client
	for _, rdb := range rdbs {
		client, closeClient := newExample(rdb)
		defer closeClient()
		clients = append(clients, client)
	}

	mu := rlock.NewQuorumLock("invoice:42", clients)
	try := func() {
		held, hold, err := mu.TryLockFor(context.Background(), 2*time.Second)
		if err != nil {
			fmt.Println("no majority:", errors.Is(err, rlock.ErrUnavailable))
			return
		}
		fmt.Println("locked")
		_ = hold.Unlock(held)
	}
	try()
	away[0].Store(true)
	try()
	away[1].Store(true)
	try()
	away[0].Store(false)
	away[1].Store(false)
	try()
	// Output:
	// locked
	// locked
	// no majority: true
	// locked
}

// A writer that goes on reading lets other readers in, and no writer.
func ExampleClient_NewRWLock() {
	rdb, disconnect := connect()
	defer disconnect()
	client, closeClient := newExample(rdb)
	defer closeClient()
	elsewhere, closeElsewhere := newExample(rdb)
	defer closeElsewhere()

	prices, theirs := client.NewRWLock("prices"), elsewhere.NewRWLock("prices")
	try := func(side *rlock.Lock) bool {
		held, hold, err := side.TryLock(context.Background())
		if err != nil {
			return false
		}
		return hold.Unlock(held) == nil
	}

	writing, write, err := prices.Writer().Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("writing; others read:", try(theirs.Reader()))

	reading, read, err := prices.Reader().Lock(writing)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = write.Unlock(writing)
	fmt.Println("only reading; others read:", try(theirs.Reader()), "write:", try(theirs.Writer()))

	_, _, err = prices.Writer().Lock(reading)
	fmt.Println("no way back:", errors.Is(err, rlock.ErrUpgrade))
	_ = read.Unlock(reading)
	fmt.Println("free; others write:", try(theirs.Writer()))
	// Output:
	// writing; others read: false
	// only reading; others read: true write: false
	// no way back: true
	// free; others write: true
}
