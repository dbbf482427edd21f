package jobs_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestMain(m *testing.M) {
	logging.Disable()
	redistest.RunChild(map[string]func([]string){"host": child})
	goleak.VerifyTestMain(m, redistest.Dials)
}

// host returns the client of one host.
func host(t *testing.T, addr string, edit ...func(*redis.Options)) *rlock.Client {
	t.Helper()
	opts := &redis.Options{Addr: addr, ContextTimeoutEnabled: true}
	for _, f := range edit {
		f(opts)
	}
	rdb := redis.NewClient(opts)
	return locks(t, rdb, nil)
}

// locks returns a client that is closed with the test.
func locks(t *testing.T, rdb redis.UniversalClient, opts *rlock.Options) *rlock.Client {
	t.Helper()
	if opts == nil {
		opts = &rlock.Options{LeaseTime: time.Second}
	}
	c, err := rlock.New(rdb, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, c.Close(ctx))
		_ = rdb.Close()
	})
	return c
}

// fires counts how often each was run.
type fires struct {
	mu  sync.Mutex // guards ran
	ran map[int64]int
}

func (f *fires) add(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ran == nil {
		f.ran = make(map[int64]int)
	}
	f.ran[at.UnixMilli()]++
}

// note is the work of a job.
func (f *fires) note(_ context.Context, fire time.Time) error {
	f.add(fire)
	return nil
}

func (f *fires) twice() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.ran {
		if k > 1 {
			n++
		}
	}
	return n
}

// between counts the fires after begin and before end.
func (f *fires) between(begin, end time.Time) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ms := range f.ran {
		if at := time.UnixMilli(ms); at.After(begin) && at.Before(end) {
			n++
		}
	}
	return n
}

func nothing(context.Context, time.Time) error { return nil }

// minutes are those of each hour at which it fires, as in a cron expression "0,7,30 * * * *".
type minutes []int

func (m minutes) Next(t time.Time) time.Time {
	for t = t.Truncate(time.Minute).Add(time.Minute); ; t = t.Add(time.Minute) {
		for _, n := range m {
			if t.Minute() == n {
				return t
			}
		}
	}
}

// hours are those of each day at which it fires.
type hours []int

func (h hours) Next(t time.Time) time.Time {
	for t = t.Truncate(time.Hour).Add(time.Hour); ; t = t.Add(time.Hour) {
		if slices.Contains(h, t.UTC().Hour()) {
			return t
		}
	}
}

// once fires at one moment only.
type once time.Time

func (o once) Next(t time.Time) time.Time {
	if t.Before(time.Time(o)) {
		return time.Time(o)
	}
	return time.Time{}
}

// fromCall is @every of robfig/cron.
type fromCall time.Duration

func (f fromCall) Next(t time.Time) time.Time {
	return t.Add(time.Duration(f) - time.Duration(t.Nanosecond()))
}
