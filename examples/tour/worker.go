//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/rlock"
)

// work takes the lock and works under it until the lock is lost, again and again. It prints a line for each.
func work(ctx context.Context, out io.Writer, name, url string) error {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	opts.ContextTimeoutEnabled = true
	rdb := redis.NewClient(opts)
	defer rdb.Close()
	locks, err := rlock.New(rdb, nil)
	if err != nil {
		return err
	}
	mu := locks.NewLock("example-tour", rlock.WithLeaseTime(lease), rlock.WithPurpose("tour of "+name))
	for {
		err := mu.Do(ctx, func(ctx context.Context) error {
			fmt.Fprintln(out, "works")
			<-ctx.Done() // your work, which looks at its context
			if errors.Is(context.Cause(ctx), rlock.ErrLeaseLost) {
				fmt.Fprintln(out, "lost")
			}
			return ctx.Err()
		})
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, rlock.ErrUnavailable) {
			time.Sleep(100 * time.Millisecond) // Redis is away
		}
	}
}
