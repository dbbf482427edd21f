//go:build unix

// Tour starts three workers, processes that all want one lock, and prints what happens when the one that holds it is killed,
// stopped, or cut off from Redis.
//
//	go run ./examples/tour
//	go run ./examples/tour -url redis://127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/go-rlock/rlock/examples/internal/demo"
)

// lease is short, so that the tour is. The default is 30 s.
const lease = 2 * time.Second

func main() {
	url := flag.String("url", "", "Redis server, such as redis://127.0.0.1:6379; without it one in memory, which forgets everything at the end")
	worker := flag.String("worker", "", "what the tour starts: a worker of this name")
	flag.Parse()
	logging.Disable() // go-redis': what it logs while a worker is cut off
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if *worker != "" {
		err = work(ctx, os.Stdout, *worker, *url)
	} else {
		err = tour(ctx, os.Stdout, *url)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tour shows three faults of a holder.
func tour(ctx context.Context, out io.Writer, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	opts, closeServer, err := demo.Server(url)
	if err != nil {
		return err
	}
	defer closeServer()
	fmt.Fprintf(out, "Three workers want one lock, with a lease of %v. Redis is at %s.\n\n", lease, opts.Addr)
	if opts.Network != "tcp" || opts.TLSConfig != nil {
		return errors.New("the tour cuts a TCP connection without TLS: a redis:// URL is needed")
	}
	if url == "" {
		url = "redis://" + opts.Addr
	}
	c, err := newCrew(ctx, out, url, opts.Addr, "worker-a", "worker-b", "worker-c")
	if err != nil {
		return err
	}
	defer c.dismiss()

	holder, err := c.until(ctx, "works")
	if err != nil {
		return err
	}
	c.say("%s is killed. Nobody unlocks, so the lock is free when the lease ends.", holder.name)
	_ = holder.cmd.Process.Kill()

	if holder, err = c.until(ctx, "works"); err != nil {
		return err
	}
	c.say("%s is stopped, as by a long pause of its machine. It cannot renew.", holder.name)
	_ = holder.cmd.Process.Signal(syscall.SIGSTOP)
	stopped := holder
	if holder, err = c.until(ctx, "works"); err != nil {
		return err
	}
	c.say("%s goes on. The context of its work has ended, before the work can do anything.", stopped.name)
	_ = stopped.cmd.Process.Signal(syscall.SIGCONT)
	if _, err = c.until(ctx, "lost"); err != nil {
		return err
	}

	c.say("%s is cut off from Redis. Its context ends before the lease, and then another worker can have the lock.", holder.name)
	holder.wire.cut()
	if holder, err = c.until(ctx, "lost", "works"); err != nil {
		return err
	}
	c.say("The tour ends here, and so do the workers. %s had the lock last.", holder.name)
	return nil
}
