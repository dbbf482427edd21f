package nightly_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/examples/nightly"
	"github.com/go-rlock/rlock/rlocktest"
)

// The clocks of four hosts are seconds apart; the job is shorter, or longer.
func TestOnceANight(t *testing.T) {
	for _, takes := range []time.Duration{time.Second, 10 * time.Minute} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := rlocktest.NewServer(t)
				var runs, ran atomic.Int64
				var wg sync.WaitGroup
				for host := range 4 {
					run := nightly.New(server.Client(), server.Locks(nil), func(context.Context, string) error {
						runs.Add(1)
						time.Sleep(takes)
						return nil
					})
					wg.Go(func() {
						time.Sleep(time.Duration(host) * 3 * time.Second)
						for _, night := range []string{"2026-01-31", "2026-02-01"} {
							it, err := run(t.Context(), night)
							assert.NoError(t, err)
							if it {
								ran.Add(1)
							}
							time.Sleep(24 * time.Hour)
						}
					})
				}
				wg.Wait()
				require.EqualValues(t, 2, runs.Load())
				require.EqualValues(t, 2, ran.Load())
			})
		})
	}
}

// The first host fails after ten minutes; another one does the work.
func TestAnotherHostTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		errDisk := errors.New("disk full")
		broken := nightly.New(server.Client(), server.Locks(nil), func(context.Context, string) error {
			time.Sleep(10 * time.Minute)
			return errDisk
		})
		healthy := nightly.New(server.Client(), server.Locks(nil), func(context.Context, string) error { return nil })

		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := broken(t.Context(), "2026-01-31")
			assert.ErrorIs(t, err, errDisk)
		})
		synctest.Wait() // until broken is at work
		ran, err := healthy(t.Context(), "2026-01-31")
		require.NoError(t, err)
		require.True(t, ran)
		wg.Wait()

		ran, err = broken(t.Context(), "2026-01-31")
		require.NoError(t, err)
		require.False(t, ran, "it is done")
	})
}
