package watchdog_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-rlock/rlock/watchdog"
)

func Example() {
	// Ask the server to renew each lease. This one says that they are gone.
	renew := func(_ context.Context, due []watchdog.Renewal[string]) []error {
		errs := make([]error, len(due))
		for i := range due {
			errs[i] = watchdog.ErrRefused
		}
		return errs
	}
	scheduler := watchdog.New(renew, watchdog.Options{})
	defer scheduler.Close(context.Background())

	work, lost := context.WithCancelCause(context.Background())
	defer lost(nil)

	sent := time.Now() // before the request that takes the lease
	entry, err := scheduler.Add(watchdog.Lease[string]{
		Key:      "invoice:42",
		Duration: 6 * time.Second,
		Sent:     sent,
		OnLost:   lost,
	})
	if err != nil {
		fmt.Println("took too long:", err)
		return
	}

	fmt.Println("held:", entry.Check())
	<-work.Done()
	fmt.Println("held:", entry.Check(), "because of", context.Cause(work))
	fmt.Println("stopped:", entry.Stop())
	// Output:
	// held: true
	// held: false because of watchdog: lease refused
	// stopped: false
}
