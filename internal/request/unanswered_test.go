package request

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// Whoever leaves is not sent if there is time, and otherwise does not wait for the
// answer, which is told to his late function. The others do not notice.
func TestFakeTimeLeaving(t *testing.T) {
	for after, want := range map[time.Duration]error{5 * time.Millisecond: ErrNotSent, 15 * time.Millisecond: ErrAbandoned} {
		t.Run(after.String(), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				l, g := newLine(t, 10*time.Millisecond)
				start := time.Now()
				var ended time.Duration
				late := func(err error) {
					assert.Equal(t, ErrUnread, err)
					ended = time.Since(start)
				}
				var wg sync.WaitGroup
				for range senders {
					wg.Go(func() { assert.NoError(t, ask(t.Context(), g, "first")) })
					synctest.Wait()
				}
				wg.Go(func() {
					assert.NoError(t, ask(t.Context(), g, "stayer"))
					assert.Equal(t, 20*time.Millisecond, time.Since(start))
				})
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), after)
					defer cancel()
					assert.Equal(t, want, askOrLate(ctx, g, "leaver", time.Minute, late))
					assert.Equal(t, after, time.Since(start))
				})
				wg.Wait()
				idle(t, g)
				require.Equal(t, want == ErrAbandoned, l.asked("leaver"))
				require.Equal(t, want == ErrAbandoned, ended == 20*time.Millisecond, "when its answer came")
			})
		})
	}
}

// A batch whose callers have all left stops waiting for a connection, and is not sent.
func TestFakeTimeLeavingBeforeThereIsAConnection(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond)
		l.take(time.Millisecond, time.Hour)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond+time.Millisecond)
				defer cancel()
				late := func(error) { t.Error("it was not sent") }
				err := askOrLate(ctx, g, "leaver", time.Minute, late)
				assert.Contains(t, []error{ErrAbandoned, ErrNotSent}, err) // by whether it was in a batch
			})
		}
		wg.Wait()
		idle(t, g)
		require.False(t, l.asked("leaver"))
		require.Zero(t, g.pace.took, "the wait for a connection says nothing of the server")
	})
}

// A batch waits for a connection only as long as for an answer; then its callers may
// ask again.
func TestFakeTimeNoConnection(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond)
		require.NoError(t, ask(t.Context(), g, "first"))
		l.take(time.Millisecond, time.Hour)
		start := time.Now()
		require.Equal(t, ErrCrowded, ask(t.Context(), g, "second"))
		require.Equal(t, least, time.Since(start))
		idle(t, g)
		require.False(t, l.asked("second"))
		require.Equal(t, time.Millisecond, g.pace.took)
	})
}

// What was not sent because there was no connection is known not to be executed, also if
// it ends by the bound of the call.
func TestFakeTimeNoConnectionWithinTheBound(t *testing.T) {
	for _, bound := range []time.Duration{time.Millisecond, least, most, 2 * most} {
		t.Run(bound.String(), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				l, g := newLine(t, time.Millisecond)
				l.take(time.Millisecond, time.Hour)
				var wg sync.WaitGroup
				for range 3 * senders { // alone in a batch, together in one, and in none yet
					wg.Go(func() {
						start := time.Now()
						late := func(error) { t.Error("it was not sent") }
						assert.Equal(t, ErrCrowded, askOrLate(t.Context(), g, "unsent", bound, late))
						assert.LessOrEqual(t, time.Since(start), 2*min(bound, most))
					})
				}
				wg.Wait()
				idle(t, g)
				require.False(t, l.asked("unsent"))
			})
		})
	}
}

// Each call has a bound of its own, wherever it is.
func TestFakeTimeBounds(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, 100*time.Millisecond)
		require.NoError(t, ask(t.Context(), g, "first"))
		l.take(700*time.Millisecond, 0)
		start := time.Now()
		var wg sync.WaitGroup
		for range senders / 2 {
			wg.Go(func() { assert.NoError(t, ask(t.Context(), g, "long")) })
			synctest.Wait()
			wg.Go(func() {
				assert.Equal(t, ErrNoAnswer, askOrLate(t.Context(), g, "short", 300*time.Millisecond, nil))
				assert.Equal(t, 300*time.Millisecond, time.Since(start))
			})
			synctest.Wait()
		}
		wg.Go(func() {
			assert.Equal(t, ErrCrowded, askOrLate(t.Context(), g, "unsent", 300*time.Millisecond, nil))
			assert.Equal(t, 300*time.Millisecond, time.Since(start))
		})
		wg.Wait()
		require.Equal(t, 700*time.Millisecond, time.Since(start))
		require.False(t, l.asked("unsent"))
		idle(t, g)
	})
}

// What hangs is given up, and those behind it go out past it. Who had left hears of
// that, and of the answer if it comes after all.
func TestFakeTimeGivingUp(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, near/2)
		require.NoError(t, ask(t.Context(), g, "first"))
		l.take(time.Minute, 0)
		start := time.Now()
		var wg sync.WaitGroup
		told := make(chan error, 10)
		wg.Go(func() {
			assert.Equal(t, ErrNoAnswer, ask(t.Context(), g, "first"))
			assert.Equal(t, least, time.Since(start))
		})
		synctest.Wait()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			assert.Equal(t, ErrAbandoned, askOrLate(ctx, g, "first", time.Minute, func(err error) { told <- err }))
		})
		synctest.Wait()
		for range 2 {
			wg.Go(func() {
				assert.NoError(t, ask(t.Context(), g, "second"))
				assert.Equal(t, least, time.Since(start))
			})
		}
		time.Sleep(least - 1)
		l.take(0, 0)
		wg.Wait()
		require.Equal(t, []int{1, 1, 1, 2}, l.sizes)
		idle(t, g)
		require.Equal(t, ErrNoAnswer, <-told)
		require.Empty(t, told)
		time.Sleep(time.Minute)
		idle(t, g)
		require.Equal(t, ErrUnread, <-told)
		require.Empty(t, told)
	})
}

// A server that falls silent keeps nobody for longer than the bound, whatever the
// time-outs of the client.
func TestSilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	rdb := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), ReadTimeout: -1, MaxRetries: 3, DialTimeout: time.Minute})
	defer func() { _ = rdb.Close() }()
	g := groupOn(rdb)
	start := time.Now()
	require.Error(t, askOrLate(t.Context(), g, "first", loneBound, nil))
	require.GreaterOrEqual(t, time.Since(start), loneBound)
	require.Less(t, time.Since(start), 10*time.Second)
}

// swallowing is a connection that swallows what is written, as long as it is told to.
type swallowing struct {
	net.Conn
	on *atomic.Bool
}

func (c *swallowing) Write(b []byte) (int, error) {
	if c.on.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A caller who leaves does not wait for go-redis, whatever that was told about time-outs:
// with -2 it sets no deadline at all, and so not that of a context either.
func TestFakeTimeLeavingASilentServer(t *testing.T) {
	for _, timeout := range []time.Duration{0, -1, -2} {
		for _, obeys := range []bool{false, true} {
			t.Run(fmt.Sprintf("ReadTimeout %d, ContextTimeoutEnabled %v", timeout, obeys), func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					server := miniredis.NewMiniRedis()
					var silent atomic.Bool
					rdb := redis.NewClient(&redis.Options{
						Addr: "127.0.0.1:1", ReadTimeout: timeout, ContextTimeoutEnabled: obeys,
						Dialer: func(context.Context, string, string) (net.Conn, error) {
							c, err := server.Dial()
							return &swallowing{c, &silent}, err
						},
					})
					g := groupOn(rdb)
					require.NoError(t, ask(t.Context(), g, "ping"))
					idle(t, g)
					silent.Store(true)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					start := time.Now()
					require.Error(t, ask(ctx, g, "ping"))
					require.LessOrEqual(t, time.Since(start), time.Second)
					require.NoError(t, rdb.Close())
					server.Close()
					idle(t, g)
				})
			})
		}
	}
}

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

func TestErrorsOfStaleConnections(t *testing.T) {
	read := func(err error) error { return &net.OpError{Op: "read", Err: err} }
	for err, want := range map[error]bool{
		nil:                            false,
		io.EOF:                         true,
		io.ErrUnexpectedEOF:            true,
		fmt.Errorf("read: %w", io.EOF): true,
		read(os.NewSyscallError("read", syscall.ECONNRESET)): true,
		&net.OpError{Op: "write", Err: syscall.EPIPE}:        true,
		read(os.ErrDeadlineExceeded):                         false,
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}:  false,
		&unsentError{io.EOF}:                                 true,
		replyError("READONLY You can't write"):               true,
		replyError("LOADING"):                                false,
		errors.Join(io.EOF, os.ErrDeadlineExceeded):          true,
		errors.Join(errors.New("connection unusable"), fmt.Errorf("pipeline push drain: %w", io.EOF)): true,
		&unsentError{&net.OpError{Op: "dial", Err: io.EOF}}:                                           false,
		context.DeadlineExceeded: false,
	} {
		require.Equal(t, want, stale(err), "%v", err)
	}
}

// A server, or a proxy before it, that ends each connection is asked twice at once, and then
// with pauses.
func TestFakeTimeServerThatEndsEachConnection(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer func() { require.NoError(t, rdb.Close()) }()
		var at []time.Duration
		began := time.Now()
		p := Policy{Attempt: time.Second, Total: 10 * time.Second, Client: rdb, Classify: Classify}
		a := Do(t.Context(), p, func(context.Context, Options, func(int, error)) (int, bool, error) {
			if at = append(at, time.Since(began)); len(at) > 1000 {
				return 0, false, nil
			}
			return 0, false, io.EOF
		}, nil)
		require.Equal(t, Exhausted, a.End)
		require.True(t, a.Doubt)
		require.Zero(t, at[1])
		require.Positive(t, at[2])
		require.Less(t, len(at), 60)
		synctest.Wait()
	})
}

// An attempt on a stale connection is in doubt, also if the next one is answered.
func TestFakeTimeStaleConnectionLeavesDoubt(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer func() { require.NoError(t, rdb.Close()) }()
		for first, doubt := range map[error]bool{io.EOF: true, replyError("READONLY"): false} {
			n := 0
			began := time.Now()
			p := Policy{Attempt: time.Second, Total: time.Second, Once: true, Client: rdb, Classify: Classify}
			a := Do(t.Context(), p, func(_ context.Context, o Options, _ func(int, error)) (int, bool, error) {
				if n++; n == 1 {
					return 0, false, first
				}
				require.True(t, o.Repeat)
				return n, false, nil
			}, nil)
			require.Equal(t, Done, a.End)
			require.Equal(t, 2, a.Value)
			require.Equal(t, doubt, a.Doubt)
			require.Zero(t, time.Since(began))
		}
	})
}
