package once_test

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/once"
	"github.com/go-rlock/rlock/rlock"
)

func TestMain(m *testing.M) {
	redistest.RunChild(map[string]func([]string){"computes": computes, "waits": waits})
	_ = flag.Set("test.parallel", "16") // they mostly wait
	logging.Disable()
	goleak.VerifyTestMain(m, redistest.Dials)
}

const lease = 2 * time.Second

// host returns the lock client of a host, which must have a clean end.
func host(t testing.TB, addr string, edit ...func(*redis.Options)) *rlock.Client {
	return client(t, redis.NewClient(options(addr, edit...)))
}

func options(addr string, edit ...func(*redis.Options)) *redis.Options {
	opts := &redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialTimeout: time.Second}
	for _, e := range edit {
		e(opts)
	}
	return opts
}

func client(t testing.TB, rdb redis.UniversalClient) *rlock.Client {
	locks, err := rlock.New(rdb, &rlock.Options{LeaseTime: lease})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, locks.Close(ctx))
		_ = rdb.Close()
	})
	return locks
}

func gives(value string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return []byte(value), nil }
}

// computes is a host that never comes to a result.
func computes(args []string) {
	locks, err := rlock.New(redis.NewClient(options(args[0])), &rlock.Options{LeaseTime: lease})
	if err != nil {
		panic(err)
	}
	_, err = once.New(locks, once.Options{Strict: args[1] == "strict"}).Do(context.Background(), args[2], func(context.Context) ([]byte, error) {
		fmt.Println("computes")
		select {}
	})
	panic(err)
}

// waits is a host whose goroutines wait for a result, and reports when each had it, in the order of their
// return. One that has to compute it counts that on the server.
func waits(args []string) {
	n, _ := strconv.Atoi(args[2])
	rdb := redis.NewClient(options(args[0], func(o *redis.Options) { o.ClientName = "waits" }))
	locks, err := rlock.New(rdb, &rlock.Options{LeaseTime: lease})
	if err != nil {
		panic(err)
	}
	g := once.New(locks, once.Options{})
	var begun, all sync.WaitGroup
	var mu sync.Mutex // guards got
	var got []string
	for range n {
		begun.Add(1)
		all.Go(func() {
			begun.Done()
			value, err := g.Do(context.Background(), args[1], func(ctx context.Context) ([]byte, error) {
				return []byte("again"), rdb.Incr(ctx, "runs").Err()
			})
			at := time.Now().UnixNano()
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf("%d:%s:%v", at, value, err))
		})
	}
	begun.Wait()
	fmt.Println("waits")
	all.Wait()
	fmt.Println("got", strings.Join(got, " "))
	if err := locks.Close(context.Background()); err != nil {
		panic(err)
	}
}
