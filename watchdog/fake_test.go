package watchdog_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/watchdog"
)

// The lease of most tests: drift 302ms, guard 3s, a renewal every 10s, an
// attempt bound by 5s.
const (
	lease  = 30 * time.Second
	window = 29698 * time.Millisecond
	lapse  = 26698 * time.Millisecond
)

var errAway = errors.New("server is away")

// call is one call of a RenewFunc; times count from the fake's start.
type call struct {
	at, deadline time.Duration
	due          []watchdog.Renewal[string]
}

// fake is a server: it notes each call and answers each renewal as told.
type fake struct {
	start  time.Time
	answer func(ctx context.Context, call int, key string) error // calls count from 1

	mu    sync.Mutex // guards calls
	calls []call
}

func newFake(answer func(ctx context.Context, call int, key string) error) *fake {
	return &fake{start: time.Now(), answer: answer}
}

func (f *fake) renew(ctx context.Context, due []watchdog.Renewal[string]) []error {
	deadline, _ := ctx.Deadline()
	f.mu.Lock()
	f.calls = append(f.calls, call{time.Since(f.start), deadline.Sub(f.start), slices.Clone(due)})
	n := len(f.calls)
	f.mu.Unlock()
	errs := make([]error, len(due))
	for i, d := range due {
		errs[i] = f.answer(ctx, n, d.Key)
	}
	return errs
}

// seen returns the calls so far.
func (f *fake) seen() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// times returns when the calls so far came.
func (f *fake) times() []time.Duration {
	var at []time.Duration
	for _, c := range f.seen() {
		at = append(at, c.at)
	}
	return at
}

func well(context.Context, int, string) error { return nil }
func away(context.Context, int, string) error { return errAway }

func hang(ctx context.Context, _ int, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// losses notes the losses of one entry.
type losses struct {
	start time.Time

	mu   sync.Mutex // guards the rest
	at   []time.Duration
	errs []error
}

func (l *losses) add(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = append(l.at, time.Since(l.start))
	l.errs = append(l.errs, err)
}

// requireNone fails if there was a loss.
func (l *losses) requireNone(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.errs)
}

// requireOne fails unless there was one loss, at the given time and with all
// of the given errors.
func (l *losses) requireOne(t *testing.T, at time.Duration, errs ...error) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Equal(t, []time.Duration{at}, l.at)
	for _, err := range errs {
		require.ErrorIs(t, l.errs[0], err)
	}
}

// dog is a scheduler on a fake, closed at the end of the test.
type dog struct {
	*watchdog.Scheduler[string]
	*fake
	t *testing.T
}

// newDog must be called inside a bubble; t is the bubble's.
func newDog(t *testing.T, opts watchdog.Options, answer func(context.Context, int, string) error) dog {
	t.Helper()
	f := newFake(answer)
	s := watchdog.New(f.renew, opts)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return dog{s, f, t}
}

// take adds a lease taken this moment.
func (d dog) take(key string, length time.Duration, fixed bool) (*watchdog.Entry[string], *losses) {
	d.t.Helper()
	l := &losses{start: d.start}
	e, err := d.Add(watchdog.Lease[string]{Key: key, Duration: length, Sent: time.Now(), Fixed: fixed, OnLost: l.add})
	require.NoError(d.t, err)
	return e, l
}

// stall keeps the loop from running until the given time, as a stopped process
// does: it must come first, and blocks in an OnLost 500ms after the start.
func (d dog) stall(until time.Duration) {
	d.t.Helper()
	const length = 10 * time.Second
	_, err := d.Add(watchdog.Lease[string]{
		Duration: length, Sent: d.start.Add(500*time.Millisecond + watchdog.Guard(length) - length + length/100 + 2*time.Millisecond), Fixed: true,
		OnLost: func(error) { time.Sleep(until - 500*time.Millisecond) },
	})
	require.NoError(d.t, err)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Dials) }
