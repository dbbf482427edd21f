package rlock_test

import (
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// fips locks, waits, unlocks and runs a Script in a process that may use approved cryptography only.
func fips(args []string) {
	rdb := redis.NewClient(&redis.Options{Addr: args[0]})
	var clients [2]*rlock.Client
	for i := range clients {
		c, err := rlock.New(rdb, nil)
		if err != nil {
			panic(err)
		}
		clients[i] = c
	}
	for _, lockOf := range []func(*rlock.Client) rlock.Locker{
		func(c *rlock.Client) rlock.Locker { return c.NewLock("plain", rlock.WithFencing()) },
		func(c *rlock.Client) rlock.Locker { return c.NewFairLock("fair") },
		func(c *rlock.Client) rlock.Locker { return c.NewRWLock("rw").Writer() },
		func(c *rlock.Client) rlock.Locker {
			return rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"))
		},
	} {
		inside := make(chan error)
		err := lockOf(clients[0]).Do(context.Background(), func(ctx context.Context) error {
			go func() {
				inside <- lockOf(clients[1]).Do(context.Background(), func(context.Context) error { return nil })
			}()
			return nil
		})
		if other := <-inside; err != nil || other != nil {
			panic(fmt.Sprint(err, other))
		}
	}
	script := rlock.NewScript(`return redis.call('incr', KEYS[2])`)
	ctx, hold, err := clients[0].NewLock("script").Lock(context.Background())
	for range 2 { // by its source, and by its hash
		if err == nil {
			_, err = script.Run(ctx, hold, []string{"count"})
		}
	}
	if err = errors.Join(err, hold.Unlock(ctx)); err != nil {
		panic(err)
	}
	fmt.Println("enforced", fips140.Enforced())
}

func TestFIPS(t *testing.T) {
	srv := redistest.Start(t)
	t.Setenv("GODEBUG", "fips140=only")
	child := redistest.Spawn(t, "fips", srv.Addr())
	require.Equal(t, "true", child.Expect("enforced ", 20*time.Second))
}
