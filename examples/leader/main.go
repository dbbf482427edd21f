// Leader has three hosts, of which one leads. When it steps down, or cannot reach Redis any more, another one follows,
// after the first has stopped.
//
//	go run ./examples/leader
//	go run ./examples/leader -url redis://127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/examples/internal/demo"
	"github.com/go-rlock/rlock/rlock"
)

func main() { demo.Main(show) }

// lead is what only one host may do at a time. It ends with its context.
func (h *host) lead(ctx context.Context, term *election.Term) error {
	h.says("leads, in term %d", term.Number())
	select {
	case h.leads <- h:
		<-ctx.Done()
	case <-ctx.Done():
	}
	h.says("leads no more: %v", context.Cause(ctx))
	return nil
}

// run is what each host does all the time. It campaigns again after a lost leadership.
func (h *host) run(ctx context.Context) error {
	e := election.New(h.locks, "example-leader", h.name, election.WithLease(2*time.Second))
	return e.Run(ctx, h.lead)
}

// host is a process in a real service.
type host struct {
	name  string
	rdb   *redis.Client
	locks *rlock.Client
	leads chan<- *host
	stop  context.CancelFunc
	says  func(format string, args ...any)
}

// show makes the first leader step down, and takes the connections of the second one.
func show(ctx context.Context, out io.Writer, connect func() *redis.Client) error {
	var mu sync.Mutex // guards out
	began := time.Now()
	leads := make(chan *host)
	ended := make(chan error)
	var hosts []*host
	for _, name := range []string{"host-a", "host-b", "host-c"} {
		rdb := connect()
		defer rdb.Close()
		locks, err := rlock.New(rdb, nil)
		if err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		defer stop()
		hosts = append(hosts, &host{name, rdb, locks, leads, stop, func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			text := fmt.Sprintf(format, args...)
			fmt.Fprintf(out, "%4.1f s  %s  %s\n", time.Since(began).Seconds(), name, strings.ReplaceAll(text, "\n", ", "))
		}})
		h := hosts[len(hosts)-1]
		go func() { ended <- h.run(running) }()
	}
	first, err := next(ctx, leads)
	if err != nil {
		return err
	}
	first.says("is asked to stop, as by a deploy")
	first.stop()
	second, err := next(ctx, leads)
	if err != nil {
		return err
	}
	second.says("loses all connections to Redis")
	_ = second.rdb.Close()
	third, err := next(ctx, leads)
	if err != nil {
		return err
	}
	leader, err := election.New(third.locks, "example-leader", "").Leader(ctx)
	if err != nil {
		return err
	}
	third.says("says: %s leads", leader.Value)
	for _, h := range hosts {
		h.stop()
	}
	for range hosts {
		if e := <-ended; e != nil && !errors.Is(e, context.Canceled) && !errors.Is(e, rlock.ErrUnavailable) && !errors.Is(e, rlock.ErrLeaseLost) {
			err = errors.Join(err, e)
		}
	}
	for _, h := range hosts {
		_ = h.locks.Close(ctx) // that of the second one cannot reach Redis
	}
	return err
}

// next returns who leads next.
func next(ctx context.Context, leads <-chan *host) (*host, error) {
	select {
	case h := <-leads:
		return h, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Minute):
		return nil, errors.New("no host leads")
	}
}
