// Worker is what compose.yaml starts three of. It works under locks that the others want as well, and has metrics for
// Prometheus.
//
//	go run ./worker -url redis://127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	rlockprom "github.com/go-rlock/rlock/integrations/prometheus"
	"github.com/go-rlock/rlock/rlock"
)

func main() {
	url := flag.String("url", os.Getenv("RLOCK_URL"), "Redis server; without it that of RLOCK_URL")
	listen := flag.String("listen", ":8080", "where /metrics is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	listener, err := net.Listen("tcp", *listen)
	if err == nil {
		err = run(ctx, *url, listener)
	}
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run works until ctx ends.
func run(ctx context.Context, url string, listener net.Listener) (err error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	opts.ContextTimeoutEnabled, opts.DialTimeout, opts.DialerRetries = true, time.Second, 1
	rdb := redis.NewClient(opts)
	locks, err := rlock.New(rdb, &rlock.Options{Logger: slog.Default()})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(rlockprom.NewCollector(locks))
	server := &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), ReadHeaderTimeout: time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // that of the signal has ended
		defer cancel()
		err = errors.Join(err, locks.Close(ctx), rdb.Close(), server.Close())
		<-served
	}()
	for ctx.Err() == nil {
		work(ctx, locks)
	}
	return nil
}

// work holds a lock for a moment: one of a few, so that workers have to wait for each other.
func work(ctx context.Context, locks *rlock.Client) {
	mu := locks.NewLock(fmt.Sprint("invoice:", rand.N(4)), rlock.WithPurpose("example"))
	err := mu.DoFor(ctx, time.Second, func(ctx context.Context) error {
		return pause(ctx, rand.N(50*time.Millisecond))
	})
	if err != nil && ctx.Err() == nil {
		slog.Warn("no work done", "error", err)
		_ = pause(ctx, 100*time.Millisecond)
	}
	_ = pause(ctx, rand.N(20*time.Millisecond))
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
