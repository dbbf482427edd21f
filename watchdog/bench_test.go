package watchdog_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-rlock/rlock/watchdog"
)

// BenchmarkAddStop is what an uncontended Lock and Unlock cost, among other
// leases and alone; a short lease is due before the loop's timer.
func BenchmarkAddStop(b *testing.B) {
	for _, bb := range []struct {
		name   string
		length time.Duration
		others int
	}{
		{"lease=30s", lease, 0},
		{"lease=1s", time.Second, 0},
		{"lease=30s/others=10000", lease, 10_000},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s := watchdog.New(func(_ context.Context, due []watchdog.Renewal[int]) []error {
				return make([]error, len(due))
			}, watchdog.Options{})
			defer s.Close(context.Background())
			for i := range bb.others {
				if _, err := s.Add(watchdog.Lease[int]{Key: i, Duration: lease, Sent: time.Now()}); err != nil {
					b.Fatal(err)
				}
			}
			onLost := func(error) {}
			b.ReportAllocs()
			for b.Loop() {
				e, err := s.Add(watchdog.Lease[int]{Duration: bb.length, Sent: time.Now(), OnLost: onLost})
				if err != nil {
					b.Fatal(err)
				}
				e.Stop()
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	s := watchdog.New(func(_ context.Context, due []watchdog.Renewal[int]) []error {
		return make([]error, len(due))
	}, watchdog.Options{})
	defer s.Close(context.Background())
	e, err := s.Add(watchdog.Lease[int]{Duration: lease, Sent: time.Now()})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		e.Check()
	}
}
