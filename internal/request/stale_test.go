package request

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

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
