// Queue has two consumers of a Redis stream, which delivers a message again if it was not acknowledged in time: to the other
// consumer, and while the first one may still be at work. Each message counts once.
//
//	go run ./examples/queue
//	go run ./examples/queue -url redis://127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/examples/balance"
	"github.com/go-rlock/rlock/examples/internal/demo"
	"github.com/go-rlock/rlock/rlock"
)

func main() { demo.Main(show) }

const (
	stream, group = "example-queue:deductions", "bank"
	visible       = 300 * time.Millisecond // after that, a message without an acknowledgement is delivered again
)

// consumer takes messages from the stream.
type consumer struct {
	name   string
	rdb    *redis.Client
	handle func(context.Context, balance.Message) error
}

// run handles messages until ctx ends. A message is acknowledged when it is handled, and not before: if the process dies in
// between, the other consumer gets it.
func (c *consumer) run(ctx context.Context) error {
	for ctx.Err() == nil {
		messages, err := c.next(ctx)
		if err != nil {
			return err
		}
		for _, m := range messages {
			cents, err := strconv.ParseInt(fmt.Sprint(m.Values["cents"]), 10, 64)
			if err != nil {
				return err // in a real service: into a queue of its own, for people
			}
			err = c.handle(ctx, balance.Message{ID: m.ID, Deduction: balance.Deduction{Account: fmt.Sprint(m.Values["account"]), Cents: cents}})
			if err != nil {
				continue // it will be delivered again
			}
			if err := c.rdb.XAck(ctx, stream, group, m.ID).Err(); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// next returns messages that somebody has had for too long, or else new ones.
func (c *consumer) next(ctx context.Context) ([]redis.XMessage, error) {
	again, _, err := c.rdb.XAutoClaim(ctx, &redis.XAutoClaimArgs{
		Stream: stream, Group: group, Consumer: c.name, MinIdle: visible, Start: "0", Count: 10,
	}).Result()
	if err != nil || len(again) > 0 {
		return again, err
	}
	streams, err := c.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
		Streams: []string{stream, ">"}, Group: group, Consumer: c.name, Count: 10, Block: -1,
	}).Result()
	if errors.Is(err, redis.Nil) {
		time.Sleep(50 * time.Millisecond)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return streams[0].Messages, nil
}

// book keeps balances and the ids of the messages that count. In a service that is a database, whose transaction writes
// both.
type book struct {
	rdb      *redis.Client
	handled  atomic.Int64 // deliveries
	repeated atomic.Int64 // of what counted before
}

const balances, processed = "example-{queue}:balances", "example-{queue}:processed"

func (b *book) Cents(ctx context.Context, account string) (int64, error) {
	return b.rdb.HGet(ctx, balances, account).Int64()
}

func (b *book) Processed(ctx context.Context, id string) (bool, error) {
	b.handled.Add(1)
	done, err := b.rdb.SIsMember(ctx, processed, id).Result()
	if done {
		b.repeated.Add(1)
	}
	return done, err
}

var process = redis.NewScript(`
if redis.call('sadd', KEYS[2], ARGV[1]) == 0 then
	return 0
end
redis.call('hset', KEYS[1], ARGV[2], ARGV[3])
return 1`)

func (b *book) Process(ctx context.Context, id, account string, cents int64) error {
	is, err := process.Run(ctx, b.rdb, []string{balances, processed}, id, account, cents).Bool()
	if err == nil && !is {
		b.repeated.Add(1)
		return balance.ErrProcessed
	}
	return err
}

// show sends 20 messages of 1 cent. The first consumer dies three times between its work and the acknowledgement.
func show(ctx context.Context, out io.Writer, connect func() *redis.Client) (err error) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	rdb := connect()
	defer rdb.Close()
	clear := func() error {
		return rdb.Del(context.WithoutCancel(ctx), stream, balances, processed).Err()
	}
	if err := clear(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clear()) }()
	if err := rdb.XGroupCreateMkStream(ctx, stream, group, "0").Err(); err != nil {
		return err
	}
	for n := range 20 {
		account := []string{"alice", "bob"}[n%2]
		if err := rdb.HSet(ctx, balances, account, 100).Err(); err != nil {
			return err
		}
		if err := rdb.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"account", account, "cents", 1}}).Err(); err != nil {
			return err
		}
	}

	b := &book{rdb: rdb}
	var mu sync.Mutex // guards deaths, and out while the consumers run
	deaths := 0
	errDied := errors.New("died before the acknowledgement")
	var consumers sync.WaitGroup
	for _, name := range []string{"host-a", "host-b"} {
		own := connect()
		defer own.Close()
		locks, err := rlock.New(own, nil)
		if err != nil {
			return err
		}
		defer locks.Close(context.WithoutCancel(ctx))
		handle := balance.NewConsumer(locks, b)
		c := &consumer{name, own, func(ctx context.Context, m balance.Message) error {
			err := handle(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && deaths < 3 {
				deaths++
				fmt.Fprintf(out, "%s has handled %s, and dies before it says so\n", name, m.ID)
				return errDied
			}
			return err
		}}
		consumers.Go(func() { _ = c.run(ctx) })
	}
	pending, left := int64(-1), ""
	for pending != 0 && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		groups, err := rdb.XInfoGroups(ctx, stream).Result()
		if err != nil {
			return err
		}
		if n, err := rdb.SCard(ctx, processed).Result(); err == nil && n == 20 {
			pending = groups[0].Pending
		}
	}
	stop()
	consumers.Wait()
	for _, account := range []string{"alice", "bob"} {
		cents, err := b.Cents(context.WithoutCancel(ctx), account)
		if err != nil {
			return err
		}
		left += fmt.Sprintf(", %s has %d cents", account, cents)
		if cents != 90 {
			err = fmt.Errorf("%s has %d cents, not 90", account, cents)
			return err
		}
	}
	fmt.Fprintf(out, "20 messages of 1 cent, %d deliveries, %d of them of what counted before: %s\n", b.handled.Load(), b.repeated.Load(), strings.TrimPrefix(left, ", "))
	return nil
}
