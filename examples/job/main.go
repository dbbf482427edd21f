// Job has three hosts with the same schedule. Each fire of it runs on one host, whichever is first, also when the work is
// over before the other hosts look.
//
//	go run ./examples/job
//	go run ./examples/job -url redis://127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/examples/internal/demo"
	"github.com/go-rlock/rlock/jobs"
	"github.com/go-rlock/rlock/rlock"
)

func main() { demo.Main(show) }

// runReports is what each host calls when it starts. It returns when ctx ends.
func runReports(ctx context.Context, locks *rlock.Client, report func(ctx context.Context, fire time.Time) error) error {
	return jobs.New(locks, "example-report", jobs.Every(time.Second)).Run(ctx, report)
}

// fires is after how many the show ends.
const fires = 4

func show(ctx context.Context, out io.Writer, connect func() *redis.Client) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex // guards runs
	runs := make(map[time.Time]int)
	ended := make(chan error)
	hosts := []string{"host-a", "host-b", "host-c"}
	for _, name := range hosts {
		rdb := connect()
		defer rdb.Close()
		locks, err := rlock.New(rdb, nil)
		if err != nil {
			return err
		}
		defer locks.Close(context.WithoutCancel(ctx))
		go func() {
			ended <- runReports(ctx, locks, func(_ context.Context, fire time.Time) error {
				mu.Lock()
				defer mu.Unlock()
				runs[fire]++
				fmt.Fprintf(out, "the report of %s is made on %s\n", fire.Format(time.TimeOnly), name)
				if len(runs) == fires {
					stop()
				}
				return nil
			})
		}()
	}
	var err error
	for range hosts {
		if e := <-ended; !errors.Is(e, context.Canceled) {
			err = errors.Join(err, e)
		}
	}
	for fire, n := range runs {
		if n != 1 {
			err = errors.Join(err, fmt.Errorf("%v ran %d times", fire, n))
		}
	}
	fmt.Fprintf(out, "%d hosts had %d fires, and each ran once\n", len(hosts), len(runs))
	return err
}
