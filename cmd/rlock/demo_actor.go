package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/rlock"
)

// What the processes of the demo share.
const (
	sellers    = 4
	tickets    = 30
	sellTime   = 10 * time.Millisecond // between looking and selling
	holdLease  = 6 * time.Second
	stockKey   = "demo:stock"
	readyKey   = "demo:ready"
	ticketLock = "demo:tickets"
	holderLock = "demo:holder"
)

// The roles of an actor.
const (
	carelessSeller = "careless-seller"
	carefulSeller  = "careful-seller"
	keeper         = "keeper"
)

// demoActorCommand is what the demo's other processes run.
func demoActorCommand() *cli.Command {
	return &cli.Command{
		Name:   "demo-actor",
		Usage:  "a process of the demo",
		Hidden: true,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			s, err := (&access{}).open(cmd.Args().Get(1))
			if err != nil {
				return usagef(cmd, "only the demo starts it")
			}
			defer s.close()
			client, err := rlock.New(s.rdb, nil)
			if err != nil {
				return err
			}
			defer closeWithin(client, closeTimeout)
			switch cmd.Args().First() {
			case carelessSeller:
				return sell(ctx, s.rdb, func(ctx context.Context, sale func(context.Context) error) error { return sale(ctx) })
			case carefulSeller:
				return sell(ctx, s.rdb, client.NewLock(ticketLock).Do)
			default:
				return keep(ctx, client.NewLock(holderLock, rlock.WithLeaseTime(holdLease)))
			}
		},
	}
}

// sell waits for the other sellers, sells until the stock is empty, and prints
// how many it sold. guarded runs a sale.
func sell(ctx context.Context, rdb redis.UniversalClient, guarded func(context.Context, func(context.Context) error) error) error {
	ready, err := rdb.Incr(ctx, readyKey).Result()
	for ; err == nil && ready < sellers; ready, err = rdb.Get(ctx, readyKey).Int64() {
		time.Sleep(sellTime)
	}
	if err != nil {
		return err
	}
	sold, left := 0, 1
	for left > 0 {
		err := guarded(ctx, func(ctx context.Context) (err error) {
			if left, err = rdb.Get(ctx, stockKey).Int(); err != nil || left <= 0 {
				return err
			}
			time.Sleep(sellTime)
			sold++
			return rdb.Set(ctx, stockKey, left-1, 0).Err()
		})
		if err != nil {
			return err
		}
	}
	fmt.Println(sold)
	return nil
}

// keep holds the lock until standard input ends.
func keep(ctx context.Context, lock *rlock.Lock) error {
	return lock.Do(ctx, func(context.Context) error {
		fmt.Println("held")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	})
}
