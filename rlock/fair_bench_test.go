package rlock_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/rlock"
)

var (
	floorLock   = redis.NewScriptServerSHA(`return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2])`)
	floorUnlock = redis.NewScriptServerSHA(`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)
)

// floorRate is how many cycles of two bare scripts a goroutine does per second.
func floorRate(tb testing.TB, rdb *redis.Client, span time.Duration) float64 {
	tb.Helper()
	n, began := 0, time.Now()
	for ; time.Since(began) < span; n++ {
		require.NoError(tb, floorLock.Run(context.Background(), rdb, []string{"floor"}, strconv.Itoa(n), 30000).Err())
		require.NoError(tb, floorUnlock.Run(context.Background(), rdb, []string{"floor"}, strconv.Itoa(n)).Err())
	}
	return float64(n) / time.Since(began).Seconds()
}

// takeTurns has goroutines lock and unlock until ctx ends, and returns how often
// each of them did.
func takeTurns(ctx context.Context, tb testing.TB, mu *rlock.Lock, goroutines int) []float64 {
	tb.Helper()
	taken := make([]float64, goroutines)
	var wg sync.WaitGroup
	for i := range taken {
		wg.Go(func() {
			for {
				held, hold, err := mu.Lock(ctx)
				if err != nil {
					return
				}
				taken[i]++
				if err := hold.Unlock(held); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return taken
}

// jain is the fairness of shares: 1 if all are equal, 1/n if one has it all.
func jain(shares []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range shares {
		sum, squares = sum+x, squares+x*x
	}
	return sum * sum / squares / float64(len(shares))
}

func sum(shares []float64) (sum float64) {
	for _, x := range shares {
		sum += x
	}
	return sum
}

// Hand-overs of a fair lock among the goroutines of a process, in relation to the
// floor of the same round.
func BenchmarkFairHandover(b *testing.B) {
	const span = time.Second
	srv := newServer(b)
	rdb := srv.Client(b)
	mu := newClient(b, srv, nil).NewFairLock("a")
	for _, waiters := range []int{8, 64, 256} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			var handovers, floor, fairness, commands float64
			for range b.N {
				floor += floorRate(b, rdb, span)
				ctx, cancel := context.WithTimeout(b.Context(), span)
				before := srv.CommandCalls(b)["evalsha"]
				taken := takeTurns(ctx, b, mu, waiters)
				commands += float64(srv.CommandCalls(b)["evalsha"]-before) / sum(taken)
				cancel()
				handovers += sum(taken) / span.Seconds()
				fairness += jain(taken)
			}
			n := float64(b.N)
			b.ReportMetric(handovers/n, "handovers/s")
			b.ReportMetric(handovers/floor, "x-floor")
			b.ReportMetric(fairness/n, "jain")
			b.ReportMetric(commands/n, "commands/handover")
		})
	}
}

// From Unlock to the return of the Lock of a waiter in another client, 1 ms away.
func BenchmarkFairWakeup(b *testing.B) {
	srv := newServer(b)
	proxy := netfault.New(b, srv.Addr())
	proxy.Delay(500*time.Microsecond, 500*time.Microsecond)
	client := func() *rlock.Client {
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		b.Cleanup(func() { _ = rdb.Close() })
		return clientOn(b, rdb, nil)
	}
	here, there := client(), client()
	for name, mu := range map[string][2]*rlock.Lock{
		"plain": {here.NewLock("a"), there.NewLock("a")},
		"fair":  {here.NewFairLock("b"), there.NewFairLock("b")},
	} {
		b.Run(name, func(b *testing.B) {
			latencies := make([]float64, b.N)
			for i := range latencies {
				held, hold := lock(b, b.Context(), mu[0])
				done := make(chan time.Time)
				go func() {
					held, hold, err := mu[1].Lock(b.Context())
					done <- time.Now()
					if err == nil {
						err = hold.Unlock(held)
					}
					if err != nil {
						b.Error(err)
					}
					close(done)
				}()
				time.Sleep(30 * time.Millisecond) // it waits, and listens
				began := time.Now()
				go func() { _ = hold.Unlock(held) }()
				latencies[i] = (<-done).Sub(began).Seconds() * 1e3
				<-done
			}
			slices.Sort(latencies)
			b.ReportMetric(latencies[len(latencies)/2], "ms-median")
		})
	}
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer func() { _ = rdb.Close() }()
	b.Run("ping", func(b *testing.B) {
		latencies := make([]float64, b.N)
		for i := range latencies {
			time.Sleep(30 * time.Millisecond)
			began := time.Now()
			require.NoError(b, rdb.Ping(b.Context()).Err())
			latencies[i] = time.Since(began).Seconds() * 1e3
		}
		slices.Sort(latencies)
		b.ReportMetric(latencies[len(latencies)/2], "ms-median")
	})
}
