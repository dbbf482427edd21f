package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/rlock"
)

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
