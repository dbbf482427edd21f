// Package demo is what the programs in examples share: the flag -url, and a Redis in memory without it.
package demo

import (
	"context"
	"crypto/fips140"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Main is the main function of a program that shows something. Each host in the show has a connection of its own,
// which it gets from connect, and closes.
func Main(show func(ctx context.Context, out io.Writer, connect func() *redis.Client) error) {
	url := flag.String("url", "", "Redis server, such as redis://127.0.0.1:6379; without it one in memory, which forgets everything at the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	opts, closeServer, err := Server(*url)
	if err == nil {
		err = show(ctx, os.Stdout, func() *redis.Client { return redis.NewClient(opts) })
		closeServer()
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Server returns how to connect to a server, and the end of it. Without a URL it starts one in memory. That is no Redis:
// it has no place but a demonstration or a test.
func Server(url string) (opts *redis.Options, stop func(), err error) {
	stop = func() {}
	if url == "" {
		memory := miniredis.NewMiniRedis()
		memory.ClockTTL(true)                                                        // or leases would not end
		fips140.WithoutEnforcement(func() { err = memory.StartAddr("127.0.0.1:0") }) // it names scripts by SHA-1
		if err != nil {
			return nil, nil, err
		}
		url, stop = "redis://"+memory.Addr(), memory.Close
	}
	if opts, err = redis.ParseURL(url); err != nil {
		stop()
		return nil, nil, err
	}
	opts.ContextTimeoutEnabled = true
	rdb := redis.NewClient(opts)
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil { // at once, and not when a host in the show gives up
		stop()
		return nil, nil, fmt.Errorf("no Redis at %s: %w", opts.Addr, err)
	}
	return opts, stop, nil
}
