// Try runs the packages of examples that are there to be copied, and prints what happens:
//
//	go run ./examples/try            all of them
//	go run ./examples/try payment    one
//
// Each show has two hosts, each with a client of its own. They use a Redis in memory, or yours with -url.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/examples/internal/demo"
	"github.com/go-rlock/rlock/rlock"
)

// shows are the packages, in the order in which they are shown.
var shows = []struct {
	name string
	show func(ctx context.Context, out io.Writer, hosts [2]host) error
}{
	{"flashsale", showFlashsale},
	{"balance", showBalance},
	{"payment", showPayment},
	{"nested", showNested},
	{"nightly", showNightly},
	{"fencing", showFencing},
}

// host is a process of a service.
type host struct {
	rdb   *redis.Client
	locks *rlock.Client
}

func main() {
	demo.Main(func(ctx context.Context, out io.Writer, connect func() *redis.Client) error {
		return show(ctx, out, connect, flag.Args())
	})
}

// show runs the shows with these names, and all without a name.
func show(ctx context.Context, out io.Writer, connect func() *redis.Client, names []string) error {
	var known []string
	for _, s := range shows {
		known = append(known, s.name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no example %q: choose from %s", name, strings.Join(known, ", "))
		}
	}
	var hosts [2]host
	for i := range hosts {
		rdb := connect()
		defer rdb.Close()
		locks, err := rlock.New(rdb, nil)
		if err != nil {
			return err
		}
		defer locks.Close(ctx)
		hosts[i] = host{rdb, locks}
	}
	for _, s := range shows {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		fmt.Fprintf(out, "%s\n", s.name)
		if err := s.show(ctx, out, hosts); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}
