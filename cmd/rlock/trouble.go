package main

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/rlock"
)

// trouble is a hook of go-redis that remembers the last refusal of a server, or
// why it was not reached: what is repeated gives no error for a while.
type trouble struct{ last atomic.Pointer[error] }

// answered looks at a script. What else is sent, as when a connection begins, may
// be refused without harm, and so may a script that the server does not know yet.
func (t *trouble) answered(cmd redis.Cmder) {
	var reply redis.Error
	if err := cmd.Err(); strings.HasPrefix(cmd.Name(), "eval") && errors.As(err, &reply) &&
		!errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		t.last.Store(&err)
	}
}

// seen returns nil if there was no trouble.
func (t *trouble) seen() error {
	if last := t.last.Load(); last != nil {
		return *last
	}
	return nil
}

func (t *trouble) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			t.last.Store(&err)
		}
		return conn, err
	}
}

func (t *trouble) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		t.answered(cmd)
		return err
	}
}

func (t *trouble) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			t.answered(cmd)
		}
		return err
	}
}

// schemeHint is what to add to an error that looks as if one side spoke TLS and the
// other did not: a server with TLS hangs up, one without waits for more.
func schemeHint(app *cli.Command, err error) string {
	var reply redis.Error
	var failed *net.OpError
	url, _ := serverURL(app)
	switch {
	case !errors.Is(err, rlock.ErrUnavailable), errors.As(err, &reply), errors.As(err, &failed) && failed.Op == "dial":
	case !strings.HasPrefix(url, "rediss:"):
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return " (if it expects TLS, the URL begins with rediss://)"
		}
	case errors.Is(err, context.DeadlineExceeded), strings.Contains(err.Error(), "no answer"):
		return " (if it is without TLS, the URL begins with redis://)"
	}
	return ""
}
